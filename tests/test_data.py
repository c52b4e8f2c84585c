"""Datasets, samplers, collating, and the DataLoader in one process."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    pad_collate,
    random_split,
)

Point = namedtuple("Point", ["x", "y"])


class Rows(Dataset):
    """Sample i is the number i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return float(i)


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def pairs(n=10):
    return TensorDataset(gl.arange(n * 2).reshape(n, 2).float(), gl.arange(n))


def listed(loader):
    return [b.tolist() if isinstance(b, gl.Tensor) else b[1].tolist() for b in loader]


# ---------------------------------------------------------------- datasets


def test_tensor_dataset():
    data = pairs(4)
    x, y = data[2]
    assert x.tolist() == [4, 5] and y.item() == 2 and len(data) == 4
    assert data[-1][1].item() == 3
    with pytest.raises(ValueError, match="Size mismatch"):
        TensorDataset(gl.zeros(3), gl.zeros(4))
    with pytest.raises(TypeError, match="use tensor"):
        TensorDataset([0.0] * 3)
    with pytest.raises(ValueError, match="0-d"):
        TensorDataset(gl.tensor(1.0))
    with pytest.raises(ValueError):
        TensorDataset()


def test_subset_concat_stack_chain():
    data = Rows(10)
    part = Subset(data, [5, 7])
    assert len(part) == 2 and part[1] == 7.0
    joined = data + part
    assert isinstance(joined, ConcatDataset) and len(joined) == 12 and joined[10] == 5.0 and joined[-1] == 7.0
    for wrong in (12, -13):
        with pytest.raises(IndexError):
            joined[wrong]
    assert StackDataset(data, Rows(10))[3] == (3.0, 3.0) and StackDataset(a=data)[3] == {"a": 3.0}
    with pytest.raises(ValueError, match="Size mismatch"):
        StackDataset(Rows(2), Rows(3))
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    with pytest.raises(TypeError):
        ChainDataset([data])
    with pytest.raises(TypeError):
        ConcatDataset([Stream(3)])


