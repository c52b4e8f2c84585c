"""What rows get as parameters is Python's: never a tensor or an array where a caller gave one for a number.

Calls are kept by their parameters, and kernels are written for them. A tensor is equal to itself only, so its kernel is never found
again or, at the address of one that is gone, the wrong one is: `ConvTranspose2d(4, 6, 3, groups=gl.tensor(2))` wrote beside its result.
"""

import inspect

import numpy as np
import pytest

import gradlab as gl
from gradlab.op import Op

from kinds.bad.subjects import subjects
from kinds.calls import CALLS

FORMS = {"tensor": gl.tensor, "array": np.array}


def foreign(value):
    return isinstance(value, (gl.Tensor, np.ndarray)) or (isinstance(value, (tuple, list)) and any(map(foreign, value)))


def variants(make, extra):
    """Calls in which one number is given in another form."""
    args, options = make()
    for i, value in enumerate(args):
        if type(value) in (int, float):
            yield i, value
    for name, value in {**{k: v for k, v in extra.items() if k not in options}, **options}.items():
        if type(value) in (int, float):
            yield name, value


def found_in(cases, form, monkeypatch):
    found, tried, now = set(), 0, []
    infer = Op.infer

    def looked(self, *specs, **params):
        found.update((*now, self.name, name) for name, value in params.items() if foreign(value))
        return infer(self, *specs, **params)

    monkeypatch.setattr(Op, "infer", looked)
    for name, function, make, extra in cases:
        for where, value in variants(make, extra):
            args, options = make()
            if isinstance(where, int):
                args = (*args[:where], form(value), *args[where + 1 :])
            else:
                options = {**options, where: form(value)}
            now[:] = name, where
            try:
                function(*args, **options)
            except (TypeError, RuntimeError, ValueError, IndexError, NotImplementedError):
                continue
            tried += 1
    return found, tried


def of_functions():
    for call in CALLS:
        try:
            parameters = list(inspect.signature(call.function).parameters.items())
        except (TypeError, ValueError):
            continue
        given = len(call.arguments)
        yield repr(call), call.function, call.tensors, {name: p.default for i, (name, p) in enumerate(parameters) if i >= given}


def of_modules():
    for subject in subjects(["modules"]):

        def make(subject=subject):
            _, args, options = subject.make()
            return tuple(args), options

        function = subject.make()[0]
        yield subject.name, function, make, {name: n for name in subject.keywords for n in (2,)}


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("form", FORMS)
def test_of_functions(form, monkeypatch):
    found, tried = found_in(of_functions(), FORMS[form], monkeypatch)
    assert tried > 500
    assert not found


@pytest.mark.parametrize("form", FORMS)
def test_of_modules(form, monkeypatch):
    found, tried = found_in(of_modules(), FORMS[form], monkeypatch)
    assert tried > 300
    assert not found


def test_groups():
    """The one that ended the process."""
    x, groups = gl.randn(1, 4, 5, 5), gl.tensor(2)
    for _ in range(20):
        layer = gl.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=groups, bias=False)
        assert layer(x).shape == (1, 6, 10, 10)
