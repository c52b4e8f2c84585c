"""Outside of every context nothing is on, and what a context changes turns the quick paths off, which do not look for it."""

import contextvars
import importlib
import sys

import pytest

import gradlab as gl
from gradlab.autograd.mode import Mode, current

ON = {  # what is not "nothing": values of every context variable outside of all contexts that is no None, False, "" or ()
    "gradlab_mode": lambda mode: mode is current() or mode.recording,
    "gradlab_autocast": lambda now: now[:2] == (False, False) and now[4] is True and gl.bfloat16 == now[2] and gl.float16 == now[3],
}


def variables():
    """All context variables of what a plain `import gradlab` loads, and of rooms that are loaded when they are first used."""
    for room in ("amp", "func", "nn.utils.parametrize", "onnx", "session", "utils.checkpoint", "autograd.function"):
        importlib.import_module(f"gradlab.{room}")
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "gradlab"]
    return {v.name: v for module in modules for v in list(vars(module).values()) if isinstance(v, contextvars.ContextVar)}


def test_nothing_is_on_outside():
    found = variables()
    assert len(found) > 8
    values = contextvars.Context().run(lambda: {name: variable.get() for name, variable in found.items()})
    for name, value in values.items():
        assert ON[name](value) if name in ON else not value, (name, value)


def test_the_first_mode():
    mode = contextvars.Context().run(current)
    assert mode.recording and mode.floor == 1 << 30
    for name in ("inference", "scope", "tracer", "autocast", "saved_hooks", "anomaly", "walking", "observer", "vmap", "special"):
        assert not getattr(mode, name)


@pytest.mark.parametrize("name", ["inference", "anomaly", "tracer", "autocast", "saved_hooks", "observer", "vmap"])
def test_what_makes_a_mode_special(name):
    on = Mode(**{name: True})
    assert on.special and Mode().replace(**{name: True}).special and getattr(on, name) is True
    assert not on.replace(**{name: False if name in ("inference", "anomaly") else None}).special


@pytest.mark.parametrize("name", ["recording", "scope", "walking", "floor"])
def test_what_does_not(name):
    value = {"recording": False, "floor": 3}.get(name, True)
    changed = Mode().replace(**{name: value})
    assert not changed.special and getattr(changed, name) == value
    others = [n for n in Mode.__slots__ if n != name and n[0] != "_"]
    assert [getattr(changed, n) for n in others] == [getattr(Mode(), n) for n in others]
