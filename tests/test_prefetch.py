"""Batches that are copied to a GPU ahead of time, on the emulated one, whose streams find what lacks an event."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

import gradlab as gl
from gradlab.utils.data import DataLoader, Dataset, Prefetcher, TensorDataset

X = gl.arange(40.0).reshape(20, 2)


class Pair(NamedTuple):
    x: gl.Tensor
    name: str


class Pairs(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return {"pair": Pair(X[index], f"{index}")}


def loader_of(**options) -> DataLoader:
    return DataLoader(TensorDataset(X, gl.arange(20)), **{"batch_size": 4, **options})


def test_on_the_cpu_nothing_is_fetched_ahead():
    loader = loader_of()
    prefetcher = Prefetcher(loader, "cpu")
    assert (len(prefetcher), prefetcher.ahead, prefetcher.batch_size) == (5, 0, 4)
    for i, (x, numbers) in enumerate(prefetcher):
        assert gl.equal(x, X[4 * i : 4 * i + 4])
        assert numbers.tolist() == list(range(4 * i, 4 * i + 4))
        assert prefetcher.state_dict() == loader.state_dict()
    assert [x.tolist() for x in Prefetcher([gl.ones(1)], "cpu")] == [[1.0]]


@pytest.mark.usefixtures("cuda")
class TestOnTheGPU:
    @pytest.mark.parametrize("workers", [0, 1])
    def test_batches_are_the_same(self, workers):
        for _ in range(2):
            for i, (x, numbers) in enumerate(Prefetcher(loader_of(num_workers=workers), "cuda")):
                assert x.is_cuda
                assert gl.equal((x * 2).cpu(), X[4 * i : 4 * i + 4] * 2)
                assert numbers.sum().item() == sum(range(4 * i, 4 * i + 4))
        assert i == 4

    def test_whatever_a_batch_is(self):
        prefetcher = Prefetcher(DataLoader(Pairs(), 4), "cuda")
        assert prefetcher.ahead == 0, "what such a dataset draws would come in another order"
        first = next(iter(prefetcher))["pair"]
        assert isinstance(first, Pair)
        assert first.x.is_cuda
        assert first.name == ["0", "1", "2", "3"]
        assert next(iter(Prefetcher([(1, gl.ones(2))], "cuda")))[1].is_cuda

    def test_a_copy_does_not_wait_for_the_work_before_it(self, cuda):
        prefetcher = Prefetcher(loader_of(), "cuda")
        batches = iter(prefetcher)
        x, _ = next(batches)
        y = x.exp()
        y.sum().item()  # the work on the first batch is done, and the copy of the second was not needed for it
        if cuda.driver.name == "emulated" and cuda.driver.engine.schedule == "late":
            assert not prefetcher._stream.query()
        x, _ = next(batches)
        assert gl.equal(x.cpu(), X[4:8])

    def test_it_is_seen_in_a_profile(self, tmp_path):
        """Copies have a lane of their own, and each but the first begins before the work on the batch before it."""
        with gl.profiler.profile() as profile:
            for x, _ in Prefetcher(loader_of(), "cuda"):
                x.exp().sum().item()
        copies = [e for e in profile.events() if e.name == "to_device"]
        work = [e for e in profile.events() if e.name == "exp"]
        assert len(copies) == 10
        assert len(work) == 5
        lanes = {e.stream for e in copies}, {e.stream for e in work}
        assert len(lanes[0]) == len(lanes[1]) == 1
        assert lanes[0] != lanes[1]
        for i in range(4):
            assert copies[2 * i + 2].start < work[i].start, "the next batch is on its way"
        profile.export_chrome_trace(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        device = [e for e in events if e["pid"] == 1]
        assert {e["tid"] for e in device if e["name"] == "to_device"} == lanes[0]
        assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in device)

    @pytest.mark.parametrize("workers", [0, 1])
    def test_its_place_is_that_of_what_was_given(self, workers):
        generator = gl.Generator()
        generator.manual_seed(5)
        whole = [x.tolist() for x, _ in loader_of(shuffle=True, generator=generator)]
        generator.manual_seed(5)
        first = Prefetcher(loader_of(shuffle=True, generator=generator, num_workers=workers), "cuda")
        batches = iter(first)
        given = [next(batches)[0].tolist() for _ in range(2)]
        state = first.state_dict()
        assert state["batch"] == 2
        del batches
        assert first.state_dict()["batch"] == 2
        other = gl.Generator()
        second = Prefetcher(loader_of(shuffle=True, generator=other), "cuda")
        second.load_state_dict(state)
        assert given + [x.tolist() for x, _ in second] == whole
        assert second.state_dict()["batch"] == 0

    def test_training(self):
        losses = []
        for device in ("cpu", "cuda"):
            gl.manual_seed(0)
            model = gl.nn.Linear(2, 1).to(device)
            optimizer = gl.optim.SGD(model.parameters(), lr=1e-4)
            loader = DataLoader(TensorDataset(X / 10, X.sum(1, keepdim=True) / 10), 5, shuffle=True)
            run = gl.train.fit(model, loader, gl.nn.functional.mse_loss, optimizer, epochs=2, validation=loader)
            assert isinstance(run.loader, Prefetcher) == (device == "cuda")
            losses.append([line["validation_loss"] for line in run.history])
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.usefixtures("cuda")
def test_a_profile_sees_a_gpu_that_is_used_for_the_first_time_in_it(monkeypatch):
    """Its arrays become known within the block."""
    from gradlab import dispatch

    kind = type(gl.ones(1, device="cuda")._array)
    backend = dispatch._by_type.pop(kind)
    load = dispatch._by_device["cuda"]

    def first() -> object:
        dispatch.register(kind, backend)
        return load()

    monkeypatch.setitem(dispatch._by_device, "cuda", first)
    with gl.profiler.profile() as profile:
        gl.ones(2, device="cuda") * 3
    assert "mul" in {e.name for e in profile.events()}
    assert dispatch._by_type[kind] is backend
