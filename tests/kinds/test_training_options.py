"""What trains, option by option: lengths and numbers of loaders, joined data sets, averages, sparse gradients, refused groups."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import BatchSampler

F, nn = gl.nn.functional, gl.nn


def groups():
    leaves = [gl.zeros(1, requires_grad=True) for _ in range(2)]
    return gl.optim.SGD([{"params": leaves[:1]}, {"params": leaves[1:], "lr": 0.3}], lr=0.1, momentum=0.9)


# ---------------------------------------------------------------- what loads data


class Stream(gl.utils.data.IterableDataset):
    """Seven samples in order, and how many there are."""

    def __iter__(self):
        return iter(range(7))

    def __len__(self):
        return 7


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [None, 1, 2, 7, 9])
@pytest.mark.parametrize("way", ["list", "stream", "sampler", "batch_sampler"])
def test_the_length_of_a_loader_is_the_number_of_its_batches(way, size, drop_last):
    data, options = list(range(7)), {}
    if way == "batch_sampler":
        options = {"batch_sampler": BatchSampler(range(7), size or 3, drop_last)}
    else:
        options = {"batch_size": size, **({"drop_last": drop_last} if size else {}), **({"sampler": range(5)} if way == "sampler" else {})}
    loader = gl.utils.data.DataLoader(Stream() if way == "stream" else data, **options)
    assert len(loader) == len(list(loader))


def test_samples_draw_numbers_of_their_own():
    """What samples draw while they are made: no two share numbers, and in batches of another size they draw the same."""

    class Noise:
        def __len__(self):
            return 20

        def __getitem__(self, index):
            return gl.rand(64, dtype=gl.float64)

    gl.manual_seed(5)
    whole = gl.stack(list(gl.utils.data.DataLoader(Noise(), batch_size=None)))
    assert len(np.unique(whole.numpy())) == whole.numel()
    for batch in (1, 3, 20):
        gl.manual_seed(5)
        assert gl.equal(gl.cat(list(gl.utils.data.DataLoader(Noise(), batch_size=batch))), whole)


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("way", ["equal", "ema", "avg_fn"])
def test_buffers_of_averages(averaged, way):
    """They are averaged as parameters are, or the model's last."""
    swa = gl.optim.swa_utils
    net = nn.BatchNorm1d(2)
    options = {"ema": {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.5)}, "avg_fn": {"avg_fn": lambda a, c, n: a + (c - a) / 2}}.get(way, {})
    average = swa.AveragedModel(net, use_buffers=averaged, **options)
    for value in (1.0, 3.0, 8.0):
        net.running_mean.fill_(value)
        gl.nn.init.constant_(net.weight, value)
        average.update_parameters(net)
    expected = 4.0 if way == "equal" else 5.0  # (1 + 3 + 8) / 3; ((1 + 3) / 2 + 8) / 2
    assert average.module.weight.tolist() == pytest.approx([expected] * 2)
    assert average.module.running_mean.tolist() == pytest.approx([expected if averaged else 8.0] * 2)


@pytest.mark.parametrize("lengths", [(3,), (2, 3), (1, 0, 4, 2), (0, 2)])
def test_places_in_data_sets_joined(lengths):
    parts = [[100 * i + j for j in range(n)] for i, n in enumerate(lengths)]
    joined, whole = gl.utils.data.ConcatDataset(parts), [x for part in parts for x in part]
    assert [joined[i] for i in range(len(whole))] == whole
    assert [joined[i] for i in range(-len(whole), 0)] == whole


@pytest.mark.parametrize("epochs", [1, 5])
@pytest.mark.parametrize(("strategy", "share"), [("linear", lambda t: t), ("cos", lambda t: (1 - math.cos(math.pi * t)) / 2)])
def test_the_rate_goes_to_that_of_averaging(strategy, share, epochs):
    optimizer = groups()
    scheduler = gl.optim.swa_utils.SWALR(optimizer, [0.02, 0.5], anneal_epochs=epochs, anneal_strategy=strategy)
    for step in range(8):
        part = share(min(step / epochs, 1))
        expected = [0.1 + (0.02 - 0.1) * part, 0.3 + (0.5 - 0.3) * part]
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(expected, rel=1e-6), step
        optimizer.step()
        scheduler.step()


# ---------------------------------------------------------------- optimizers

SPARSE_WAYS = [
    {"momentum": m, "dampening": d, "nesterov": n, "maximize": x}
    for m, d, n, x in itertools.product((0, 0.9), (0, 0.3), (False, True), (False, True))
    if not n or (m and not d)
]


@pytest.mark.parametrize("options", SPARSE_WAYS, ids=lambda o: "-".join(k for k, v in o.items() if v) or "plain")
def test_sparse_gradients_step_as_dense_ones(options):
    """A row moves by its momentum, with a gradient or without, and rows that never had one stay."""
    ends = []
    for sparse in (False, True):
        table = gl.arange(12.0).reshape(6, 2).requires_grad_()
        optimizer = gl.optim.SGD([table], lr=0.1, **options)
        for rows in ([0, 2, 2], [2, 4], [0], [4, 1]):
            optimizer.zero_grad()
            (F.embedding(gl.tensor(rows), table, sparse=sparse) ** 2).sum().backward()
            assert table.grad.is_sparse == sparse
            optimizer.step()
        ends.append(table.detach().numpy())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-5)
    assert (ends[1][[3, 5]] == [[6, 7], [10, 11]]).all()


def optimizers():
    found = {n: k for n, k in vars(gl.optim).items() if isinstance(k, type) and issubclass(k, gl.optim.Optimizer)}
    return sorted(found.keys() - {"Optimizer", "LBFGS"})


@pytest.mark.parametrize("name", optimizers())
def test_a_group_that_is_refused_leaves_the_others(name):
    optimizer = getattr(gl.optim, name)([gl.ones(2, 2, requires_grad=True)], lr=0.1)
    before = [dict(g) for g in optimizer.param_groups]
    matrix = optimizer.param_groups[0]["params"][0]
    computed = (matrix * 2) @ matrix
    bad = [{}, {"params": [computed]}, {"params": [matrix]}, {"params": ["a"]}, {"params": {matrix}}, 3]
    for group in bad + ([{"params": [gl.ones(2, requires_grad=True)]}] if name == "Muon" else []):
        with pytest.raises((TypeError, ValueError)):
            optimizer.add_param_group(group)
        assert [list(g) for g in optimizer.param_groups] == [list(g) for g in before]
        assert optimizer.param_groups[0]["params"][0] is matrix and len(optimizer.param_groups) == 1
