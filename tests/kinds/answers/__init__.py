"""Calls with optional arguments, and PyTorch's answers: two sums of each result and gradient, written down in `answers.npz`.

    python -m tests.kinds.answers          with PyTorch: writes the file anew
    python -m tests.kinds.answers WORD     shows what both answer to the calls that have the word in their text

A call is a line of a file `*.txt` here (and those below it that begin with spaces): a text of Python that finds the engine as `gl`, its `F`
and `nn`, and the inputs by their names (`INPUTS`); it is an expression, or statements that set `out`. Floating inputs require grad,
but `D` and `holes`; none do where PyTorch has no gradient ("no grads"). `filled(module)` is the module in float64 with numbers that differ.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

WRITTEN = Path(__file__).parent.parent / "answers.npz"
WITHOUT = "no grads:"
BOUNDS = {"float64": 1e-6, "float32": 1e-4, "bfloat16": 0.04, "int64": 1e-5}
_RNG = np.random.default_rng(5)


def _normal(*shape: int) -> np.ndarray:
    return np.round(_RNG.normal(size=shape), 3)


INPUTS = {
    "x": _normal(3, 4), "y": _normal(3, 4), "z": _normal(3, 4), "p": np.abs(_normal(3, 4)) + 0.125, "u": _RNG.random((3, 4)).round(3),
    "v": _normal(5), "w": _normal(5), "k": _normal(4),
    "D": np.abs(_normal(3, 4)) + 0.25, "r": _normal(3), "s": _normal(4, 4), "t": _normal(2, 3, 4), "q": _normal(2, 4, 3),
    "line": _normal(2, 4, 9), "img": _normal(2, 4, 5, 7), "vol": _normal(1, 2, 4, 5, 3), "one": _normal(1),
    "holes": np.array([[1.5, np.nan, -2.0, 0.25], [np.nan, np.nan, np.nan, np.nan], [3.0, -1.0, np.nan, 0.5]]),
    "ties": np.array([[1.0, 2.0, 2.0, 0.0], [-1.0, -1.0, -3.0, -1.0], [0.0, -0.0, 5.0, 5.0]]),
    "steps": np.array([-2.5, -0.5, 0.0, 0.5, 1.5, 2.5]), "grid": _RNG.uniform(-1.2, 1.2, (2, 3, 4, 2)).round(3),
    "cells": _RNG.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).round(3), "h": np.round(_normal(3, 4)).astype(np.float32),
    "i": np.array([[2, 0, 1, 2], [1, 1, 0, 2], [0, 2, 2, 1]]), "j": np.array([3, -2, 0, 7, -5]), "n": np.array([6, 4, 9, -3, 5]),
    "c": np.array([2, 0, 3]), "b": np.array([[True, False, True, True], [False, False, True, False], [True, True, False, False]]),
    "at": np.array([2, 0, 2]), "z1": (_normal(3, 4) + 1j * _normal(3, 4)),
    # Numbers at which formulas change: those of the calls' own parameters among them; and without what is not finite.
    "odd": np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, np.inf, -np.inf, np.nan]),
    "even": np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0]),
    "spoilt": np.array([[1.5, -0.25, 0.75, -2.0], [np.nan, np.inf, -np.inf, 1.0], [0.5, 3.0, -1.0, 0.25]]),
}  # fmt: skip


class Answer(NamedTuple):
    """A word on each tensor, two sums of each, and how large each is."""

    words: str
    sums: np.ndarray
    sizes: np.ndarray


def texts() -> list[str]:
    """All calls."""
    whole = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.glob("*.txt")))
    return [text.replace("\n    ", "\n") for text in re.split(r"\n(?! )", whole.strip())]


def sums(value: Any) -> tuple[str, list[float], float]:
    """What a tensor or number is, two sums of its elements, each with a factor of its own, and how large they are; NaN and infinities count
    as numbers of their own."""
    value = value.detach() if hasattr(value, "detach") else value
    if hasattr(value, "resolve_conj"):  # PyTorch's
        value = value.resolve_conj().resolve_neg()
    shape = list(getattr(value, "shape", ()))
    dtype = str(value.dtype).rpartition(".")[2] if hasattr(value, "dtype") else np.asarray(value).dtype
    if dtype == "bfloat16":
        value = value.float()
    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    values = np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array
    values = np.nan_to_num(values.astype(np.float64).ravel(), nan=77.7, posinf=1e3, neginf=-2e3)
    place = np.arange(values.size)
    factors = np.cos(1.0 + 0.7 * place), np.cos(place * place * 0.31)
    return f"{dtype}{shape}", [float((values * f).sum()) for f in factors], float(np.abs(values).sum())


def _filled(engine: Any, module: Any) -> Any:
    module = module.double()
    state = [*module.parameters(), *[b for b in module.buffers() if b.is_floating_point()]]
    with engine.no_grad():
        for number, p in enumerate(state):
            values = 0.4 * np.cos(0.9 * np.arange(p.numel()) + number).reshape(tuple(p.shape))
            p.copy_(engine.tensor(np.abs(values) + 0.2 if number >= len(list(module.parameters())) else values))
    return module


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [x for v in value.values() for x in _flat(v)]
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in _flat(v)]
    return [value]


def given(name: str, dtype: str) -> np.ndarray:
    """An input, its floating point numbers as float32 (of half types: that are exact in them) or, threefold, as integers."""
    value = INPUTS[name]
    if value.dtype != np.float64 or dtype == "float64":
        return value
    if dtype == "int64":
        return np.round(3 * np.nan_to_num(value)).astype(np.int64)
    return value.astype(np.float32) if dtype == "float32" else np.round(value * 64).astype(np.float32) / np.float32(64)


def called(engine: Any, text: str, grads: bool = True, dtype: str = "float64") -> tuple[Any, list[Any]]:
    """What an engine returns for a call with inputs of a type, and the leaves that may have gradients then."""
    names = [name for name in INPUTS if re.search(rf"\b{name}\b", text)]
    inputs = {name: engine.tensor(given(name, dtype)) for name in names}
    if dtype == "bfloat16":
        inputs = {name: x.to(engine.bfloat16) if x.dtype == engine.float32 else x for name, x in inputs.items()}
        text = text.replace("gl.float64", "gl.bfloat16").replace(".double()", ".bfloat16()")
    for name, x in inputs.items():
        if grads and name not in ("D", "holes") and (x.is_floating_point() or x.is_complex()):
            x.requires_grad_()
    modules: list[Any] = []

    def filled(module: Any) -> Any:
        modules.append(_filled(engine, module))
        return modules[-1]

    room = {"gl": engine, "F": engine.nn.functional, "nn": engine.nn, "np": np, "filled": filled, **inputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if re.search(r"^out =|; out =", text, re.MULTILINE):
            exec(text, room)
            found = room["out"]
        else:
            found = eval(text, room)
    return found, [*inputs.values(), *[p for m in modules for p in m.parameters()]]


def answer(engine: Any, text: str, grads: bool = True, dtype: str = "float64") -> Answer:
    """What an engine answers to a call: a word on each tensor, and the sums."""
    found, leaves = called(engine, text, grads, dtype)
    results = _flat(found)
    total: Any = 0
    for number, result in enumerate(results):
        if hasattr(result, "requires_grad") and result.requires_grad:
            result = engine.view_as_real(result.resolve_conj()) if result.is_complex() else result
            factor = np.cos(np.arange(result.numel()) + number).reshape(tuple(result.shape))
            total = total + (result.double() * engine.tensor(factor)).sum()
    if hasattr(total, "backward") and total.requires_grad:
        total.backward()
    slopes = [x.grad for x in leaves if x.is_leaf and getattr(x, "grad", None) is not None]
    told = [sums(value) for value in (*results, *slopes)]
    words = [*([] if grads else [WITHOUT]), *[said for said, _, _ in told]]
    return Answer(" ".join(words), np.array([n for _, numbers, _ in told for n in numbers]), np.array([size for *_, size in told]))


def key(text: str, dtype: str) -> str:
    """What an answer is written under."""
    return text if dtype == "float64" else f"{dtype}: {text}"


def read() -> dict[str, Answer]:
    """The written answers, by `key`."""
    with np.load(WRITTEN) as file:
        parts = np.split(file["sums"], np.cumsum(file["counts"])[:-1])
        words = file["words"].tobytes().decode().split("\0")
        keys = file["keys"].tobytes().decode().split("\0")
        return {k: Answer(w, part, np.zeros(0)) for k, w, part in zip(keys, words, parts, strict=True)}


def write(found: dict[str, Answer]) -> None:
    """Writes them."""
    keys, words = ("\0".join(part).encode() for part in (found, [a.words for a in found.values()]))
    np.savez_compressed(
        WRITTEN, keys=np.frombuffer(keys, np.uint8), words=np.frombuffer(words, np.uint8),
        counts=np.array([len(a.sums) for a in found.values()]), sums=np.concatenate([a.sums for a in found.values()]),
    )  # fmt: skip


def differing(found: Answer, written: Answer, dtype: str = "float64") -> list[int]:
    """Which of the results and gradients differ."""
    far = np.abs(found.sums - written.sums) > BOUNDS[dtype] * (np.repeat(found.sizes, 2) + 0.1)
    return sorted({int(i) // 2 for i in np.flatnonzero(far)})


def agree(found: Answer, written: Answer, dtype: str = "float64") -> bool:
    """Whether two answers are the same: types, shapes and sums."""
    return found.words == written.words and not differing(found, written, dtype)
