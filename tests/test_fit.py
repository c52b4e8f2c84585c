"""gradlab.train: the loop against one written by hand, stopped and gone on with anywhere, what it calls, and what it refuses."""

from __future__ import annotations

import copy
import os
import signal
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.advice import NonFiniteWarning
from gradlab.metrics import Accuracy
from gradlab.train import Bar, BestWeights, Callback, Checkpoint, Diverged, EarlyStop, TableOfEpochs, TensorBoard
from gradlab.utils.data import DataLoader, TensorDataset

gl_random = np.random.default_rng(0)
X = gl_random.normal(size=(50, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(np.int64)
LOSS = nn.functional.cross_entropy


def parts(batch_size=8, optimizer=None, dropout=0.2, shuffle=True, **options):
    """A model, its loader and the other arguments of a run, built anew and alike each time."""
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2))
    data = TensorDataset(gl.from_numpy(X), gl.from_numpy(Y))
    loader = DataLoader(data, batch_size, shuffle=shuffle, generator=gl.Generator().manual_seed(1))
    optimizer = (optimizer or (lambda p: gl.optim.AdamW(p, lr=1e-2)))(model.parameters())
    return {"model": model, "loader": loader, "loss": LOSS, "optimizer": optimizer, **options}


def fitted(epochs=3, **options):
    return gl.train.fit(**parts(**options), epochs=epochs)


def weights(run):
    return [p.detach().numpy() for p in run.trained.parameters()]


def same(run, other):
    return all(np.array_equal(a, b) for a, b in zip(weights(run), weights(other), strict=True))


def by_hand(epochs=3, accumulate=1, clip=None):
    given = parts()
    model, loader, optimizer = given["model"], given["loader"], given["optimizer"]
    history = []
    for _ in range(epochs):
        total = 0.0
        for i, (x, y) in enumerate(loader):
            loss = LOSS(model(x), y)
            (loss / accumulate).backward()
            if (i + 1) % accumulate == 0 or i + 1 == len(loader):
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item() * len(y)
        history.append(total / len(X))
    return history


@pytest.mark.parametrize("options", [{}, {"accumulate": 3}, {"clip": 0.1}, {"accumulate": 2, "clip": 0.1}], ids=str)
@pytest.mark.parametrize("compile", [False, True])
def test_it_is_the_loop_one_would_write(options, compile):
    found = [line["loss"] for line in fitted(**options, compile=compile).history]
    if compile:
        np.testing.assert_allclose(found, by_hand(**options), rtol=1e-5)
    else:
        assert found == by_hand(**options)


@pytest.mark.parametrize("amp", [gl.bfloat16, gl.float16, "bfloat16", "float16"])
def test_mixed_precision(amp):
    expected = fitted(dropout=0.0).history[-1]["loss"]
    run = fitted(dropout=0.0, amp=amp)
    assert run.history[-1]["loss"] == pytest.approx(expected, rel=0.02)
    assert (run.scaler is not None) == ("float16" in (str(amp), getattr(amp, "name", "")) and "bfloat16" not in str(amp))


class Note(Callback):
    """Writes down what is called, and can stop after so many batches or by a signal."""

    def __init__(self, stop_after=None, by=None):
        self.calls, self.stop_after, self.by, self.seen = [], stop_after, by, 0

    def begin(self, run):
        self.calls.append("begin")

    def batch_end(self, run):
        self.calls.append(run.batch)
        self.seen += 1
        if self.seen == self.stop_after:
            if self.by is None:
                run.stop = "enough"
            else:
                os.kill(os.getpid(), self.by)

    def epoch_end(self, run):
        self.calls.append("epoch")

    def end(self, run):
        self.calls.append("end")


def test_what_is_called():
    note, seen = Note(), []
    run = fitted(epochs=2, batch_size=20, callbacks=[note, lambda run: seen.append(run.history[-1]["epoch"])])
    assert note.calls == ["begin", 1, 2, 3, "epoch", 1, 2, 3, "epoch", "end"] and seen == [1.0, 2.0]
    assert (run.steps, run.epoch, run.stop, run.finished) == (6, 2, "", True)
    note = Note(stop_after=4)
    run = fitted(epochs=2, batch_size=20, callbacks=[note])
    assert note.calls == ["begin", 1, 2, 3, "epoch", 1, "end"] and (run.stop, run.epoch, run.batch) == ("enough", 1, 1)

    def broken(run):
        raise OSError("on purpose")

    note = Note()
    with pytest.raises(OSError, match="on purpose"):
        fitted(callbacks=[broken, note])
    assert note.calls[-1] == "end" and "epoch" not in note.calls