def test_random_split():
    gl.manual_seed(0)
    parts = random_split(Rows(10), [7, 3])
    assert [len(p) for p in parts] == [7, 3] and sorted(v for p in parts for v in (p[i] for i in range(len(p)))) == list(range(10))
    assert [len(p) for p in random_split(Rows(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    one, two = (random_split(Rows(10), [5, 5], gl.Generator().manual_seed(3))[0].indices for _ in range(2))
    assert one == two
    for wrong in ([7, 4], [-1, 11], [0.5, 0.6]):
        with pytest.raises((ValueError, TypeError)):
            random_split(Rows(10), wrong)


# ---------------------------------------------------------------- samplers


def test_samplers():
    gl.manual_seed(1)
    assert list(SequentialSampler(Rows(3))) == [0, 1, 2]
    sampler = RandomSampler(Rows(20))
    one, two = list(sampler), list(sampler)
    assert sorted(one) == sorted(two) == list(range(20)) and one != two and len(sampler) == 20
    many = RandomSampler(Rows(4), num_samples=10)
    assert len(list(many)) == 10 and sorted(list(many)[:4]) == [0, 1, 2, 3]
    assert set(RandomSampler(Rows(3), replacement=True, num_samples=50)) == {0, 1, 2}
    assert sorted(SubsetRandomSampler([3, 5, 7])) == [3, 5, 7]
    assert list(BatchSampler(SequentialSampler(Rows(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(SequentialSampler(Rows(5)), 2, True)) == [[0, 1], [2, 3]]
    assert list(RandomSampler(Rows(0))) == []


def test_seeded_orders_are_fixed():
    """The same on every machine: these numbers may never change."""
    generator = gl.Generator().manual_seed(7)
    order = list(RandomSampler(Rows(8), generator=generator))
    assert order == gl.randperm(8, generator=gl.Generator().manual_seed(7)).tolist()


class Many:
    """A dataset of that size, without the samples."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


DRAWS = {
    "replaced": lambda count, generator: RandomSampler(Many(10**12), True, count, generator),
    "orders": lambda count, generator: RandomSampler(Many(7), num_samples=count, generator=generator),
    "weighted": lambda count, generator: WeightedRandomSampler([1.0, 0.0, 2.0], count, generator=generator),
    "batches": lambda count, generator: BatchSampler(RandomSampler(Many(9), True, count, generator), 3, False),
}


@pytest.mark.parametrize("case", DRAWS)
def test_draws_are_made_when_they_are_asked_for(case):
    """Ten thousand million take no memory; the numbers are those of one draw at the beginning, whatever is drawn meanwhile."""
    make = DRAWS[case]
    huge = iter(make(10**10, None))
    assert len(make(10**10, None)) >= 10**9 and len([next(huge) for _ in range(5000)]) == 5000
    for count in (1, 5, 1023, 1024, 1025, 4100):
        runs = []
        for disturbed in (False, True):
            generator = gl.Generator().manual_seed(3)
            order, found = iter(make(count, generator)), []
            after = gl.rand(1, generator=generator).item()
            for item in order:
                found.append(item)
                if disturbed:
                    gl.rand(1, generator=generator)
            runs.append((found, after))
        assert runs[0] == runs[1]


def test_draws_are_those_of_one_call():
    def seeded():
        return gl.Generator().manual_seed(5)

    assert list(RandomSampler(Many(10), True, 3001, seeded())) == gl.randint(0, 10, (3001,), generator=seeded()).tolist()
    generator = seeded()
    orders = [*gl.randperm(7, generator=generator).tolist(), *gl.randperm(7, generator=generator).tolist()]
    assert list(RandomSampler(Many(7), num_samples=12, generator=seeded())) == orders[:12]
    with pytest.raises(TypeError, match="Generator"):
        iter(RandomSampler(Many(3), True, 2, generator=5))


def test_weighted_sampler():
    gl.manual_seed(2)
    drawn = list(WeightedRandomSampler([0.0, 1.0, 3.0, 0.0], 4000))
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == counts[3] == 0 and abs(counts[2] / 4000 - 0.75) < 0.03
    firsts = [next(iter(WeightedRandomSampler(gl.tensor([1.0, 3.0]), 2, replacement=False))) for _ in range(1000)]
    assert abs(np.mean(firsts) - 0.75) < 0.05
    assert sorted(WeightedRandomSampler([1.0, 2.0, 0.5], 3, replacement=False)) == [0, 1, 2]
    for weights, count, replacement in (([], 1, True), ([-1.0, 2.0], 1, True), ([0.0], 1, True), ([1.0, 0.0], 2, False), ([1.0], 0, True)):
        with pytest.raises(ValueError):
            WeightedRandomSampler(weights, count, replacement)


@pytest.mark.parametrize("make", [lambda: RandomSampler(Rows(3), replacement=1), lambda: RandomSampler(Rows(3), num_samples=-1),
                                  lambda: BatchSampler([], 0, False), lambda: BatchSampler([], 2, 1)])  # fmt: skip
def test_wrong_sampler_options(make):
    with pytest.raises((ValueError, TypeError)):
        make()


# ---------------------------------------------------------------- collating


def test_collate():
    x = default_collate([gl.tensor([1.0, 2.0]), gl.tensor([3.0, 4.0])])
    assert x.tolist() == [[1, 2], [3, 4]] and x.dtype == gl.float32
    assert default_collate([1.5, 2.5]).dtype == gl.float64
    assert default_collate([1, 2]).dtype == gl.int64 and default_collate([True, False]).dtype == gl.bool
    assert default_collate([np.float32(1), np.float32(2)]).dtype == gl.float32
    assert default_collate([np.ones((2, 3), np.float32)] * 4).shape == (4, 2, 3)
    assert default_collate(["a", "b"]) == ["a", "b"]
    found = default_collate([{"x": 1, "s": "a"}, {"x": 2, "s": "b"}])
    assert found["x"].tolist() == [1, 2] and found["s"] == ["a", "b"]
    ordered = default_collate([OrderedDict(a=1), OrderedDict(a=2)])
    assert isinstance(ordered, OrderedDict)
    point = default_collate([Point(1, gl.zeros(2)), Point(2, gl.ones(2))])
    assert isinstance(point, Point) and point.x.tolist() == [1, 2] and point.y.shape == (2, 2)
    a, b = default_collate([(1, [2.0, 3.0]), (4, [5.0, 6.0])])
    assert a.tolist() == [1, 4] and [v.tolist() for v in b] == [[2, 5], [3, 6]]


def test_collate_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"entry \[0\].*sample 0 of the batch has \(2,\), sample 1 has \(3,\).*pad_collate"):
        default_collate([(gl.zeros(2), 1), (gl.zeros(3), 1)])
    with pytest.raises(RuntimeError, match=r"equal size.*pad_collate"):
        default_collate([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"NoneType \(entry \['a'\]\)"):
        default_collate([{"a": None}])


def test_pad_collate():
    batch = [(gl.tensor([1, 2]), 0), (gl.tensor([3]), 1)]
    x, y = pad_collate(batch)
    assert x.tolist() == [[1, 2], [3, 0]] and y.tolist() == [0, 1]
    (x, _), lengths = pad_collate(batch, padding_value=-1, return_lengths=True)
    assert x.tolist() == [[1, 2], [3, -1]] and lengths.tolist() == [2, 1]
    found = pad_collate([{"a": np.ones((1, 2), np.float32)}, {"a": np.ones((3, 2), np.float32)}])
    assert found["a"].shape == (2, 3, 2)
    with pytest.raises(ValueError):
        pad_collate([gl.zeros(1, 2), gl.zeros(1, 3)])


# ---------------------------------------------------------------- the loader


def test_batches():
    assert listed(DataLoader(Rows(5), 2)) == [[0, 1], [2, 3], [4]]
    assert listed(DataLoader(Rows(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert len(DataLoader(Rows(5), 2)) == 3 and len(DataLoader(Rows(5), 2, drop_last=True)) == 2
    assert listed(DataLoader(Rows(2), 8, drop_last=True)) == [] and listed(DataLoader(Rows(0), 2)) == []
    assert list(DataLoader(Rows(3), None)) == [0.0, 1.0, 2.0]
    assert listed(DataLoader(Rows(4), sampler=[3, 1], batch_size=2)) == [[3, 1]]
    assert listed(DataLoader(Rows(4), batch_sampler=[[3], [1, 2]])) == [[3], [1, 2]]
    assert listed(DataLoader(Rows(4), 2, collate_fn=lambda s: gl.tensor(s) * 2)) == [[0, 2], [4, 6]]
    assert listed(DataLoader([5, 6, 7], 2)) == [[5, 6], [7]]


def test_streams():
    assert listed(DataLoader(Stream(5), 2)) == [[0, 1], [2, 3], [4]]
    assert listed(DataLoader(Stream(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(3), None)) == [0, 1, 2]
    with pytest.raises(TypeError):
        len(DataLoader(Stream(3)))


def test_tensor_dataset_batches_are_taken_at_once():
    class Slow(TensorDataset):
        def __getitem__(self, i):
            return tuple(t * 10 for t in super().__getitem__(i))

    fast, slow = (next(iter(DataLoader(kind(*pairs().tensors), 3))) for kind in (TensorDataset, Slow))
    assert fast[1].tolist() == [0, 1, 2] and slow[1].tolist() == [0, 10, 20]
    assert isinstance(fast, list) and fast[0].dtype == gl.float32 and fast[0].shape == (3, 2)
    assert listed(DataLoader(Subset(pairs(), [4, 2, 0]), 2)) == [[4, 2], [0]]
    batch = next(iter(DataLoader(pairs(), 2)))
    batch[0].fill_(9)
    assert pairs()[0][0].tolist() == [0, 1]  # a batch is a copy


def test_shuffle_is_seeded():
    def epochs(seed):
        gl.manual_seed(seed)
        loader = DataLoader(Rows(30), 4, shuffle=True)
        return [[v for batch in listed(loader) for v in batch] for _ in range(2)]

    one = epochs(1)
    assert one == epochs(1) != epochs(2)
    assert one[0] != one[1] and sorted(one[0]) == sorted(one[1]) == list(range(30))
    generators = [gl.Generator().manual_seed(5) for _ in range(2)]
    assert listed(DataLoader(Rows(30), 4, True, generator=generators[0])) == listed(DataLoader(pairs(30), 4, True, generator=generators[1]))


def test_own_sampler():
    class Backwards(Sampler):
        def __iter__(self):
            return iter([2, 1, 0])

        def __len__(self):
            return 3

    assert listed(DataLoader(Rows(3), 2, sampler=Backwards())) == [[2, 1], [0]]


def test_a_failing_sample_is_named():
    class Broken(Rows):
        def __getitem__(self, i):
            if i == 3:
                raise KeyError("gone")
            return super().__getitem__(i)

    loader = iter(DataLoader(Broken(6), 2))
    next(loader)
    with pytest.raises(KeyError) as caught:
        next(loader)
    assert caught.value.__notes__ == ["while loading sample 3"]
    assert next(loader).tolist() == [4, 5]
    with pytest.raises(KeyError) as caught:
        next(iter(DataLoader({"a": 1})))
    assert "of a dict: samples are asked for by number" in caught.value.__notes__[0]
    assert [part.tolist() for part in DataLoader({0: 1, 1: 2})] == [[1], [2]]


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("generator", [True, False])
@pytest.mark.parametrize("done", [0, 1, 3, 5])
def test_resume_in_the_middle_of_an_epoch(generator, done):
    def made():
        return DataLoader(Rows(20), 4, shuffle=True, generator=gl.Generator().manual_seed(3) if generator else None)

    gl.manual_seed(11)
    loader = made()
    list(loader)
    batches = iter(loader)
    for _ in range(done):
        next(batches)
    noise = gl.rand(2).tolist()  # the default generator is used for other things meanwhile
    saved, random = loader.state_dict(), gl.get_rng_state()
    wanted = [b.tolist() for b in batches], gl.rand(2).tolist(), listed(loader)
    gl.manual_seed(99)
    gl.set_rng_state(random)
    twin = made()
    twin.load_state_dict(saved)
    assert (listed(twin), gl.rand(2).tolist(), listed(twin)) == wanted
    assert noise and len(wanted[0]) == 5 - done


def test_resume_between_epochs():
    loader = DataLoader(Rows(20), 4, shuffle=True, generator=gl.Generator().manual_seed(3))
    list(loader)
    saved = loader.state_dict()
    wanted = listed(loader)
    twin = DataLoader(Rows(20), 4, shuffle=True, generator=gl.Generator())
    twin.load_state_dict(saved)
    assert saved["batch"] == 0 and twin.state_dict()["batch"] == 0 and listed(twin) == wanted


def test_resume_a_stream():
    loader = DataLoader(Stream(7), 2)
    batches = iter(loader)
    next(batches)
    twin = DataLoader(Stream(7), 2)
    twin.load_state_dict(loader.state_dict())
    assert listed(twin) == [[2, 3], [4, 5], [6]]


def test_state_of_another_kind():
    with pytest.raises(ValueError, match="batch number"):
        DataLoader(Rows(3)).load_state_dict({"batch": -1})


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0}, {"batch_size": 2.5}, {"batch_size": True}, {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2},
        {"persistent_workers": True}, {"shuffle": True, "sampler": [0]}, {"batch_sampler": [[0]], "batch_size": 2}, {"shuffle": "yes"},
        {"batch_sampler": [[0]], "shuffle": True}, {"batch_size": None, "drop_last": True}, {"num_workers": 1, "prefetch_factor": 0},
        {"generator": 3},
    ],
)  # fmt: skip
def test_wrong_options(options):
    with pytest.raises((ValueError, TypeError)):
        DataLoader(Rows(3), **options)


def test_wrong_options_for_streams():
    for options in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        with pytest.raises(ValueError, match="stream"):
            DataLoader(Stream(3), **options)
    with pytest.raises(TypeError):
        DataLoader(3)
