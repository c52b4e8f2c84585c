"""Warnings about training that runs but does not do what it seems to, and the reasons that errors give for a missing path."""

import sys
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab import advice, nn
from gradlab.autograd import graph_cuts
from gradlab.optim import advice as watching


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No cuts of other tests, and every search that is due by its step."""
    graph_cuts.forget()
    monkeypatch.setattr(watching, "PAUSE", 0.0)
    monkeypatch.setattr(watching, "perf_counter", lambda: 0.0)


def regression():
    gl.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), gl.randn(5, 3), gl.randn(5, 1)


def reason(run):
    with pytest.raises(RuntimeError) as error:
        run()
    return str(error.value)


# ---------------------------------------------------------------- why there is no path


def test_detach_is_named_with_its_line():
    model, x, y = regression()
    hidden = model(x).detach()  # the cut
    loss = nn.functional.mse_loss(hidden, y)
    text = reason(loss.backward)
    assert "because of detach() of a tensor of shape (5, 1)" in text and "hidden = model(x).detach()  # the cut" in text


@pytest.mark.parametrize("cut", ["item", "tolist"])
def test_a_loss_made_anew_of_numbers(cut):
    model, x, y = regression()
    loss = nn.functional.mse_loss(model(x), y)
    again = gl.tensor(getattr(loss, cut)())
    assert f"because of {cut}() of a tensor of shape ()" in reason(again.backward)


def test_a_copy_and_no_grad():
    model, x, y = regression()
    copy = gl.tensor(model(x))
    assert "gl.tensor(), which copies," in reason(copy.sum().backward)
    graph_cuts.forget()
    with gl.no_grad():  # the mode
        loss = nn.functional.mse_loss(model(x), y)
    text = reason(loss.backward)
    assert "no_grad" in text and "with gl.no_grad():  # the mode" in text

    @gl.no_grad()
    def evaluate():
        return model(x).sum()

    graph_cuts.forget()
    assert "evaluate()" in reason(lambda: evaluate().backward())


def test_several_cuts_are_listed_newest_first():
    w = gl.ones(2, requires_grad=True)
    first = w.detach()
    second = (w * 2).detach()
    text = reason((first * second).sum().backward)
    assert text.index("second = ") < text.index("first = ") and "one of these" in text


def test_a_backward_that_works_forgets():
    w = gl.ones(2, requires_grad=True)
    w.detach()
    (w * 2).sum().backward()
    assert "because" not in reason(gl.ones(2).sum().backward)


def test_what_was_read_for_a_log_is_no_cut():
    w = gl.ones(2, requires_grad=True)
    loss = (w * 2).sum()
    loss.backward()
    loss.item()
    assert "because" not in reason(gl.ones(2).sum().backward)


def test_an_unused_input_gives_only_cuts_that_concern_it():
    v, w, z = (gl.ones(2, requires_grad=True) for _ in range(3))
    off = (w * 3).detach()
    v.detach()
    with pytest.raises(RuntimeError) as error:
        gl.autograd.grad((off * z).sum(), w)
    assert "off = (w * 3).detach()" in str(error.value) and "v.detach()" not in str(error.value)


def test_integers_and_non_scalars():
    w = gl.ones(3, requires_grad=True)
    assert "int64" in reason(lambda: w.argmax().backward()) and "floating point" in reason(lambda: (w > 0).any().backward())
    wide = w * 2  # the line
    assert "wide = w * 2  # the line" in reason(wide.backward)


# ---------------------------------------------------------------- NaN


def test_anomaly_gives_the_forward_traceback():
    w = gl.tensor([0.0, 1.0], requires_grad=True)

    def forward():
        return (w * w).sqrt()  # not differentiable at 0

    with gl.autograd.detect_anomaly(), pytest.raises(gl.autograd.NonFiniteError) as error:
        (forward() * 0).sum().backward()
    notes = "\n".join(error.value.__notes__)
    assert "SqrtBackward0" in notes and "not differentiable at 0" in notes
    assert "traceback of the forward call" in notes and "in test_anomaly_gives_the_forward_traceback" in notes


def test_anomaly_in_backward_alone_still_knows_the_line():
    w = gl.tensor([0.0], requires_grad=True)
    loss = w.sqrt().sum()  # here
    with gl.autograd.detect_anomaly(), pytest.raises(gl.autograd.NonFiniteError) as error:
        loss.backward()
    notes = "\n".join(error.value.__notes__)
    assert "loss = w.sqrt().sum()  # here" in notes and "in the forward, too" in notes


def test_an_infinity_that_was_asked_for_is_no_anomaly():
    x = gl.randn(3, 3, requires_grad=True)
    with gl.autograd.detect_anomaly():
        x.masked_fill(gl.eye(3) > 0, float("-inf")).softmax(-1).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_a_nan_in_a_gradient_is_told_once():
    w = nn.Parameter(gl.zeros(2))
    opt = gl.optim.SGD([("weight", w)], lr=0.1)
    (w.sqrt() * 0).sum().backward()
    with pytest.warns(advice.NonFiniteWarning, match=r"gradient of weight has NaN.*detect_anomaly"):
        opt.step()
    opt.step()


# ---------------------------------------------------------------- training


def train(opt, loss, steps, zero=True, keep=None):
    for _ in range(steps):
        if zero:
            opt.zero_grad()
        value = loss()
        value.backward()
        opt.step()
        if keep is not None:
            keep(value)


def test_a_target_that_is_broadcast():
    with pytest.warns(advice.BroadcastWarning, match=r"\(5,\).*\(5, 1\)") as caught:
        nn.functional.mse_loss(gl.ones(5, 1), gl.ones(5))
    assert caught[0].filename == __file__


def test_parameters_without_a_gradient():
    model, x, y = regression()
    other = nn.Linear(2, 2)
    named = [*model.named_parameters(), ("other.weight", other.weight), ("other.bias", other.bias)]
    opt = gl.optim.SGD(named, lr=0.1)
    with pytest.warns(advice.NoGradientWarning, match=r"other\.weight, other\.bias in 3 steps.*gl\.explain") as caught:
        train(opt, lambda: nn.functional.mse_loss(model(x), y), 8)
    assert len(caught) == 1


def test_frozen_parameters_and_alternating_ones_are_meant():
    model, x, y = regression()
    model[0].requires_grad_(False)
    train(gl.optim.SGD(model.parameters(), lr=0.1), lambda: nn.functional.mse_loss(model(x), y), 5)
    a, b = gl.ones(1, requires_grad=True), gl.ones(1, requires_grad=True)
    opt = gl.optim.SGD([a, b], lr=0.1)
    for i in range(6):
        opt.zero_grad()
        (a if i % 2 else b).sum().backward()
        opt.step()


def test_gradients_that_are_never_zeroed():
    model, x, y = regression()
    opt = gl.optim.SGD(model.parameters(), lr=0.01)
    with pytest.warns(advice.StaleGradientWarning, match="not zeroed in 4 steps.*zero_grad") as caught:
        train(opt, lambda: nn.functional.mse_loss(model(x), y), 10, zero=False)
    assert len(caught) == 1


@pytest.mark.parametrize("way", ["optimizer", "zeros", "model", "by hand", "accumulated"])
def test_every_way_to_zero_is_seen(way):
    model, x, y = regression()
    opt = gl.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(8):
        for _ in range(2 if way == "accumulated" else 1):
            nn.functional.mse_loss(model(x), y).backward()
        opt.step()
        if way in ("optimizer", "accumulated"):
            opt.zero_grad()
        elif way == "zeros":
            opt.zero_grad(set_to_none=False)
        elif way == "model":
            model.zero_grad()
        else:
            for p in model.parameters():
                p.grad.zero_()


def test_losses_held_in_a_list():
    model, x, y = regression()
    losses = []
    with pytest.warns(advice.HeldGraphWarning, match=r"operations, .* MB.*held by losses, a list of 31.*loss\.item\(\)") as caught:
        train(gl.optim.SGD(model.parameters(), lr=0.01), lambda: nn.functional.mse_loss(model(x), y), 70, keep=losses.append)
    assert len(caught) == 1


def test_a_sum_of_losses_and_an_attribute():
    model, x, y = regression()
    opt = gl.optim.SGD(model.parameters(), lr=0.01)
    total = 0.0
    with pytest.warns(advice.HeldGraphWarning, match="held by total, a tensor"):
        for _ in range(64):
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            total = total + loss
    del total

    class Trainer:
        def __init__(self):
            self.history = []

        def fit(self):
            train(gl.optim.SGD(model.parameters(), lr=0.01), lambda: nn.functional.mse_loss(model(x), y), 65, keep=self.history.append)

    with pytest.warns(advice.HeldGraphWarning, match=r"held by self\.history, a list"):
        Trainer().fit()


def test_numbers_held_are_fine():
    model, x, y = regression()
    losses = []
    opt = gl.optim.Adam(model.parameters())
    train(opt, lambda: nn.functional.mse_loss(model(x), y), 130, keep=lambda loss: losses.append(loss.item()))
    train(opt, lambda: nn.functional.mse_loss(model(x), y), 40, keep=lambda loss: losses.append(loss.detach()))


def test_all_are_silenced_by_their_base():
    for kind in (advice.BroadcastWarning, advice.HeldGraphWarning, advice.NoGradientWarning, advice.NonFiniteWarning):
        assert issubclass(kind, gl.GradlabWarning) and issubclass(kind, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=gl.GradlabWarning)
        nn.functional.mse_loss(gl.ones(5, 1), gl.ones(5))


def test_the_search_for_graphs_takes_one_percent_of_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(watching, "perf_counter", lambda: now[0])
    monkeypatch.setattr(watching, "PAUSE", 0.5)
    watch = watching.Watch()
    assert watch.due == 0.5
    monkeypatch.setattr(watching.gc, "get_objects", lambda: now.__setitem__(0, now[0] + 0.02) or [])
    watching._held(64, watch)
    assert watch.due == pytest.approx(0.02 + 2.0)


def test_a_step_seldom_looks(monkeypatch):
    """What the warnings cost: one comparison a step; 25 looks in 1000 steps."""
    model, x, y = regression()
    looks = []
    monkeypatch.setattr(watching, "look", lambda optimizer, steps: looks.append(steps))
    opt = gl.optim.SGD(model.parameters(), lr=0.01)
    nn.functional.mse_loss(model(x), y).backward()
    for _ in range(1000):
        opt.step()
    assert len(looks) == len({*range(1, 5), *(2**i for i in range(10)), *range(64, 1001, 64)}) < 27
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event == "call" else None)
    try:
        opt.step()
    finally:
        sys.setprofile(None)
    assert not any("look" in str(c) for c in calls)