SETUPS = {
    "plain": {},
    "sgd, accumulated": {"optimizer": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9), "accumulate": 2},
    "float16": {"amp": gl.float16},
    "compiled": {"compile": True},
}


def more_parts(setup):
    given = parts(**SETUPS[setup])
    optimizer = given["optimizer"]
    given["scheduler"] = gl.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=99) if "accumulate" not in given else None
    given["scheduler_each"] = "step"
    given["average"] = gl.optim.swa_utils.AveragedModel(given["model"], multi_avg_fn=gl.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    given["validation"] = DataLoader(TensorDataset(gl.from_numpy(X), gl.from_numpy(Y)), 16)
    given["metrics"] = {"accuracy": Accuracy()}
    return given


@pytest.mark.parametrize("setup", SETUPS)
def test_going_on_is_exact_after_any_batch(setup, tmp_path):
    whole = gl.train.fit(**more_parts(setup), epochs=3)
    timed = ("seconds", "samples_per_second")
    for after in (1, 2, 6, 7, 8, 13, 20):
        stopped = gl.train.fit(**more_parts(setup), epochs=3, callbacks=[Note(stop_after=after)])
        assert stopped.whole and (stopped.steps == after or setup == "sgd, accumulated")
        gl.save(stopped.state_dict(), tmp_path / "state")
        gl.randn(after)  # whatever else happens in a process
        run = gl.train.fit(**more_parts(setup), epochs=3, resume=gl.load(tmp_path / "state"))
        assert same(run, whole), after
        for line, other in zip(run.history, whole.history, strict=True):
            assert {n: v for n, v in line.items() if n not in timed} == {n: v for n, v in other.items() if n not in timed}
    finished = gl.train.fit(**more_parts(setup), epochs=3, resume=whole.state_dict())
    assert finished.finished and len(finished.history) == 3
    longer = gl.train.fit(**parts(**SETUPS[setup]), epochs=4, resume=fitted(**SETUPS[setup]).state_dict())
    assert same(longer, fitted(epochs=4, **SETUPS[setup]))


@pytest.mark.parametrize("number", [n for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)])
def test_signals_save_and_stop(number, tmp_path):
    by = getattr(signal, number)
    own = signal.default_int_handler if number == "SIGINT" else signal.SIG_DFL
    before = signal.signal(by, own)  # a test run of nohup's has SIGHUP ignored
    try:
        run = fitted(callbacks=[Note(stop_after=9, by=by), Checkpoint(tmp_path, monitor=None)])
        assert "signal" in run.stop and (run.epoch, run.batch) == (1, 2) and signal.getsignal(by) == own
    finally:
        signal.signal(by, before)
    resumed = gl.train.fit(**parts(), epochs=3, resume=gl.train.read_checkpoint(tmp_path))
    assert same(resumed, fitted())


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no such signal")
def test_a_signal_that_is_ignored_stays_so(tmp_path):
    """As `nohup` starts a program."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = fitted(callbacks=[Note(stop_after=9, by=signal.SIGHUP), Checkpoint(tmp_path, monitor=None)])
        assert "signal" not in run.stop and run.finished and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_checkpoints_are_kept_and_the_best_is_known(tmp_path):
    given = more_parts("plain")
    run = gl.train.fit(**given, epochs=5, callbacks=[Checkpoint(tmp_path, every=3, keep=2, monitor="validation_accuracy")])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best.safetensors", "checkpoint-4-6.safetensors", "checkpoint-5-0.safetensors"]
    assert gl.train.read_checkpoint(tmp_path)["counts"]["history"] == run.history
    best = gl.load(tmp_path / "best.safetensors")
    again = more_parts("plain")["average"]
    again.load_state_dict(best)
    found = gl.train.evaluate(again, given["validation"], run.step, run.metrics)
    assert found["accuracy"] == max(line["validation_accuracy"] for line in run.history)
    newest = tmp_path / "checkpoint-5-0.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])  # cut short: the one before it serves
    with pytest.warns(gl.GradlabWarning, match="Going on from the one before, checkpoint-4-6"):
        assert gl.train.read_checkpoint(tmp_path)["counts"]["epoch"] == 4
    (tmp_path / "checkpoint-4-6.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"no checkpoint can be read: .*checkpoint-5-0.*checkpoint-4-6"):
        gl.train.read_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        gl.train.read_checkpoint(tmp_path.parent)


def test_what_is_best_is_remembered_by_a_run_that_goes_on(tmp_path):
    def wanders(run):
        run.history[-1]["validation_loss"] = [3.0, 1.0, 2.0, 2.0, 2.0, 2.0][run.epoch - 1]

    first = gl.train.fit(**more_parts("plain"), epochs=2, callbacks=[wanders, Checkpoint(tmp_path)])
    best = (tmp_path / "best.safetensors").read_bytes()
    stop = EarlyStop(3)
    run = gl.train.fit(**more_parts("plain"), epochs=9, resume=first.state_dict(), callbacks=[wanders, Checkpoint(tmp_path), stop])
    assert (tmp_path / "best.safetensors").read_bytes() == best
    assert run.epoch == 5 and run.stop == "validation_loss has not become better than 1 of epoch 2 for 3 epochs"


def test_best_weights_and_early_stop():
    losses = iter([0.5, 0.3, 0.4, 0.35, 0.6])
    kept = []

    def wanders(run):
        run.history[-1]["validation_loss"] = next(losses)
        kept.append(copy.deepcopy([p.detach().numpy() for p in run.model.parameters()]))

    run = fitted(epochs=9, callbacks=[wanders, BestWeights(), EarlyStop(2)])
    assert run.epoch == 4 and all(np.array_equal(a, b) for a, b in zip(weights(run), kept[1], strict=True))
    with pytest.raises(KeyError, match="no 'validation_loss' in the history, which has epoch, loss"):
        fitted(callbacks=[EarlyStop()])


def test_schedulers():
    given = parts()
    given["scheduler"] = gl.optim.lr_scheduler.StepLR(given["optimizer"], 1, 0.1)
    assert [line["learning_rate"] for line in gl.train.fit(**given, epochs=3).history] == pytest.approx([1e-2, 1e-3, 1e-4])
    given = parts(validation=DataLoader(TensorDataset(gl.from_numpy(X), gl.from_numpy(1 - Y)), 16))  # it only gets worse
    given["scheduler"] = gl.optim.lr_scheduler.ReduceLROnPlateau(given["optimizer"], patience=0)
    assert gl.train.fit(**given, epochs=4).history[-1]["learning_rate"] < 1e-2


def test_tables_bars_and_tensorboard(tmp_path, capsys):
    fitted(epochs=2, callbacks=[TableOfEpochs(tmp_path / "t.csv"), Bar()])
    names, *lines = (tmp_path / "t.csv").read_text().splitlines()
    assert names.startswith("epoch,loss,learning_rate") and len(lines) == 2
    assert capsys.readouterr().out.count("epoch ") == 2
    fitted(epochs=2, callbacks=[TensorBoard(tmp_path / "events")])
    assert next((tmp_path / "events").iterdir()).stat().st_size > 100


@pytest.mark.parametrize("compile", [False, True])
def test_a_loss_that_is_no_number_says_where_it_began(compile):
    class Roots(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 2)

        def forward(self, x):
            return (self.inner(x) - 100).sqrt()

    given = parts(compile=compile)
    given["model"] = Roots()
    given["optimizer"] = gl.optim.SGD(given["model"].parameters(), lr=0.1)
    weight = given["model"].inner.weight.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)  # a compiled step is whole before it can be looked at
        with pytest.raises(Diverged, match=r"the loss became nan in epoch 1, batch 1: it began in .*sqrt"):
            gl.train.fit(**given)
    assert np.array_equal(weight.numpy(), given["model"].inner.weight.detach().numpy())
    assert not any(module._forward_hooks for module in given["model"].modules())


def test_steps_and_batches_of_any_kind():
    data = [{"x": gl.from_numpy(X[i : i + 10]), "more": [gl.from_numpy(Y[i : i + 10])]} for i in range(0, 50, 10)]
    given = parts(dropout=0.0)
    given |= {"loader": data, "loss": None}
    run = gl.train.fit(**given, epochs=2, step=lambda model, batch: LOSS(model(batch["x"]), batch["more"][0]))
    plain = parts(dropout=0.0)
    plain["loader"] = [(b["x"], b["more"][0]) for b in data]
    assert same(run, gl.train.fit(**plain, epochs=2)) and run.history[-1]["samples_per_second"] > 0
    outputs = gl.train.predict(run.model, plain["loader"])
    assert outputs.shape == (50, 2) and np.array_equal(outputs.numpy(), gl.train.predict(run.model, [gl.from_numpy(X)]).numpy())
    assert run.model.training


def test_what_is_frozen_stays_so():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    model[1].eval()
    before, batches = [module.training for module in model.modules()], [(INPUTS, SUMS)]
    gl.train.predict(model, batches)
    gl.train.evaluate(model, batches, lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]))
    gl.train.find_learning_rate(model, batches, nn.functional.mse_loss, gl.optim.SGD(model.parameters(), lr=0.1), steps=10)
    assert [module.training for module in model.modules()] == before


def test_predictions_of_several_tensors():
    class Several(nn.Module):
        def forward(self, x):
            return {"sum": x.sum(1), "both": (x, [-x])}

    found = gl.train.predict(Several(), [(INPUTS[:20], SUMS[:20]), (INPUTS[20:], SUMS[20:])])
    assert gl.equal(found["both"][0], INPUTS) and gl.equal(found["both"][1][0], -INPUTS) and found["sum"].shape == (50,)
    with pytest.raises(TypeError, match="tensors with a row for each sample"):
        gl.train.predict(nn.Identity(), [(INPUTS.sum(), SUMS)])
    with pytest.raises(TypeError, match=r"a tensor is one batch.*pass \[tensor\]"):
        gl.train.predict(nn.Linear(6, 1), INPUTS)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="give a loss, or step="):
        gl.train.fit(**{**parts(), "loss": None})
    with pytest.raises(TypeError, match=r"a batch is .* not a Tensor"):
        gl.train.fit(**{**parts(), "loader": [gl.ones(2, 6)]})
    with pytest.raises(ValueError, match="accumulate=0"):
        fitted(accumulate=0)
    with pytest.raises(ValueError, match=r"the state has .* this run has"):
        fitted(resume=gl.train.fit(**more_parts("plain"), epochs=1).state_dict())
    with pytest.raises(TypeError, match="a callback is a Callback or a function"):
        fitted(callbacks=[3])
    with pytest.raises(ValueError, match="no batches to measure"):
        fitted(validation=[])
    with pytest.raises(ValueError, match="no batches"):
        gl.train.predict(nn.Linear(1, 1), [])
    with pytest.raises(TypeError, match="metrics need a step"):
        given = parts(validation=[gl.ones(2, 6)], metrics={"accuracy": Accuracy()})
        gl.train.fit(**{**given, "loader": [gl.ones(2, 6)], "loss": None}, step=lambda model, batch: model(batch).sum())


INPUTS = gl.from_numpy(X)
SUMS = INPUTS.sum(1, keepdim=True)


def to_sums(loader, loss=nn.functional.mse_loss, **options):
    """A straight line to the sums of the inputs."""
    gl.manual_seed(0)
    model = nn.Linear(6, 1)
    return gl.train.fit(model, loader, loss, gl.optim.SGD(model.parameters(), lr=0.1), **options)


@pytest.mark.parametrize("made", [
    lambda data: [], lambda data: DataLoader(data, 1000, drop_last=True), lambda data: iter([]), lambda data: iter([data[:]]),
], ids=["a list", "drop_last", "an iterator", "an iterator, once"])  # fmt: skip
def test_no_batches_are_no_success(made):
    """A loss of 0 would say that all was learned."""
    with pytest.raises(ValueError, match=r"the loader gave no batch in epoch [12]; (is it empty|an iterator gives its batches once)"):
        to_sums(made(TensorDataset(INPUTS, SUMS)), epochs=2)


def test_a_loader_that_has_no_length(tmp_path):
    class Stream(gl.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(INPUTS[i], SUMS[i]) for i in range(len(INPUTS))])

    losses = []
    for data in (Stream(), TensorDataset(INPUTS, SUMS)):
        callbacks = [Bar(lines=False), Checkpoint(tmp_path / type(data).__name__, monitor=None, every=2)]
        losses.append([line["loss"] for line in to_sums(DataLoader(data, 8), epochs=2, callbacks=callbacks).history])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(("loss", "message"), [
    (lambda outputs, target: 3.0, "a loss is a tensor of one number, not a float"),
    (nn.MSELoss(reduction="none"), r"a loss is a tensor of one number, not a tensor of shape \(50, 1\)"),
])  # fmt: skip
def test_what_is_no_loss(loss, message):
    with pytest.raises(TypeError, match=message):
        to_sums([(INPUTS, SUMS)], loss)


def test_where_a_loss_that_is_no_number_began():
    with pytest.raises(Diverged, match="epoch 1, batch 1: entry 1 of the batch holds such values already"):
        to_sums([(INPUTS, SUMS * float("nan"))])
    with pytest.raises(Diverged, match=r"it began in .*log"):  # in the loss, behind the whole model
        to_sums([(INPUTS, SUMS)], lambda outputs, target: (outputs * 0 - 1).log().mean())


def test_schedulers_and_callbacks_that_cannot_be():
    plateau = gl.optim.lr_scheduler.ReduceLROnPlateau(gl.optim.SGD([gl.zeros(1, requires_grad=True)], lr=0.1))
    with pytest.raises(ValueError, match="ReduceLROnPlateau looks at the validation loss"):
        to_sums([(INPUTS, SUMS)], scheduler=plateau, scheduler_each="step")
    with pytest.raises(TypeError, match="not the class Bar"):
        to_sums([(INPUTS, SUMS)], callbacks=[Bar])
