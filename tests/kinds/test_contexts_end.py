"""Every context of the library ends: what it has changed is as before, behind its body and behind an exception in it."""

import contextvars

import pytest

import gradlab as gl
from gradlab import autograd, nn
from gradlab.autograd.mode import Mode

CONTEXTS = {
    "no_grad": lambda: gl.no_grad(),
    "enable_grad": lambda: gl.enable_grad(),
    "set_grad_enabled": lambda: gl.set_grad_enabled(False),
    "inference_mode": lambda: gl.inference_mode(),
    "inference_mode off": lambda: gl.inference_mode(False),
    "autocast": lambda: gl.autocast("cpu", gl.bfloat16),
    "autocast off": lambda: gl.autocast("cpu", enabled=False),
    "device": lambda: gl.device("cpu"),
    "detect_anomaly": lambda: autograd.detect_anomaly(check_nan=False),
    "set_detect_anomaly": lambda: autograd.set_detect_anomaly(True),
    "saved_tensors_hooks": lambda: autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "save_on_cpu": lambda: autograd.graph.save_on_cpu(),
    "disable_saved_tensors_hooks": lambda: autograd.graph.disable_saved_tensors_hooks("not here"),
    "allow_mutation_on_saved_tensors": lambda: autograd.graph.allow_mutation_on_saved_tensors(),
    "parametrize.cached": lambda: nn.utils.parametrize.cached(),
    "sdpa_kernel": lambda: nn.attention.sdpa_kernel([nn.attention.SDPBackend.MATH]),
    "fork_rng": lambda: gl.random.fork_rng(),
}


def fields(value):
    """What a mode says; another one that says the same is as good."""
    return {k: getattr(value, k) for k in type(value).__slots__ if k[0] != "_"} if isinstance(value, Mode) else value


def state():
    """All context variables of the library that hold something, and what scripts can ask."""
    modes = {v.name: fields(v.get()) for v in contextvars.copy_context() if v.name.startswith("gradlab") and v.get()}
    asked = gl.is_grad_enabled(), gl.is_inference_mode_enabled(), gl.is_autocast_enabled("cpu"), gl.get_default_device()
    return modes, asked, gl.get_default_dtype(), gl.random.get_rng_state().tolist()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", CONTEXTS)
def test_all_is_as_before(name):
    with gl.no_grad(), gl.autocast("cpu", enabled=False):  # each variable has a value
        pass
    before = state()
    with CONTEXTS[name]():
        gl.ones(2) * 2
    assert state() == before
    with pytest.raises(KeyError), CONTEXTS[name]():
        raise KeyError(name)
    assert state() == before
    with CONTEXTS[name](), gl.no_grad():
        with CONTEXTS["enable_grad"]():
            pass
        assert not gl.is_grad_enabled()
    assert state() == before


def test_hooks_may_be_used_again_behind_a_part_without_them():
    refused = pytest.raises(RuntimeError, match="not here")
    with autograd.graph.disable_saved_tensors_hooks("not here"), refused, CONTEXTS["saved_tensors_hooks"]():
        pass
    with CONTEXTS["saved_tensors_hooks"]():
        pass


# ---------------------------------------------------------------- two at once


class Counted:
    """Hooks that count."""

    calls = 0

    def __call__(self, tensor):
        Counted.calls += 1
        return tensor


def hooked():
    w = gl.ones(2, requires_grad=True)
    before = Counted.calls
    (w * w).sum()
    return Counted.calls > before


def anomalous():
    x = gl.tensor([-1.0], requires_grad=True)
    try:
        x.sqrt().sum().backward()
    except RuntimeError as error:
        return "nan" in str(error).lower()
    return False


# What each does to what runs within it, and contexts that take the ground from under it.
SEEN = {
    "no_grad": (lambda: gl.no_grad(), lambda: not (gl.ones(2, requires_grad=True) * 2).requires_grad, ()),
    "inference_mode": (lambda: gl.inference_mode(), lambda: (gl.ones(2) * 2).is_inference(), ()),
    "autocast": (
        lambda: gl.autocast("cpu", gl.bfloat16), lambda: (gl.ones(2, 2) @ gl.ones(2, 2)).dtype == gl.bfloat16, ("device",),
    ),
    "saved_tensors_hooks": (lambda: autograd.graph.saved_tensors_hooks(Counted(), lambda t: t), hooked, ("no_grad", "inference_mode")),
    "detect_anomaly": (lambda: autograd.set_detect_anomaly(True), anomalous, ("no_grad", "inference_mode", "device")),
    "device": (lambda: gl.device("meta"), lambda: gl.ones(2).device.type == "meta", ()),
}  # fmt: skip


def test_autocast_leaves_tensors_without_values_alone():
    with gl.autocast("cpu", gl.bfloat16), gl.device("meta"):
        assert (gl.ones(2, 2) @ gl.ones(2, 2)).dtype == gl.float32


@pytest.mark.parametrize("outer", SEEN)
def test_two_of_them_act_together(outer):
    """However they are nested; none makes a short way of what the other needs to see."""
    for inner in SEEN.keys() - {outer}:
        for names in ((outer, inner), (inner, outer)):
            with SEEN[names[0]][0](), SEEN[names[1]][0]():
                for name in names:
                    _, shows, hidden = SEEN[name]
                    if not set(hidden) & {outer, inner}:
                        assert shows(), f"{name} in {names}"
