"""Models of scikit-learn's converters (domain ai.onnx.ml) beside ONNX Runtime: eager, compiled, trained, exported again."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
make = pytest.importorskip("onnx.helper").make_node
LEARNING = "ai.onnx.ml"


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def model_of(kind, x, outputs=1, version=3, **attributes):
    node = make(kind, ["x"], [f"y{i}" for i in range(outputs)], domain=LEARNING, name="it", **attributes)
    value = onnx.helper.make_tensor_value_info("x", onnx.helper.np_dtype_to_tensor_dtype(x.dtype), ["n", *x.shape[1:]])
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(LEARNING, version)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def theirs(model, x):
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})


def ours(value):
    return value.detach().numpy() if isinstance(value, gl.Tensor) else np.asarray(value)


def same(got, want, rtol=1e-5, atol=1e-5):
    got = got if isinstance(got, tuple) else (got,)
    for a, b in zip(got, want, strict=True):
        a, b = ours(a), np.asarray(b)
        assert a.shape == b.shape, (a.shape, b.shape)
        if b.dtype.kind in "fi":
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
        else:
            assert a.tolist() == b.tolist()


def everywhere(model, x, tmp_path=None, labels_are_strings=False, **limits):
    """Eager, compiled (twice) and, with a batch that is left open, exported again."""
    want, loaded, t = theirs(model, x), gl.onnx.load(model), gl.tensor(x)
    same(loaded(t), want, **limits)
    if labels_are_strings:
        with pytest.raises(gl.onnx.OnnxLoadError, match="a label that is a string depends on values"):
            gl.jit.trace(loaded, t)
        return loaded
    compiled = gl.compile(loaded)
    with gl.no_grad():
        for _ in range(2):
            same(compiled(t), want, **limits)
    if tmp_path is not None:
        gl.onnx.export(loaded, t, tmp_path / "again.onnx", dynamic={"x": {0: "n"}})
        again = onnx.load(str(tmp_path / "again.onnx"))
        for v in (x, x[:2], np.concatenate([x, x])):
            same(tuple(theirs(again, v)), theirs(model, v), **limits)
    return loaded


KINDS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


@pytest.mark.parametrize("kind", KINDS)
def test_linear_models(kind, tmp_path):
    x, w, b = numbers(5, 4), numbers(12, seed=1).tolist(), numbers(3, seed=2).tolist()
    more = {"coefficients": w, "intercepts": b, "post_transform": kind}
    loaded = everywhere(model_of("LinearClassifier", x, 2, classlabels_ints=[4, 9, 2], **more), x, tmp_path)
    assert [n for n, _ in loaded.named_parameters()] == ["it.coefficients", "it.intercepts"]
    everywhere(model_of("LinearRegressor", x, targets=3, **more), x, tmp_path)
    everywhere(model_of("LinearClassifier", x, 2, classlabels_strings=["a", "bb", "c"], **more), x, labels_are_strings=True)
    two = {"coefficients": w[:4], "intercepts": b[:1], "post_transform": kind}
    everywhere(model_of("LinearClassifier", x, 2, classlabels_ints=[0, 1], **two), x)
    everywhere(model_of("LinearRegressor", x, **two), x)


def test_a_linear_model_is_trained():
    x = numbers(64, 4)
    y = (x @ numbers(4, seed=5) > 0).astype(np.int64)
    loaded = gl.onnx.load(model_of("LinearClassifier", x, 2, coefficients=[0.1] * 8, intercepts=[0.0, 0.1], classlabels_ints=[0, 1]))
    update, losses = gl.optim.Adam(loaded.parameters(), lr=0.1), []
    for _ in range(60):
        loss = gl.nn.functional.cross_entropy(loaded(gl.tensor(x))[1], gl.tensor(y))
        update.zero_grad()
        loss.backward()
        update.step()
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]
    assert (loaded(gl.tensor(x))[0].numpy() == y).mean() > 0.95


def forest(trees, depth, targets, seed, modes=("BRANCH_LEQ",), owner="target", labels=None, binary=False, track=False):
    """Random trees of all shapes down to a depth, over 4 features: the attributes of a node."""
    rng = np.random.default_rng(seed)
    nodes, leaves = [], []

    def grow(tree, level):
        mine = sum(n[0] == tree for n in nodes)
        nodes.append([tree, mine, 0, "LEAF", 0.0, 0, 0, int(track and rng.random() < 0.5)])
        at = len(nodes) - 1
        if level == depth or (level > 1 and rng.random() < 0.3):
            mine_too = [0] if binary else sorted(set(rng.integers(0, targets, 2).tolist()))
            leaves.extend((tree, mine, target, float(rng.normal())) for target in mine_too)
            return mine
        nodes[at][2], nodes[at][3] = int(rng.integers(0, 4)), str(rng.choice(modes))
        nodes[at][4] = float(rng.integers(-1, 2)) if "EQ" in nodes[at][3] else float(rng.normal())
        nodes[at][5], nodes[at][6] = grow(tree, level + 1), grow(tree, level + 1)
        return mine

    for tree in range(trees):
        grow(tree, 0)
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    found = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*nodes, strict=True), strict=True)}
    names = ("treeids", "nodeids", "ids", "weights")
    return {**found, **{f"{owner}_{name}": list(column) for name, column in zip(names, zip(*leaves, strict=True), strict=True)}}


@pytest.mark.parametrize("modes", [("BRANCH_LEQ",), ("BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_LEQ", "BRANCH_EQ", "BRANCH_NEQ")])
def test_forests(modes, tmp_path):
    x = np.round(numbers(9, 4) * 2) / 2
    for aggregate in ("SUM", "AVERAGE"):
        trees = forest(5, 4, 2, 0, modes)
        model = model_of("TreeEnsembleRegressor", x, n_targets=2, aggregate_function=aggregate, base_values=[0.5, -1.0], **trees)
        loaded = everywhere(model, x, tmp_path)
    assert [n for n, _ in loaded.named_parameters()] == ["it.weights"]
    x[0, 0] = x[3, 2] = np.nan
    everywhere(model_of("TreeEnsembleRegressor", x, n_targets=3, **forest(4, 3, 3, 1, modes, track=True)), x)
    trees = forest(6, 4, 3, 2, modes, "class")
    everywhere(model_of("TreeEnsembleClassifier", x, 2, classlabels_int64s=[5, 6, 7], post_transform="SOFTMAX", **trees), x, tmp_path)
    everywhere(model_of("TreeEnsembleClassifier", x, 2, classlabels_strings=["a", "b", "c"], **trees), x, labels_are_strings=True)


@pytest.mark.parametrize("base", [(), (0.25, 0.5, 0.0)])
def test_a_class_that_no_leaf_scores_is_not_chosen(base):
    """ONNX Runtime passes it over, also where all other scores are below its zero."""
    x, below = numbers(40, 4), forest(2, 2, 3, 5, owner="class")
    below["class_weights"] = [-abs(w) for w in below["class_weights"]]
    given = {"base_values": list(base)} if base else {}
    everywhere(model_of("TreeEnsembleClassifier", x, 2, classlabels_int64s=[5, 6, 7], **given, **below), x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positive", [False, True])
def test_forests_with_one_score_for_two_classes(kind, positive):
    x, trees = numbers(8, 4), forest(5, 3, 1, 3, owner="class", binary=True)
    if positive:
        trees["class_weights"] = [abs(w) / 10 for w in trees["class_weights"]]
    everywhere(model_of("TreeEnsembleClassifier", x, 2, classlabels_int64s=[0, 1], post_transform=kind, **trees), x)


def pairs(kind, classes, seed, probabilities=False):
    """The attributes of a machine of support vectors: one against one."""
    rng, counts = np.random.default_rng(seed), [2, 3, 2, 4][:classes]
    total, couples = sum(counts), classes * (classes - 1) // 2
    found = {
        "kernel_type": kind, "kernel_params": [0.5, 0.25, 2.0], "vectors_per_class": counts,
        "support_vectors": rng.normal(size=total * 4).tolist(), "coefficients": rng.normal(size=(classes - 1) * total).tolist(),
        "rho": rng.normal(size=couples).tolist(), "classlabels_ints": list(range(3, 3 + classes)),
    }  # fmt: skip
    if probabilities:
        found.update(prob_a=(-np.abs(rng.normal(size=couples))).tolist(), prob_b=rng.normal(size=couples).tolist())
    return found


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind):
    x = numbers(7, 4)
    for classes in (2, 3, 4):
        for probabilities in (False, True):
            model = model_of("SVMClassifier", x, 2, **pairs(kind, classes, classes, probabilities))
            if kind == "RBF" and classes == 3:
                everywhere(model, x, rtol=2e-4, atol=2e-4)
            else:
                same(gl.onnx.load(model)(gl.tensor(x)), theirs(model, x), rtol=2e-4, atol=2e-4)
    vectors = {"support_vectors": numbers(12, seed=1).tolist(), "coefficients": numbers(3, seed=2).tolist(), "rho": [0.3]}
    for one_class in (0, 1):
        machine = {**vectors, "kernel_type": kind, "kernel_params": [0.5, 0.25, 2.0], "n_supports": 3, "one_class": one_class}
        same(gl.onnx.load(model_of("SVMRegressor", x, **machine))(gl.tensor(x)), theirs(model_of("SVMRegressor", x, **machine), x))


def test_preparations(tmp_path):
    x = numbers(5, 3)
    x[1, 1], x[2], x[0, 0] = np.nan, 0, 2
    everywhere(model_of("Imputer", x, replaced_value_float=float("nan"), imputed_value_floats=[1.0, 2.0, 3.0]), x, tmp_path)
    x[1, 1] = 1
    everywhere(model_of("Scaler", x, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0]), x, tmp_path)
    everywhere(model_of("Binarizer", x, threshold=0.25), x, tmp_path)
    for norm in ("L1", "L2", "MAX"):
        everywhere(model_of("Normalizer", x, norm=norm), np.abs(x), tmp_path)
    everywhere(model_of("LabelEncoder", x, keys_floats=[0.0, 2.0], values_floats=[7.0, 8.0], default_float=-1.0), x, tmp_path)
    whole = np.array([[1, 5], [7, 1], [3, 3]], np.int64)
    everywhere(model_of("LabelEncoder", whole, keys_int64s=[1, 3], values_floats=[7.0, 8.0]), whole, tmp_path)
    everywhere(model_of("OneHotEncoder", whole[:, 0], cats_int64s=[1, 3, 7]), whole[:, 0], tmp_path)
    everywhere(model_of("Imputer", whole, replaced_value_int64=1, imputed_value_int64s=[9]), whole, tmp_path)


def test_strings():
    words = np.array([["a", "bb"], ["c", "zz"]])
    cases = {
        "LabelEncoder": [{"keys_strings": ["a", "bb"], "values_int64s": [3, 4], "default_int64": -7},
                         {"keys_strings": ["a", "bb"], "values_strings": ["x", "yy"]}],
        "CategoryMapper": [{"cats_strings": ["a", "c"], "cats_int64s": [1, 2]}], "OneHotEncoder": [{"cats_strings": ["a", "bb", "c"]}],
    }  # fmt: skip
    for kind, several in cases.items():
        for attributes in several:
            model = model_of(kind, words, **attributes)
            want = theirs(model, words.astype(object))
            same(gl.onnx.load(model)(words), want)
            same(gl.onnx.load(model)(words.tolist()), want)
    whole = np.array([1, 2, 5], np.int64)
    model = model_of("LabelEncoder", whole, keys_int64s=[1, 2], values_strings=["one", "two"], default_string="?")
    same(gl.onnx.load(model)(gl.tensor(whole)), theirs(model, whole))


def test_maps_of_results(tmp_path):
    """What skl2onnx writes: a classifier, a norm, and a map for each row; exported again the results are tensors."""
    x = numbers(4, 3)
    nodes = [
        make("LinearClassifier", ["x"], ["label", "raw"], domain=LEARNING, coefficients=numbers(9).tolist(), intercepts=[0.0, 0.1, 0.2],
             classlabels_ints=[0, 1, 2], post_transform="LOGISTIC"),
        make("Normalizer", ["raw"], ["chances"], domain=LEARNING, norm="L1"),
        make("ZipMap", ["chances"], ["probabilities"], domain=LEARNING, classlabels_int64s=[0, 1, 2]),
    ]  # fmt: skip
    inputs = [onnx.helper.make_tensor_value_info("x", 1, ["n", 3])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=n) for n in ("label", "probabilities")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(LEARNING, 1)], ir_version=8)
    loaded, (label, maps) = gl.onnx.load(model), theirs(model, x)
    compiled = gl.compile(loaded)
    for run in (loaded, compiled, compiled):
        found, rows = run(gl.tensor(x))
        assert found.tolist() == label.tolist()
        for row, want in zip(rows, maps, strict=True):
            assert list(row) == list(want)
            np.testing.assert_allclose([float(v) for v in row.values()], list(want.values()), rtol=1e-5)
    gl.onnx.export(loaded, gl.tensor(x), tmp_path / "again.onnx", dynamic={"x": {0: "n"}})
    found, chances = theirs(onnx.load(str(tmp_path / "again.onnx")), x[:3])
    assert found.tolist() == label[:3].tolist()
    np.testing.assert_allclose(chances, [list(m.values()) for m in maps[:3]], rtol=1e-5)


def test_a_forest_in_a_circle_is_refused():
    trees = forest(1, 4, 1, 0)
    inner = [i for i, m in enumerate(trees["nodes_modes"]) if m != "LEAF"]
    trees["nodes_truenodeids"][inner[-1]] = inner[1]
    with pytest.raises(gl.onnx.OnnxLoadError, match="run in a circle"):
        gl.onnx.load(model_of("TreeEnsembleRegressor", numbers(2, 4), n_targets=1, **trees))
