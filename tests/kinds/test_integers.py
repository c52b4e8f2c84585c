"""Dimensions, sizes and counts are integers: a float, a bool or a string in their place is refused, and a dtype is a dtype."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.nn import functional as F

x, i = gl.ones(3, 4), gl.zeros(3, 4, dtype=gl.int64)
DIMENSIONS = {
    "sum": x.sum, "mean": x.mean, "amax": x.amax, "any": x.any, "prod": x.prod, "argmax": x.argmax, "median": x.median,
    "logsumexp": x.logsumexp, "softmax": x.softmax, "log_softmax": x.log_softmax, "sort": x.sort, "argsort": x.argsort, "cumsum": x.cumsum,
    "cumprod": x.cumprod, "logcumsumexp": x.logcumsumexp, "count_nonzero": x.count_nonzero, "squeeze": x.squeeze, "unsqueeze": x.unsqueeze,
    "flip": x.flip, "renorm": lambda v: x.renorm(2, v, 1.0), "flatten": x.flatten, "gather": lambda v: x.gather(v, i),
    "cat": lambda v: gl.cat((x, x), v), "stack": lambda v: gl.stack((x, x), v), "transpose": lambda v: x.transpose(v, 0),
    "permute": lambda v: x.permute(v, 0), "movedim": lambda v: x.movedim(v, 0), "diagonal": x.diagonal,
    "index_select": lambda v: x.index_select(v, gl.tensor([0])), "take_along_dim": lambda v: gl.take_along_dim(x, i, v),
    "norm": lambda v: gl.norm(x, 2, v), "linalg.norm": lambda v: gl.linalg.norm(x, 2, v), "normalize": lambda v: F.normalize(x, 2.0, v),
    "unflatten": lambda v: x.unflatten(v, (1, -1)), "cosine_similarity": lambda v: F.cosine_similarity(x, x, v),
}  # fmt: skip
COUNTS = {
    "topk": x.topk, "kthvalue": x.kthvalue, "tril": x.tril, "diff": lambda v: gl.diff(x, v), "histc": lambda v: gl.histc(x, v),
    "multinomial": lambda v: gl.multinomial(x, v), "bincount": lambda v: gl.bincount(i.flatten(), minlength=v),
    "round": lambda v: x.round(decimals=v), "embedding": lambda v: F.embedding(i, x, v), "unfold": lambda v: x.unfold(0, 1, v),
    "matrix_power": lambda v: gl.matrix_power(gl.eye(3), v), "repeat_interleave": lambda v: x.repeat_interleave((v,)),
    "linspace": lambda v: gl.linspace(0, 1, v), "randint": lambda v: gl.randint(v, (2,)),
}  # fmt: skip
AS_ONE = {"flip", "transpose", "permute", "diff", "matrix_power", "linspace", "randint"}  # there True is 1, as in Python
WRONG = {"1.0": 1.0, "0.5": 0.5, "True": True, "'1'": "1", "float64": np.float64(1), "()": object(), "float tensor": gl.tensor(1.0)}


@pytest.mark.parametrize("word", WRONG)
def test_no_integer(word):
    answered = []
    for name, call in {**DIMENSIONS, **COUNTS}.items():
        try:
            call(WRONG[word])
            if not (word == "True" and name in AS_ONE):
                answered.append(name)
        except (TypeError, RuntimeError):
            pass
    assert not answered


def test_integers_of_others():
    for call in {**DIMENSIONS, **COUNTS}.values():
        call(np.int64(1))
    for name, call in DIMENSIONS.items():
        if name != "linalg.norm":
            call(gl.tensor(1))


@pytest.mark.parametrize("dtype", [gl.tensor(1.0), np.float32(1), 1, 1.5, np.ones(1), ("float32",), {}, True], ids=repr)
def test_no_dtype(dtype):
    calls = (gl.sum, x), (gl.zeros, 2), (gl.linspace, 0, 1, 3), (gl.tensor, 1), (gl.softmax, x, 1), (gl.prod, x), (gl.norm, x)
    for function, *args in calls:
        with pytest.raises(TypeError):
            function(*args, dtype=dtype)


@pytest.mark.torch
def test_pytorch_refuses_the_same():
    torch = pytest.importorskip("torch")
    y, j = torch.ones(3, 4), torch.zeros(3, 4, dtype=torch.int64)
    calls = (y.sum, y.amax, y.softmax, y.sort, y.cumsum, y.unsqueeze, y.flatten, y.topk, y.tril, lambda v: y.gather(v, j))
    for value in (1.0, 0.5, True, "1"):
        for call in (*calls, lambda v: torch.histc(y, v)):
            with pytest.raises((TypeError, RuntimeError)):
                call(value)
