"""The default of every optional argument of public functions, classes and methods is written down in `defaults.txt`.

    PYTHONPATH=tests python -m kinds.test_defaults        # writes it; `-m torch` compares it with PyTorch's

A default that only moves a result a little (`eps`, `betas`) is seen by few tests, and by none that gives the argument.
"""

import inspect
from pathlib import Path

import pytest

import gradlab as gl

FILE = Path(__file__).with_name("defaults.txt")
ROOMS = (
    "", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data", "linalg", "special",
    "fft", "signal.windows", "distributions", "func", "autograd", "amp", "Tensor",
)  # fmt: skip
PLAIN = (bool, int, float, complex, str, tuple, type(None))
# Here another default than PyTorch's, which means the same.
OTHERWISE = {
    "compile.fullgraph", "meshgrid.indexing", "nn.CrossMapLRN2d.k", "distributions.Distribution.batch_shape",
    "distributions.Distribution.event_shape", "distributions.ExponentialFamily.batch_shape", "distributions.ExponentialFamily.event_shape",
}  # fmt: skip


def room(package, name):
    for part in filter(None, name.split(".")):
        package = getattr(package, part)
    return package


def defaults(package):
    """Each public name with its optional arguments' plain values."""
    found = {}
    for place in ROOMS:
        try:
            owner = room(package, place)
        except AttributeError:
            continue
        for word in sorted(w for w in dir(owner) if not w.startswith("_")):
            value = getattr(owner, word, None)
            if callable(value) and getattr(value, "__module__", None):
                found[f"{place}.{word}".strip(".")] = plain(value)
    return {name: given for name, given in found.items() if given}


def plain(value):
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not p.empty and isinstance(p.default, PLAIN)}


def lines():
    return [" ".join((name, *(f"{k}={v!r}".replace(" ", "") for k, v in given.items()))) for name, given in defaults(gl).items()]


def test_defaults_are_these():
    """What is written down is so. A new argument is written down when the file is made again; till then PyTorch's says what is right."""
    now = {line.partition(" ")[0]: set(line.split(" ")[1:]) for line in lines()}
    written = [line.partition(" ")[::2] for line in FILE.read_text(encoding="utf-8").splitlines()]
    wrong = {name: gone for name, values in written if (gone := set(values.split(" ")) - now.get(name, set()))}
    assert len(written) > 1200
    assert not wrong, f"on purpose: PYTHONPATH=tests python -m kinds.test_defaults: {wrong}"


@pytest.mark.torch
def test_pytorch_has_these_defaults():
    torch = pytest.importorskip("torch")
    theirs, wrong, seen = defaults(torch), [], 0
    for name, given in defaults(gl).items():
        for what, value in given.items():
            other = theirs.get(name, {}).get(what, value)
            seen += what in theirs.get(name, {})
            if repr(other) != repr(value) and f"{name}.{what}" not in OTHERWISE:
                wrong.append((name, what, value, other))
    assert seen > 1000
    assert not wrong, wrong


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
