"""Data of other libraries, by what they can do and not by their names: arrays, frames, rows, streams, images."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import (
    ConcatDataset,
    DataLoader,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    random_split,
)

COLUMNS = {"size": [1.5, 2.5, 3.5], "rooms": [1, 2, 3], "town": ["a", "b", "c"]}


class Column:
    """What a Series is, as far as others look."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)

    def __len__(self):
        return len(self.values)

    @property
    def iloc(self):
        return self.values

    def __getitem__(self, label):
        raise KeyError(label)  # labels are no places


class Frame:
    """What a data frame is."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)
        self.dtypes = [np.asarray(column).dtype for column in columns.values()]

    @property
    def shape(self):
        return len(self), len(self.columns)

    def __len__(self):
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name):
        return Column(self._columns[name])

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(column) for column in self._columns.values()], 1).astype(dtype)


FRAMES = [
    pytest.param(Frame, id="by protocol"),
    pytest.param(lambda columns: pytest.importorskip("pandas").DataFrame(columns, index=range(7, 10)), id="pandas"),
    pytest.param(lambda columns: pytest.importorskip("polars").DataFrame(columns), id="polars"),
]


@pytest.mark.parametrize("frame", FRAMES)
class TestFrames:
    def test_rows_in_a_loader(self, frame):
        first, second = DataLoader(frame(COLUMNS), batch_size=2)
        assert first["size"].tolist() == [1.5, 2.5]
        assert first["rooms"].dtype == gl.int64
        assert list(first["town"]) == ["a", "b"]
        assert second["rooms"].tolist() == [3]
        gl.manual_seed(0)
        shuffled = [row["rooms"].item() for row in DataLoader(frame(COLUMNS), shuffle=True, num_workers=1)]
        assert sorted(shuffled) == [1, 2, 3]

    def test_parts_of_it(self, frame):
        assert Subset(frame(COLUMNS), [2, 0])[0]["town"] == "c"
        assert [len(part) for part in random_split(frame(COLUMNS), [2, 1])] == [2, 1]
        assert ConcatDataset([frame(COLUMNS), frame(COLUMNS)])[4]["rooms"] == 2
        assert StackDataset(frame(COLUMNS), [7, 8, 9])[1][1] == 8
        assert StackDataset(x=frame(COLUMNS))[1]["x"]["size"] == 2.5

    def test_numbers_of_it(self, frame):
        numbers = frame({name: COLUMNS[name] for name in ("size", "rooms")})
        assert gl.tensor(numbers).tolist() == [[1.5, 1.0], [2.5, 2.0], [3.5, 3.0]]
        features, target = TensorDataset(numbers, numbers["rooms"])[1]
        assert features.tolist() == [2.5, 2.0]
        assert target.item() == 2
        assert next(iter(DataLoader(numbers["rooms"], batch_size=3))).tolist() == [1, 2, 3]

    def test_a_table(self, frame):
        numbers, categories, target = gl.data.TableDataset(frame(COLUMNS), target="size", fraction=0.34)[0]
        assert (numbers.shape, categories.shape, target.dtype) == ((1,), (1,), gl.float32)


def test_arrays():
    x, y = np.arange(6.0).reshape(3, 2), np.arange(3)
    dataset = TensorDataset(x, y)
    x[0, 0] = 9
    assert dataset[0][0].tolist() == [9, 1], "its memory is shared"
    batch = next(iter(DataLoader(dataset, batch_size=3)))
    assert [part.shape for part in batch] == [(3, 2), (3,)]
    structured = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", np.int64), ("b", np.float64)])
    assert next(iter(DataLoader(structured, batch_size=2)))["a"].tolist() == [1, 3]
    with pytest.raises(TypeError, match="expected tensors, arrays, data frames or columns, got list"):
        TensorDataset([1, 2])


class Stream:
    """As a stream of Hugging Face's: it can be iterated anew and has no length."""

    def __iter__(self):
        return iter([{"x": i, "text": str(i)} for i in range(5)])


def test_streams():
    loader = DataLoader(Stream(), batch_size=2)
    for _ in range(2):
        assert [batch["x"].tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="a stream"):
        DataLoader(Stream(), shuffle=True)
    with pytest.raises(TypeError, match="not generator; it can be gone through once only: make a list of it"):
        DataLoader(x for x in range(3))


