"""Datasets, samplers and loaders say the type of their samples, as annotations and as base classes; samples of several kinds."""

import pytest

import gradlab as gl
from gradlab.utils import data


def test_classes_say_what_their_samples_are():
    classes = [c for c in vars(data).values() if isinstance(c, type) and issubclass(c, (data.Dataset, data.Sampler, data.DataLoader))]
    open_ones = {c.__name__ for c in classes if getattr(c, "__parameters__", ())}
    assert {"ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "Sampler", "StackDataset", "Subset"} <= open_ones
    assert len(classes) >= 14

    class Squares(data.Dataset[int]):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index**2

    loader: data.DataLoader[gl.Tensor] = data.DataLoader[gl.Tensor](Squares(), batch_size=3)
    assert [batch.tolist() for batch in loader] == [[0, 1, 4]]


@pytest.mark.parametrize(
    "batch", [[gl.ones(2), None], [(1, 2), 3], [[1], None], [(gl.ones(1), 2), (None, 3)], [{"a": gl.ones(1)}, {"a": 2}]]
)
def test_samples_of_different_kinds_are_named(batch):
    with pytest.raises(TypeError, match=r"default_collate: .*sample 0 of the batch is a .*, sample 1 a "):
        next(iter(data.DataLoader(batch, 2)))
