"""Flags are truth values: what else a public function is given for one is refused by name, where PyTorch refuses it.

A flag is a parameter whose annotation or default is a bool. The functions that PyTorch writes in Python ask a flag for its truth, so that 1
and None will do (`ANY_TRUTH`); NumPy's truth values are taken everywhere.
"""

import contextlib
import inspect

import numpy as np
import pytest

import gradlab as gl

from kinds.calls import CALLS, TORCH

# Flags of one's own, of Python functions in PyTorch too, and those that may be lists or None there.
ANY_TRUTH = {
    "inplace", "return_indices", "size_average", "reduce", "get_infos", "include_last_offset", "hard", "recompute_scale_factor",
    "antialias", "add_zero_attn", "need_weights", "use_separate_proj_weight", "average_attn_weights", "retain_graph", "create_graph",
    "ambiguity_check", "triplet_margin_with_distance_loss.swap", "multi_head_attention_forward.training",
    "multi_head_attention_forward.is_causal", "gaussian_nll_loss.full", "stft.center", "pca_lowrank.center", "from_dlpack.copy",
    "__dlpack__.copy",
}  # fmt: skip
WRONG = {"1": 1, "0": 0, "'x'": "x", "()": (), "1.5": 1.5, "tensor": gl.tensor(True), "array": np.ones(2)}


def flags():
    """(call, flag, its place) of each public function's first sample call."""
    seen = set()
    for call in CALLS:
        if call.name in seen or call.function.__name__ == "<lambda>":
            continue
        seen.add(call.name)
        with contextlib.suppress(TypeError, ValueError):
            for place, p in enumerate(inspect.signature(call.function).parameters.values()):
                bare = call.name.rpartition(".")[2]
                said = str(p.annotation) in ("bool", "bool | None") or type(p.default) is bool
                if said and not {p.name, f"{bare}.{p.name}"} & ANY_TRUTH:
                    yield call, p.name, place if p.kind is not p.KEYWORD_ONLY else 1000


FLAGS = list(flags())


def given(call, flag, place, value, tensors):
    args, options = tensors
    if place < len(args):
        return (*args[:place], value, *args[place + 1 :]), options
    return args, {**options, flag: value}


def test_there_are_flags():
    assert len(FLAGS) > 300


@pytest.mark.parametrize("dtype", [gl.float32, gl.float16], ids=str)
@pytest.mark.parametrize("word", WRONG)
def test_what_is_no_truth_value_is_refused_by_name(word, dtype):
    wrong = []
    for call, flag, place in FLAGS:
        args, options = given(call, flag, place, WRONG[word], call.tensors(dtype))
        try:
            call.function(*args, **options)
            wrong.append((call.name, flag, "answers"))
        except TypeError as error:
            bare = call.name.rpartition(".")[2].strip("_")
            text = str(error)
            if not (flag.removesuffix("s") in text and "True or False" in text and (bare in text or bare.rstrip("_") in text)):
                wrong.append((call.name, flag, text))
        except Exception as error:
            wrong.append((call.name, flag, repr(error)))
    assert not wrong, wrong


def test_truth_values_of_numpy_are_taken():
    wrong = []
    for call, flag, place in FLAGS:
        for value in (False, True):
            answers = []
            for kind in (bool, np.bool_):
                args, options = given(call, flag, place, kind(value), call.tensors())
                try:
                    gl.manual_seed(0)
                    call.function(*args, **options)
                    answers.append("right")
                except Exception as error:
                    answers.append(type(error))
            if answers[0] is not answers[1]:
                wrong.append((call.name, flag, answers))
    assert not wrong, wrong


@pytest.mark.torch
def test_pytorch_takes_no_more():
    """What PyTorch takes for a flag beside True and False is taken here as well."""
    values = {"1": 1, "0": 0, "None": None, "()": (), "'a'": "a", "0.5": 0.5}
    wrong = []
    for call, flag, place in FLAGS:
        if call.reference is None or call.name.startswith("masked."):  # flags as of the functions of the same name
            continue
        for word, value in values.items():
            with contextlib.suppress(Exception):
                args, options = given(call, flag, place, value, call.reference_tensors(TORCH.float32))
                call.reference(*args, **options)
                args, options = given(call, flag, place, value, call.tensors())
                try:
                    call.function(*args, **options)
                except Exception as error:
                    wrong.append((call.name, flag, word, str(error)))
    assert not wrong, wrong
