"""Copies between arrays that lie the other way round, through tiles in shared memory."""

import numpy as np
import pytest

import gradlab as gl
from gradlab.backends.cuda.launch_context import Work

pytestmark = [pytest.mark.usefixtures("cuda")]


def values(shape, dtype):
    return (np.arange(int(np.prod(shape))) % 251).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "int16"])
def test_turned_copies(dtype):
    for shape, order in (
        ((16, 16), (1, 0)), ((33, 70), (1, 0)), ((3, 40, 17), (0, 2, 1)), ((2, 5, 6, 31), (0, 2, 3, 1)), ((2, 32, 4, 8), (0, 2, 3, 1)),
        ((20, 3, 18), (2, 1, 0)), ((40, 2, 3), (2, 1, 0)), ((1, 64), (1, 0)), ((70000, 2, 2), (0, 2, 1)),
    ):  # fmt: skip
        x = values(shape, dtype)
        there = gl.from_numpy(x).cuda()
        np.testing.assert_array_equal(there.permute(order).contiguous().cpu().numpy(), x.transpose(order))
        part = tuple(slice(1, None) if n > 17 else slice(None) for n in shape)
        np.testing.assert_array_equal(there[part].permute(order).contiguous().cpu().numpy(), x[part].transpose(order))
        made = gl.zeros(*shape[:-1], shape[-1] + 3, dtype=getattr(gl, dtype), device="cuda")
        made[..., :-3] = gl.from_numpy(np.ascontiguousarray(x.transpose(order))).cuda().permute(*np.argsort(order).tolist())
        np.testing.assert_array_equal(made.cpu().numpy()[..., :-3], x)


def test_many_in_a_batch():
    x = values((66000, 16, 16), "int8")
    want = x.transpose(0, 2, 1)[-700:]
    got = gl.from_numpy(x[-700:].copy()).cuda().mT.contiguous()
    np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_which_copies_go_through_tiles(monkeypatch):
    asked, turned = [], Work.turned_copy
    monkeypatch.setattr(Work, "turned_copy", lambda *given: (asked.append(turned(*given)), asked[-1])[1])
    x = gl.from_numpy(values((44, 42), "float32")).cuda()
    for made, want in ((x.t(), True), (x[::2], False), (x[:, :3].t(), False), (x.view(2, 22, 42).mT, True), (x[:, 1:].t(), True)):
        asked.clear()
        made.contiguous()
        assert [one is not None for one in asked] == [want], made.shape
