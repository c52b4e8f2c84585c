"""Operators on strings and counts of words: ONNX's own node tests, ONNX Runtime, and a file that goes from words to classes."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import gradlab as gl

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
node_cases = pytest.importorskip("onnx.backend.test.case.node")
make = onnx.helper.make_node
KINDS = {"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"}


def plain(value):
    return value.numpy() if isinstance(value, gl.Tensor) else np.asarray(value)


def test_onnxs_node_tests():
    seen = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = node_cases.collect_testcases(None)
    for case in cases:
        kinds = {n.op_type for n in case.model.graph.node} if case.model is not None else set()
        if not kinds or not kinds <= KINDS:
            continue
        model = gl.onnx.load(case.model)
        for inputs, outputs in case.data_sets:
            found = model(*inputs)
            for got, want in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
                got, want = plain(got), np.asarray(want)
                assert got.shape == want.shape, (case.name, got, want)
                np.testing.assert_array_equal(*((a.astype(str) for a in (got, want)) if want.dtype.kind in "OUS" else (got, want)))
        for kind in kinds:
            seen[kind] = seen.get(kind, 0) + 1
    assert seen.keys() == KINDS and sum(seen.values()) >= 25, seen


def words_to_classes(mode):
    """Small letters, no stop words, counts of words and pairs of them, a linear layer."""
    pool = ["bad", "good", "movie", "very", "good", "movie", "very", "good"]
    counts = make("TfIdfVectorizer", ["words"], ["counts"], mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=1,
                  ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 5, 4], pool_strings=pool,
                  weights=[0.5, 1.0, 2.0, 0.25, 3.0, 4.0])  # fmt: skip
    normalizer = make("StringNormalizer", ["text"], ["words"], case_change_action="LOWER", is_case_sensitive=0, locale="C",
                      stopwords=["a", "The"])  # fmt: skip
    nodes = [normalizer, counts, make("MatMul", ["counts", "w"], ["y"])]
    weight = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    text = onnx.helper.make_tensor_value_info("text", onnx.TensorProto.STRING, ["n"])
    graph = onnx.helper.make_graph(nodes, "g", [text], [onnx.ValueInfoProto(name=n) for n in ("y", "words")],
                                   [onnx.numpy_helper.from_array(weight, "w")])  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("text", ["A very GOOD movie", "The bad bad movie very bad good", "the a", "nothing known"])
def test_words_to_classes(mode, text):
    model, words = words_to_classes(mode), np.array(text.split(), object)
    wanted = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"text": words})
    loaded = gl.onnx.load(model)
    y, left = loaded(words)
    np.testing.assert_allclose(y.numpy(force=True), wanted[0], rtol=1e-6, atol=1e-6)
    assert left.tolist() == wanted[1].tolist()
    y.sum().backward()
    assert sum(p.grad is not None for p in loaded.parameters()) == 1


def test_words_that_are_computed_in_a_trace_are_refused():
    node = make("TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0, ngram_counts=[0],
                ngram_indexes=[0, 1], pool_int64s=[3, 5])  # fmt: skip
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [4])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name="y")]),
                                   opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
    loaded, x = gl.onnx.load(model), gl.tensor([3, 5, 3, 9])
    assert loaded(x).tolist() == [2.0, 1.0]
    with pytest.raises(gl.onnx.OnnxLoadError, match=re.escape("TfIdfVectorizer")):
        gl.jit.trace(loaded, (x,))
