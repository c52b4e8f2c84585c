"""Samples of an operation's arguments, as arrays: in other dtypes, other memory layouts, empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import bind, wrap
from gradlab.dtype import FLOATING, as_numpy
from gradlab.library.custom import CustomOp
from gradlab.library.signature import bound
from gradlab.op import Op
from gradlab.spec import spec_of
from gradlab.testing.parity import host


class Case(NamedTuple):
    """One sample: NumPy arrays, numbers and None in the order of the row's inputs, and all parameters."""

    inputs: tuple[Any, ...]
    params: dict[str, Any]

    def __str__(self) -> str:
        parts = [f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else repr(x) for x in self.inputs]
        return ", ".join([*parts, *(f"{k}={v!r}" for k, v in self.params.items())])

    def arrays(self) -> list[Any]:
        """The inputs that are arrays."""
        return [x for x in self.inputs if isinstance(x, np.ndarray)]

    def cast(self, dtype: str) -> Case:
        """Floating point inputs in another dtype."""
        kind = as_numpy(dtype)
        return self._replace(inputs=tuple(x.astype(kind) if floating(x) else x for x in self.inputs))

    def each(self, change: Any) -> Case:
        """With each array changed."""
        return self._replace(inputs=tuple(change(x) if isinstance(x, np.ndarray) else x for x in self.inputs))


def floating(x: Any) -> bool:
    """Whether something is an array of floating point numbers."""
    return isinstance(x, np.ndarray) and x.dtype in FLOATING


class Subject(NamedTuple):
    """The operation under check."""

    name: str
    row: Op
    operation: CustomOp | None

    @classmethod
    def of(cls, op: Any) -> Subject:
        """Of a CustomOp or a row. TypeError otherwise."""
        if isinstance(op, CustomOp):
            return cls(op.name, op.row, op)
        if isinstance(op, Op):
            return cls(op.name, op, None)
        raise TypeError(f"opcheck: an operation made by gl.library.custom_op, or a row of gradlab.ops, not {type(op).__name__}")

    def __call__(self, inputs: Sequence[Any], params: dict[str, Any]) -> tuple[Any, ...]:
        """On tensors; always a tuple of tensors."""
        found = bind(self.row)(*inputs, **params)
        return tuple(found) if isinstance(found, tuple) else (found,)

    @property
    def differentiable(self) -> list[int]:
        """Which inputs have a gradient."""
        targets = {name for step in self.row.steps for name in step.targets}
        return [i for i, name in enumerate(self.row.inputs) if name in targets]

    def case(self, sample: Any) -> Case:
        """A sample as arrays. TypeError for what is no sample."""
        args, params = (sample, {}) if not isinstance(sample, dict) else ((), sample)
        if isinstance(sample, (tuple, list)) and len(sample) == 2 and isinstance(sample[0], (tuple, list)) and isinstance(sample[1], dict):
            args, params = sample
        if isinstance(args, (Differentiable, np.ndarray, int, float)):
            args = (args,)
        if not isinstance(args, (tuple, list)):
            raise TypeError(f"opcheck: a sample is a tuple of inputs, or (inputs, parameters), not {type(sample).__name__}")
        if self.operation is not None:
            inputs, params = bound(self.name, self.operation.signature, tuple(args), params)
        else:
            inputs = list(args)
        return Case(tuple(_array(x) for x in inputs), dict(params))


def _array(x: Any) -> Any:
    found = host(x._array) if isinstance(x, Differentiable) else x
    return found.astype(np.float64) if floating(found) else found


def tensors(case: Case, wanted: Sequence[int] = (), device: str = "cpu") -> list[Any]:
    """The inputs as tensors; those that are floating point and `wanted` require grad. Memory layouts are kept on the CPU."""
    made: list[Any] = []
    for i, x in enumerate(case.inputs):
        if isinstance(x, np.ndarray):
            t = wrap(x)
            t = t if device == "cpu" else t.to(device)
            made.append(t.requires_grad_() if i in wanted and floating(x) else t)
        else:
            made.append(x)
    return made


def numbers(t: Any) -> Any:
    """A tensor's values as a NumPy array."""
    return host(t._array)


def strided(case: Case) -> Case:
    """The same values, every second element of a wider array."""

    def change(x: Any) -> Any:
        if not x.ndim:
            return x
        wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2 + 1), x.dtype)
        wide[..., 1::2] = x
        return wide[..., 1::2]

    return case.each(change)


def transposed(case: Case) -> Case:
    """The same values with the dimensions in reverse order in memory."""
    return case.each(lambda x: np.ascontiguousarray(x.T).T)


def expanded(case: Case) -> Case:
    """Inputs whose first dimension is one row, repeated with stride 0."""
    return case.each(lambda x: np.broadcast_to(x[:1], x.shape) if x.ndim and x.shape[0] else x)


def empties(subject: Subject, case: Case) -> Iterator[Case]:
    """Forms of the sample with a dimension of size 0, as far as the rule takes them."""
    ranks = [x.ndim for x in case.arrays()]
    if not ranks or not max(ranks):
        return
    most = max(ranks)
    leading = case.each(lambda x: x[:0] if x.ndim == most else x)
    shrunk = {n: case.each(lambda x, n=n: x[tuple(slice(0) if size == n else slice(None) for size in x.shape)]) for n in _sizes(case)}
    for candidate in (leading, *shrunk.values()):
        if any(isinstance(x, (int, float, complex)) for x in candidate.inputs):
            continue
        try:
            subject.row.infer(*(x if x is None else spec_of(x) for x in candidate.inputs), **candidate.params)
        except (ValueError, IndexError, RuntimeError):
            continue
        yield candidate


def _sizes(case: Case) -> list[int]:
    return sorted({size for x in case.arrays() for size in x.shape if size})[:2]


def turned(case: Case) -> Case:
    """Other inputs of the same Specs: the same elements, reversed along the last dimension."""
    return case.each(lambda x: np.ascontiguousarray(x[..., ::-1]) if x.ndim else x)
