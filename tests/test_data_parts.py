"""Datasets made of others: parts without samples, subclasses of parts, what is numbered by labels; parts for several processes."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset, random_split


def pairs():
    return TensorDataset(gl.arange(8).reshape(4, 2).float(), gl.arange(4))


def test_parts_without_samples():
    assert [len(p) for p in random_split(range(5), [0, 5, 0])] == [0, 5, 0]
    assert [len(p) for p in random_split(range(0), [0, 0])] == [0, 0]


def test_what_a_subset_makes_of_its_samples_is_in_batches_too():
    class Doubled(Subset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x * 2, y

    class Halved(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x / 2, y

    plain = next(iter(DataLoader(pairs(), batch_size=4)))[0]
    for data, factor in (
        (Doubled(pairs(), range(4)), 2), (Subset(Doubled(pairs(), range(4)), range(4)), 2),
        (Doubled(Subset(pairs(), range(4)), range(4)), 2),
        (Subset(Halved(*pairs().tensors), range(4)), 0.5), (Halved(*pairs().tensors), 0.5), (Subset(pairs(), range(4)), 1),
    ):  # fmt: skip
        assert next(iter(DataLoader(data, batch_size=4)))[0].tolist() == (plain * factor).tolist()


def test_a_series_is_read_by_place():
    class Series:  # as pandas': its indices are labels
        iloc, values = None, [5.0, 6.0, 7.0]

        def __len__(self):
            return 3

        def __getitem__(self, label):
            return self.values[{10: 0, 11: 1, 12: 2}[label]]

        def __array__(self, dtype=None, copy=None):
            return np.array(self.values, dtype)

    assert [b.tolist() for b in DataLoader(Series(), batch_size=2)] == [[5.0, 6.0], [7.0]]


def seen(count, replicas, state=None, **options):
    samplers = [DistributedSampler(range(count), replicas, rank, **options) for rank in range(replicas)]
    if state is not None:
        for sampler in samplers:
            sampler.load_state_dict(state)
    return [list(sampler) for sampler in samplers], samplers


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "replicas"), [(7, 3), (8, 3), (9, 3), (2, 5)])
def test_processes_share_samples(count, replicas, drop_last):
    parts, samplers = seen(count, replicas, shuffle=False, drop_last=drop_last)
    each = count // replicas if drop_last else -(-count // replicas)
    assert parts == [[(rank + i * replicas) % count for i in range(each)] for rank in range(replicas)]
    assert {len(s) for s in samplers} == {each}


def test_processes_go_on_in_an_epoch():
    for drop_last in (False, True):
        whole = seen(10, 1, seed=4, drop_last=drop_last)[0][0]
        sampler = DistributedSampler(range(10), 2, 0, seed=4)
        sampler.set_epoch(3)
        later = DistributedSampler(range(10), 1, 0, seed=4)
        later.set_epoch(3)
        order = list(later)
        assert order != whole and sorted(order) == sorted(whole) == list(range(10))
        assert order != seen(10, 1, seed=5)[0][0]
        rest, samplers = seen(10, 3, sampler.state_dict(seen=4), drop_last=drop_last)  # with another seed of their own
        assert [rest[i % 3][i // 3] for i in range(6)] == order[4:]
        assert [len(list(s)) for s in samplers] == [3 if drop_last else 4] * 3  # whole ones from there
    assert sampler.state_dict(seen=10)["seen"] == 10
    for wrong in (-1, 11):
        with pytest.raises(ValueError, match="samples"):
            sampler.state_dict(seen=wrong)
    with pytest.raises(ValueError, match="of 10 samples"):
        DistributedSampler(range(9), 2, 0).load_state_dict(sampler.state_dict())
