"""Where bags, segments and ranges begin and end: bounds that decrease, lie outside of the values or say nothing are refused, by every
function that takes them; they gave sums of something else, or memory that was none of theirs.
"""

import pytest

import gradlab as gl
from gradlab.nn import functional as F

TABLE, BAG = gl.arange(20.0).view(10, 2), gl.tensor([1, 2, 3, 4])
WRONG = ([1, 2], [0, 5], [0, 3, 1], [0, -1], [-1, 2])  # of four values


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("offsets", WRONG)
def test_bags(offsets, whole, mode):
    with pytest.raises((RuntimeError, IndexError), match="embedding_bag"):
        F.embedding_bag(BAG, TABLE, gl.tensor(offsets), mode=mode, include_last_offset=whole)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("offsets", WRONG[1:])
def test_segments(offsets, reduce):
    with pytest.raises(RuntimeError, match="segment_reduce"):
        gl.segment_reduce(gl.ones(4), reduce, offsets=gl.tensor(offsets))
    for lengths in ([1, 2], [3, 2], [-1, 5]):
        with pytest.raises(RuntimeError, match="segment_reduce"):
            gl.segment_reduce(gl.ones(4), reduce, lengths=gl.tensor(lengths))


@pytest.mark.parametrize("mode, expected", [("sum", [[6.0, 8.0]]), ("mean", [[3.0, 4.0]]), ("max", [[4.0, 5.0]])])
@pytest.mark.parametrize("dtype", [gl.int32, gl.int64])
def test_a_last_offset_ends_the_last_bag(mode, expected, dtype):
    """The rows behind it belong to none."""
    assert F.embedding_bag(BAG, TABLE, gl.tensor([0, 2], dtype=dtype), mode=mode, include_last_offset=True).tolist() == expected
    whole = F.embedding_bag(BAG, TABLE, gl.tensor([0, 2, 2, 4], dtype=dtype), mode=mode, include_last_offset=True)
    assert whole[:1].tolist() == expected and whole[1].tolist() == [0.0, 0.0]


def test_bags_in_a_program():
    """Where offsets cannot be looked at, they mean the same."""
    compiled = gl.compile(lambda at: F.embedding_bag(BAG, TABLE, at, mode="sum", include_last_offset=True))
    for offsets in ([0, 1, 2], [0, 2, 4], [0, 0, 3]):
        at = gl.tensor(offsets)
        assert gl.equal(compiled(at), F.embedding_bag(BAG, TABLE, at, mode="sum", include_last_offset=True))


@pytest.mark.parametrize("row", [10, -11])
def test_a_row_of_padding_is_one_of_the_table(row):
    for call in (lambda: F.embedding_bag(BAG, TABLE, gl.tensor([0]), padding_idx=row), lambda: F.embedding(BAG, TABLE, padding_idx=row)):
        with pytest.raises(ValueError, match="is not a row"):
            call()


@pytest.mark.parametrize("given", [{"count": 0}, {"offset": 8}, {"offset": -1}, {"count": 3}, {"offset": 3}])
def test_buffers(given):
    with pytest.raises(ValueError, match="frombuffer"):
        gl.frombuffer(bytearray(8), dtype=gl.int32, **given)
    with pytest.raises(TypeError, match="frombuffer"):
        gl.frombuffer([1, 2], dtype=gl.int32)


def test_ranges_of_random_numbers():
    x = gl.zeros(1000, dtype=gl.int64)
    assert bool((x.random_(-5, None) >= -5).all()) and int(gl.zeros(500, dtype=gl.uint8).random_(250, None).min()) >= 250
    for low, high in ((5.0, 1.0), (0.0, float("inf")), (float("-inf"), 0.0), (float("nan"), 1.0)):
        with pytest.raises(RuntimeError, match="uniform_"):
            gl.zeros(2).uniform_(low, high)


def test_counts_of_integers_are_refused():
    """Edges of integers would lie between none."""
    for dtype in (gl.int64, gl.int32, gl.uint8):
        with pytest.raises(RuntimeError, match="histogram"):
            gl.histogram(gl.ones(3, dtype=dtype), 3)


@pytest.mark.parametrize("indices", [gl.tensor(0.5), gl.tensor([True])])
def test_flat_places_are_integers(indices):
    with pytest.raises(TypeError, match="unravel_index"):
        gl.unravel_index(indices, (2, 2))
    with pytest.raises(ValueError, match="unravel_index"):
        gl.unravel_index(gl.tensor(0), (2, -3))


@pytest.mark.parametrize("given", [{"offsets": gl.tensor([0, 1, 4])}, {"lengths": gl.tensor([1, 3])}])
def test_segments_in_a_program(given):
    (name, bounds), = given.items()
    compiled = gl.compile(lambda x, at: gl.segment_reduce(x, "sum", **{name: at}))
    for _ in range(2):
        assert compiled(gl.arange(4.0), bounds).tolist() == [0.0, 6.0]
