"""An index that is out of range is an error on the (emulated) GPU where it is one on the CPU, also where nothing is read or written."""

import pytest

import gradlab as gl

F = gl.nn.functional


CALLS = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x.t()[:, i],
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i + x.numel()),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "index_put": lambda x, i: x.index_put((i,), x.new_ones(i.numel(), x.shape[1])),
    "index_put, accumulated": lambda x, i: x.index_put((i,), x.new_ones(i.numel(), x.shape[1]), accumulate=True),
    "index_add": lambda x, i: x.index_add(0, i, x.new_ones(i.numel(), x.shape[1])),
    "index_copy": lambda x, i: x.index_copy(0, i, x.new_ones(i.numel(), x.shape[1])),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x.new_ones(i.numel(), x.shape[1]), "amax"),
    "put": lambda x, i: x.put(i + x.numel(), x.new_ones(i.numel())),
    "scatter": lambda x, i: x.scatter(0, i[:, None], x.new_ones(i.numel(), 1)),
    "scatter of a number": lambda x, i: x.scatter(0, i[:, None], 2.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x.new_ones(i.numel(), 1)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x.new_ones(i.numel(), 1), "prod"),
    "nll_loss": lambda x, i: F.nll_loss(x.t()[:1].repeat(i.numel(), 1), i),
    "cross_entropy": lambda x, i: F.cross_entropy(x.t()[:1].repeat(i.numel(), 1), i),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x.t()[:1].repeat(i.numel(), 1), i),
    "one_hot": lambda x, i: F.one_hot(i, max(x.shape[0], 1) if int(x.shape[0]) else 0),
    "max_unpool1d": lambda x, i: F.max_unpool1d(x.new_ones(1, 1, i.numel()), i[None, None] + 2 * i.numel(), 2),
}
SHAPES = {"some": (4, 3), "no rows": (0, 3), "no columns": (4, 0), "nothing": (0, 0)}


def raised(call, shape, device):
    try:
        call(gl.ones(*shape, device=device), gl.tensor([0, shape[0] + 5], device=device))
        gl.cuda.synchronize()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CALLS)
def test_wrong_indices(cuda, name, shape):
    expected, found = (raised(CALLS[name], SHAPES[shape], device) for device in ("cpu", "cuda"))
    assert shape != "some" or expected is not None
    assert type(found) is type(expected), f"{found!r} in place of {expected!r}"