def test_data_sets_of_hugging_face():
    found = pytest.importorskip("datasets").Dataset.from_dict({**COLUMNS, "pair": [[1, 2], [3, 4], [5, 6]]})
    batch = next(iter(DataLoader(found, batch_size=2)))
    assert batch["size"].tolist() == [1.5, 2.5]
    assert batch["town"] == ["a", "b"]
    assert next(iter(DataLoader(found.with_format("numpy"), batch_size=2)))["pair"].tolist() == [[1, 2], [3, 4]]
    assert gl.tensor(found["pair"]).shape == (3, 2)
    assert len(list(DataLoader(found.to_iterable_dataset(), batch_size=2))) == 2
    assert gl.data.TableDataset(found.remove_columns("pair"), target="size", fraction=0.34).table.rows == 3


class TestImages:
    @pytest.fixture
    def library(self):
        return pytest.importorskip("PIL.Image")

    @pytest.mark.parametrize(("mode", "shape", "dtype"), [
        ("L", (3, 4, 1), gl.uint8), ("RGB", (3, 4, 3), gl.uint8), ("RGBA", (3, 4, 4), gl.uint8), ("1", (3, 4, 1), gl.uint8),
        ("P", (3, 4, 1), gl.uint8), ("I;16", (3, 4, 1), gl.int32), ("F", (3, 4, 1), gl.float32),
    ])  # fmt: skip
    def test_images_of_one_size_stack(self, library, mode, shape, dtype):
        images, labels = default_collate([(library.new(mode, (4, 3), 1), 5)] * 2)
        assert images.shape == (2, *shape)
        assert images.dtype == dtype
        assert images.max() == (255 if mode == "1" else 1)
        assert labels.tolist() == [5, 5]
        image = library.new(mode, (4, 3))
        assert default_convert(image) is image

    def test_others_do_not(self, library):
        for other in (library.new("RGB", (5, 3)), library.new("L", (4, 3))):
            with pytest.raises(gl.spec.ShapeError, match=r"entry \['x'\]: images of several sizes or modes .* 4 x 3 RGB, .*Resize"):
                default_collate([{"x": library.new("RGB", (4, 3))}, {"x": other}])

    def test_an_image_of_a_tensor(self, library):
        x = (gl.rand(3, 5, 7) * 255).byte()
        for t in (x.permute(1, 2, 0), x.permute(1, 2, 0).contiguous(), x[0], x[0].T, x[0, ::2], x[0].flip(1), x[0].float(), x[0] > 99):
            image = library.fromarray(t)
            assert np.array_equal(np.asarray(image), t.numpy())


class TestArrayInterface:
    """NumPy reads tensors by it, too: shapes, strides and memory stay what they were."""

    @pytest.mark.parametrize("made", [
        lambda x: x, lambda x: x.T, lambda x: x[::2], lambda x: x[:, 1:3], lambda x: x.T[::2, 1:], lambda x: x[1, 2], lambda x: x[:0],
        lambda x: x.half(), lambda x: x > 3, lambda x: gl.from_numpy(x.numpy()[::-2]), lambda x: x[None].expand(2, 4, 6),
    ])  # fmt: skip
    def test_memory_is_shared_and_kept(self, made):
        x = gl.arange(24.0).reshape(4, 6)
        t = made(x)
        array = np.asarray(t)
        expected = t.numpy()
        assert np.array_equal(array, expected)
        assert (array.dtype, array.strides, array.flags.writeable) == (expected.dtype, expected.strides, expected.flags.writeable)
        assert not array.size or np.shares_memory(array, expected)
        copy = array.copy()
        del x, t, expected
        again = [gl.zeros(4, 6) for _ in range(50)]  # would take the memory, were it free
        assert np.array_equal(array, copy)
        assert again

    def test_memory_that_a_tensor_leaves_behind_stays(self):
        x = gl.arange(6.0)
        array = np.asarray(x)
        x.set_(gl.zeros(3))
        assert array.tolist() == [0, 1, 2, 3, 4, 5]

    def test_where_there_is_none_to_share(self):
        with pytest.raises(AttributeError, match="no memory that NumPy could share"):
            gl.ones(2).bfloat16().__array_interface__
        assert str(np.asarray(gl.ones(2).bfloat16()).dtype) == "bfloat16"
        with pytest.raises(RuntimeError, match="requires grad"):
            np.asarray(gl.ones(2, requires_grad=True))

    def test_bytes(self):
        x = gl.tensor([[1, 2], [3, 4]], dtype=gl.uint8)
        assert x.T.tobytes() == bytes([1, 3, 2, 4])
        with pytest.raises(RuntimeError, match="requires grad"):
            gl.ones(2, requires_grad=True).tobytes()
