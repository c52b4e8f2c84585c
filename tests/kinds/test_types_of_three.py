"""The result type of functions of three tensors is that of all three together; two by two it is another one."""

import itertools

import pytest

import gradlab as gl
from gradlab.dtype import from_numpy, result_type

DTYPES = [gl.bool, gl.int8, gl.int32, gl.int64, gl.float16, gl.float32, gl.float64]
FUNCTIONS = {"clamp": gl.clamp, "addcmul": gl.addcmul, "addcdiv": gl.addcdiv}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("ranks", list(itertools.product((0, 1), repeat=3)))
def test_type_of_three(name, ranks):
    for dtypes in itertools.product(DTYPES, repeat=3):
        given = [gl.ones((2,) * rank, dtype=dtype) for rank, dtype in zip(ranks, dtypes, strict=True)]
        expected = from_numpy(result_type([(x._array.dtype, x.ndim) for x in given]))
        if name == "addcdiv" and not (dtypes[1].is_floating_point or dtypes[2].is_floating_point):
            with pytest.raises(RuntimeError, match="addcdiv"):
                FUNCTIONS[name](*given)
        else:
            assert FUNCTIONS[name](*given).dtype == expected, (name, ranks, dtypes)
