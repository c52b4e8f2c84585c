"""Indexing, and reading and writing by index tensors: against NumPy and explicit numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest

import gradlab as gl
from gradlab.tensor.selection import embedding_lookup, one_hot


def leaf(array):
    return gl.tensor(array, requires_grad=True)


def grid(*shape):
    return np.arange(float(np.prod(shape, dtype=int))).reshape(shape)


# ---------------------------------------------------------------- x[...] and x[...] = v, at random


def random_index(rng: random.Random, shape):
    """A tuple that indexes an array of `shape`, without integers beside index arrays: there NumPy places dimensions otherwise."""
    parts, dim, arrays = [], 0, 0
    size = rng.choice([1, 3])
    while dim < len(shape) and len(parts) < 5:
        kind = rng.choice(["none", "slice", "int", "array", "list", "mask", "stop", "ellipsis"])
        n = shape[dim]
        if kind == "none":
            parts.append(None)
            continue
        if kind == "stop":
            break
        if kind == "ellipsis":
            parts.append(Ellipsis)
            break
        if kind == "slice":
            parts.append(slice(rng.choice([None, rng.randint(-4, 4)]), rng.choice([None, rng.randint(-4, 4)]), rng.choice([None, 1, 2])))
        elif kind == "int" and n and not arrays:
            parts.append(rng.randrange(-n, n))
        elif kind in ("array", "list") and n and len(parts) == dim and not any(isinstance(p, int) for p in parts):
            found = np.array([rng.randrange(-n, n) for _ in range(size)])
            parts.append(found.tolist() if kind == "list" else found)
            arrays += 1
        elif kind == "mask" and not arrays and not any(isinstance(p, int) for p in parts):
            mask = np.array([rng.random() < 0.5 for _ in range(n)], bool)
            parts.append(mask)
            break
        else:
            parts.append(slice(None))
        dim += 1
    return tuple(parts)


def tensors(index):
    return tuple(gl.tensor(p) if isinstance(p, np.ndarray) else p for p in index)


CASES = range(150)


@pytest.mark.parametrize("seed", CASES)
def test_random_index(seed):
    rng = random.Random(seed)
    shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, 4) for _ in range(rng.randint(1, 4)))
    index = random_index(rng, shape)
    array = grid(*shape)
    want = array[index]
    x = leaf(array)
    got = (x * 1)[tensors(index)]
    np.testing.assert_array_equal(got.detach().numpy(), want)
    (got * gl.tensor(1 + grid(*want.shape))).sum().backward()
    slope = np.zeros(shape)
    np.add.at(slope, index, 1 + grid(*want.shape))
    np.testing.assert_array_equal(x.grad.numpy(), slope)

    value = np.full(want.shape[rng.randint(0, want.ndim) :], 7.5)
    expected = array.copy()
    expected[index] = value
    for record in (False, True):
        x, v = leaf(array), leaf(value)
        y = x * 1
        if not record:
            y, v = y.detach(), v.detach()
        y[tensors(index)] = v
        np.testing.assert_array_equal(y.detach().numpy(), expected)
        if record:
            y.sum().backward()
            kept = np.ones(shape)
            kept[index] = 0
            np.testing.assert_array_equal(x.grad.numpy(), kept)
            assert v.grad.numpy().sum() == want.size if v.grad is not None else want.size == 0


def test_integers_do_not_move_the_dimensions_of_index_tensors():
    x = gl.tensor(grid(2, 3, 4))
    assert x[0, :, [0, 1]].shape == (3, 2)  # NumPy: (2, 3)
    assert x[gl.tensor(1), :, [0, 1]].shape == (3, 2)
    assert x[[0, 1], :, [0, 1]].shape == (2, 3)
    assert x[:, [0, 1], [0, 1]].shape == (2, 2)
    assert x[[0, 1], None, [0, 1]].shape == (2, 1, 4)


def test_truth_values_and_masks():
    array = grid(2, 3)
    x = gl.tensor(array)
    assert x[True].shape == (1, 2, 3)
    assert x[False].shape == (0, 2, 3)
    assert x[gl.tensor(True)].shape == (1, 2, 3)
    mask = array % 2 == 0
    np.testing.assert_array_equal(x[gl.tensor(mask)].numpy(), array[mask])
    np.testing.assert_array_equal(x[x > 2].numpy(), array[array > 2])
    np.testing.assert_array_equal(x[[True, False]].numpy(), array[:1])
    x[x > 2] = 0
    np.testing.assert_array_equal(x.numpy(), np.where(array > 2, 0, array))
    x[gl.tensor(mask)] = gl.tensor(np.arange(3.0) + 10)
    np.testing.assert_array_equal(x.numpy()[mask], [10, 11, 12])


def test_views_share_memory():
    x = gl.zeros(3, 4)
    x[1][2] = 5
    x[:, 1:3][0, 0] = 6
    x[..., None][2, 3, 0] = 7
    np.testing.assert_array_equal(x.numpy()[[1, 0, 2], [2, 1, 3]], [5, 6, 7])
    x[[0, 1]][0, 0] = 9  # a copy
    assert x[0, 0].item() == 0


def test_writing_casts_broadcasts_and_takes_numbers():
    x = gl.zeros(2, 3, dtype=gl.int64)
    x[0] = 2.7
    x[1, [0, 2]] = gl.tensor([[1.9, 3.0]])
    np.testing.assert_array_equal(x.numpy(), [[2, 2, 2], [1, 0, 3]])
    x[[0, 1], 1] += 10
    np.testing.assert_array_equal(x.numpy()[:, 1], [12, 10])
    half = gl.zeros(3, dtype=gl.bfloat16)
    half[[0, 2]] = 1.5
    assert half.tolist() == [1.5, 0, 1.5]
    y = gl.tensor(grid(4))
    y[1:] = y[:-1]
    np.testing.assert_array_equal(y.numpy(), [0, 0, 1, 2])
    y[[0, 1, 2]] = y[1:]
    np.testing.assert_array_equal(y.numpy(), [0, 1, 2, 2])


@pytest.mark.parametrize(
    ("index", "error", "text"),
    [
        (5, IndexError, "index: 5 is out of range for dimension 0 of size 2"),
        ((0, 1, -5), IndexError, "-5 is out of range for dimension 2 of size 4"),
        ([0, 7], IndexError, "index 7 is out of range for dimension 0 of size 2"),
        ((slice(None), [-4]), IndexError, "index -4 is out of range for dimension 1 of size 3"),
        ((0, 0, 0, 0), IndexError, "too many indices: 4"),
        (1.0, IndexError, "float is no index"),
        ("a", IndexError, "str is no index"),
        ((Ellipsis, Ellipsis), IndexError, "only one Ellipsis"),
        ([True], IndexError, "mask of shape"),
        (([0, 1], [0, 1, 2]), IndexError, "do not broadcast"),
        (slice(None, None, -1), ValueError, "step must be positive"),
        (slice(0.5), TypeError, "bounds of a slice"),
        (np.array([0.5]), IndexError, "is no index"),
    ],
)
def test_wrong_indices(index, error, text):
    x = gl.zeros(2, 3, 4)
    with pytest.raises(error, match=text.replace("(", r"\(")):
        x[index]
    with pytest.raises(error):
        x[index] = 0.0


def test_wrong_values():
    x = gl.zeros(2, 3)
    with pytest.raises(RuntimeError, match="does not fit"):
        x[0] = gl.zeros(4)
    with pytest.raises(RuntimeError, match="does not fit"):
        x[[0, 1, 0]] = gl.zeros(2, 3)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf(grid(2))[0] = 1
    with pytest.raises(IndexError, match="0-d"):
        gl.tensor(1.0)[0]


def test_a_value_needed_by_backward_may_not_be_overwritten():
    x = leaf(grid(3))
    y = x * 1
    z = y * y
    y[0] = 5
    with pytest.raises(RuntimeError):
        z.sum().backward()


def test_reading_does_not_forbid_later_writing():
    x = leaf(grid(3))
    y = x * 1
    z = y[[0, 0, 2]]
    y[[1]] = 5
    z.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [2, 0, 1])


def test_second_order():
    x = leaf(grid(4) + 1)
    (first,) = gl.autograd.grad((x[[0, 0, 3]] ** 3).sum(), [x], create_graph=True)
    (second,) = gl.autograd.grad(first.sum(), [x])
    np.testing.assert_allclose(second.numpy(), [12, 0, 0, 24])


# ---------------------------------------------------------------- functions


def test_index_functions():
    array = grid(3, 4)
    x = gl.tensor(array)
    at = gl.tensor([2, 0, 2])
    np.testing.assert_array_equal(x.index_select(1, at).numpy(), array[:, [2, 0, 2]])
    added = array.copy()
    np.add.at(added, [2, 0, 2], 2 * array)
    np.testing.assert_array_equal(x.index_add(0, at, x, alpha=2).numpy(), added)
    np.testing.assert_array_equal(x.clone().index_add_(0, at, x, alpha=2).numpy(), added)
    np.testing.assert_array_equal(x.index_copy(0, gl.tensor([1, 0]), gl.zeros(2, 4, dtype=gl.float64)).numpy()[:2], 0)
    filled = x.index_fill(1, gl.tensor([0, -1]), 9.0)
    np.testing.assert_array_equal(filled.numpy()[:, [0, 3]], 9)
    np.testing.assert_array_equal(x.take(gl.tensor([[0, -1]])).numpy(), [[0, 11]])
    put = x.index_put((gl.tensor([0, 0]), gl.tensor([1, 1])), gl.tensor([1.0, 2.0], dtype=gl.float64), accumulate=True)
    assert put[0, 1].item() == 4
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
            x.index_select(0, gl.tensor([wrong]))


def test_scatter_functions():
    x = leaf(grid(3, 4))
    index, src = gl.tensor([[0, 1, 2, 0]]), leaf(np.array([[10.0, 20, 30, 40]]))
    y = x.scatter(0, index, src)
    assert y.detach().numpy()[[0, 1, 2, 0], range(4)].tolist() == [10, 20, 30, 40]
    y.sum().backward()
    assert x.grad.numpy().sum() == 8
    assert src.grad.numpy().tolist() == [[1, 1, 1, 1]]
    z = gl.zeros(2, 3)
    z.scatter_(1, gl.tensor([[0], [2]]), 5.0)
    z.scatter_(1, gl.tensor([[1], [1]]), 2.0, reduce="add")
    np.testing.assert_array_equal(z.numpy(), [[5, 2, 0], [0, 2, 5]])
    ones = gl.ones(4)
    np.testing.assert_array_equal(gl.zeros(3).scatter_add(0, gl.tensor([0, 0, 2, 0]), ones).numpy(), [3, 0, 1])
    with pytest.raises(IndexError, match="index 3 is out of range for dimension 0 of size 3"):
        gl.zeros(3).scatter_add(0, gl.tensor([3]), gl.ones(1))
    with pytest.raises(RuntimeError, match="reduce"):
        z.scatter(1, gl.tensor([[0]]), 1.0, reduce="mean")
    with pytest.raises(TypeError):
        z.scatter(1, gl.tensor([[0]]), gl.tensor([[1]]))


@pytest.mark.parametrize("own", [True, False])
def test_scatter_reduce(own):
    x = gl.tensor([1.0, 2.0, 3.0])
    index, src = gl.tensor([0, 0, 2]), gl.tensor([4.0, 6.0, -1.0])
    want = {
        "sum": ([11, 2, 2], [10, 2, -1]),
        "mean": ([11 / 3, 2, 1], [5, 2, -1]),
        "prod": ([24, 2, -3], [24, 2, -1]),
        "amax": ([6, 2, 3], [6, 2, -1]),
        "amin": ([1, 2, -1], [4, 2, -1]),
    }
    for reduce, found in want.items():
        np.testing.assert_allclose(x.scatter_reduce(0, index, src, reduce, include_self=own).numpy(), found[not own], rtol=1e-6)


def test_equal_extremes_share_the_gradient():
    x, src = leaf(np.array([4.0, 1.0])), leaf(np.array([4.0, 4.0]))
    x.scatter_reduce(0, gl.tensor([0, 0]), src, "amax").sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1 / 3, 1])
    np.testing.assert_allclose(src.grad.numpy(), [1 / 3, 1 / 3])


def test_gather_and_take_along_dim():
    array = grid(3, 4)
    x = leaf(array)
    places = np.argsort(np.sin(array), 1)
    np.testing.assert_array_equal(x.gather(1, gl.tensor(places)).detach().numpy(), np.take_along_axis(array, places, 1))
    np.testing.assert_array_equal(x.take_along_dim(gl.tensor([[1]]), 1).detach().numpy(), array[:, [1]])
    x.gather(1, gl.tensor([[0, 0, 1]])).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy()[0], [2, 1, 0, 0])
    with pytest.raises(RuntimeError, match="index -1 is out of range"):
        x.gather(1, gl.tensor([[-1]]))
    with pytest.raises(RuntimeError, match="dimensions"):
        x.gather(1, gl.tensor([0]))
    with pytest.raises(IndexError, match="int64"):
        x.gather(1, gl.tensor([[0.5]]))


def test_masks():
    array = grid(2, 3)
    x = leaf(array)
    mask = gl.tensor(array > 2)
    np.testing.assert_array_equal(x.masked_select(mask).detach().numpy(), [3, 4, 5])
    np.testing.assert_array_equal(x.masked_scatter(mask, gl.tensor([7.0, 8, 9, 10], dtype=gl.float64)).detach().numpy()[1], [7, 8, 9])
    with pytest.raises(RuntimeError, match="3 true elements, the source only 1"):
        x.masked_scatter(mask, gl.tensor([7.0], dtype=gl.float64))
    np.testing.assert_array_equal(mask.nonzero().numpy(), np.argwhere(array > 2))
    np.testing.assert_array_equal(mask.nonzero(as_tuple=True)[1].numpy(), [0, 1, 2])
    assert gl.argwhere(gl.tensor(3.0)).shape == (1, 0)
    assert gl.count_nonzero(gl.tensor(array)).item() == 5
    with pytest.raises(TypeError, match="bool"):
        x.masked_select(gl.tensor([1, 0, 1]))


def test_embedding():
    table = leaf(grid(4, 2))
    tokens = np.array([[0, 3], [3, 1]])
    y = embedding_lookup(table, gl.tensor(tokens), padding_idx=-3)
    np.testing.assert_array_equal(y.detach().numpy(), grid(4, 2)[tokens])
    y.sum().backward()
    np.testing.assert_array_equal(table.grad.numpy(), [[1, 1], [0, 0], [0, 0], [2, 2]])
    with pytest.raises(IndexError, match="embedding: index 4 is out of range"):
        embedding_lookup(table, gl.tensor([4]))
    with pytest.raises(ValueError, match="padding_idx"):
        embedding_lookup(table, gl.tensor([1]), 4)


def test_wide_rows_add_up_as_narrow_ones_do():
    """Two ways of adding rows, by number and width of rows: the same sums in the same order."""
    rng = np.random.default_rng(0)
    at = rng.integers(0, 5, 300)
    rows = rng.normal(size=(300, 80)).astype(np.float32)
    total = gl.zeros(5, 80).index_add(0, gl.tensor(at), gl.tensor(rows))
    narrow = [gl.zeros(5, 8).index_add(0, gl.tensor(at), gl.tensor(rows[:, i : i + 8])) for i in range(0, 80, 8)]
    np.testing.assert_allclose(total.numpy(), gl.cat(narrow, 1).numpy(), rtol=1e-5, atol=1e-5)


def test_one_hot():
    np.testing.assert_array_equal(one_hot(gl.tensor([[0, 2]])).numpy(), [[[1, 0, 0], [0, 0, 1]]])
    assert one_hot(gl.tensor([1]), 5).shape == (1, 5)
    assert one_hot(gl.tensor([1])).dtype is gl.int64
    for wrong in (gl.tensor([-1]), gl.tensor([3])):
        with pytest.raises(RuntimeError):
            one_hot(wrong, 3)
    with pytest.raises(RuntimeError, match="int64"):
        one_hot(gl.tensor([1.0]), 3)


LISTS = [
    lambda T: [T.tensor(True), T.tensor(1)], lambda T: [T.tensor(True), T.tensor(False)], lambda T: [T.tensor(1), T.tensor(0)],
    lambda T: [T.tensor([True, False]), T.tensor(1)], lambda T: [T.tensor([0, 1]), T.tensor([1, 1])], lambda T: [slice(0, 1)],
    lambda T: [None, 0], lambda T: [..., 0], lambda T: [0, slice(0, 2)], lambda T: [T.tensor([1]), 0], lambda T: [[0, 1], T.tensor([1, 1])],
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(LISTS)))
def test_lists_that_are_tuples(at):
    """A list that holds a tensor, a slice, None or `...` is a tuple of indices; one of numbers is one index."""
    x, index = gl.arange(6).reshape(2, 3), LISTS[at](gl)
    assert x[index].tolist() == x[tuple(index)].tolist() and x[index].shape == x[tuple(index)].shape
    y = x.clone()
    y[index] = -1
    x[tuple(index)] = -1
    assert y.tolist() == x.tolist()
    assert gl.arange(3)[[1, 0]].tolist() == [1, 0] and x[[True, False]].shape == (1, 3)


def test_a_list_of_sequences_is_a_tuple_of_indices():
    """As in PyTorch, with a warning: NumPy takes it for one index."""
    x = gl.arange(6.0).view(3, 2)
    for index in ([[0, 1], [1, 0]], [(0, 1, 1, 2), [1]], [range(2), np.array([0, 1])], [[0, 1]]):
        with pytest.warns(UserWarning, match="tuple of indices"):
            found = x[index]
        assert gl.equal(found, x[tuple(index)])
    assert gl.equal(x[[0, [1]]], x[0, [1]]) and x[[0, 1]].shape == (2, 2) and x[[[0, 1]] * 32].shape == (32, 2, 2)
    with pytest.warns(UserWarning, match="tuple of indices"):
        x[[[0, 1], [1, 0]]] = 9
    assert x.tolist() == [[0.0, 9.0], [9.0, 3.0], [4.0, 5.0]]


def test_numbers_of_any_integer_type_are_indices():
    x = gl.arange(6.0).view(3, 2)
    for dtype in (gl.int8, gl.int16, gl.int32, gl.int64):
        assert gl.equal(x[gl.tensor(-1, dtype=dtype)], x[-1])
        if dtype.itemsize < 4:
            with pytest.raises(IndexError, match="is no index"):
                x[gl.tensor([1], dtype=dtype)]
