"""What a row's rule refuses is refused by whatever computes it, and what is computed has the shape and dtype that the rule promises.

Eager calls do not ask the rule first: a NumPy function that takes more than the rule does would give a number where an error belongs.
Every sample of every row is tried with inputs of other shapes and with other sizes among its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradlab as gl
from gradlab import ops
from gradlab.autograd.record import bind
from gradlab.spec import Spec, spec_of

from samples import SAMPLES
from samples.base import Sample

ROWS = [name for name, row in ops.ROWS.items() if not row.dynamic and SAMPLES.get(name)]


def other_shapes(x: np.ndarray) -> Iterator[np.ndarray]:
    """An array with a dimension more or less, or with one size more or less."""
    yield x[None]
    yield x[..., None]
    yield x.reshape(-1)
    if x.ndim and x.shape[-1]:
        yield x[..., 0]
    for d in range(x.ndim if x.size else 0):
        yield np.concatenate([x, x[(slice(None),) * d + (slice(0, 1),)]], d)
        if x.shape[d] > 1:
            yield x[(slice(None),) * d + (slice(1, None),)]
    if x.ndim > 1:
        yield x.swapaxes(0, -1)


def other_numbers(value: Any) -> Iterator[Any]:
    """A parameter with one number in it changed; none below 0, which public functions have made a dimension of."""
    if type(value) is int and value >= 0:
        yield from (value + 1, max(value - 1, 0), 97)
    if isinstance(value, tuple):
        yield value[:-1]
        yield (*value, *value[-1:])
        for i, part in enumerate(value):
            for other in other_numbers(part):
                yield (*value[:i], other, *value[i + 1 :])


def variations(sample: Sample) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for i, x in enumerate(sample.inputs):
        if isinstance(x, np.ndarray):
            for other in other_shapes(x):
                yield [*sample.inputs[:i], other, *sample.inputs[i + 1 :]], sample.params
    for name, value in sample.params.items() if "index" not in sample.params else ():  # slices are cut to the size, in the public function
        for other in other_numbers(value):
            yield list(sample.inputs), {**sample.params, name: other}


def promised(row: Any, inputs: list[Any], params: dict[str, Any]) -> tuple[Spec, ...] | None:
    """What the rule says; None where it refuses."""
    arrays = [x for x in inputs if isinstance(x, np.ndarray)]
    given = [None if x is None else spec_of(x) if isinstance(x, np.ndarray) else Spec((), arrays[0].dtype) for x in inputs]
    try:
        found: tuple[Spec, ...] = row.specs(*given, **params)
    except Exception:
        return None
    return found


@pytest.mark.parametrize("name", ROWS)
def test_what_the_rule_refuses(name):
    row, faults = ops.ROWS[name], []
    for sample in SAMPLES[name]:
        for inputs, params in variations(sample):
            wanted = promised(row, inputs, params)
            try:
                made = row(*inputs, **params)
            except Exception:  # an error is never silent
                continue
            found = tuple(spec_of(a) for a in (made if isinstance(made, tuple) else (made,)))
            if found != wanted:
                shapes = [x.shape if isinstance(x, np.ndarray) else x for x in inputs]
                faults.append(f"{shapes}, {params}: {found}, the rule {'refuses' if wanted is None else wanted}")
    assert not faults, "\n".join(faults[:8])


# Dimensions that public functions have checked; numbers that optimizers make themselves; counts that are looked at as values.
ELSEWHERE = {"tril", "triu", "bits", "squeeze", "lstm_sequence", "gru_sequence", "rnn_sequence"}


@pytest.mark.parametrize("name", [n for n in ROWS if n.removesuffix("_backward") not in ELSEWHERE and not n.endswith("_update")])
def test_what_the_rule_takes(name):
    """Is computed: a compiled or CUDA kernel reads whatever shapes the rule lets through, where NumPy would still have objected."""
    row, faults = ops.ROWS[name], []
    for sample in SAMPLES[name]:
        for inputs, params in variations(sample):
            if params is sample.params and promised(row, inputs, params) is not None:
                try:
                    row(*inputs, **params)
                except (IndexError, RuntimeError):  # of values, and dimensions that the public function counts
                    continue
                except (ValueError, TypeError) as error:
                    faults.append(f"{[getattr(x, 'shape', x) for x in inputs]}, {params}: {error!r}")
    assert not faults, "\n".join(faults[:8])


@pytest.mark.parametrize("name", ROWS)
def test_calls_of_tensors_refuse_in_the_rules_words(name):
    """The short ways of the autograd, which ask no rule, too: one call for each kind of message of a sample."""
    row, call, faults = ops.ROWS[name], bind(ops.ROWS[name]), []
    for sample in SAMPLES[name]:
        met = set()
        for inputs, params in variations(sample):
            arrays = [x for x in inputs if isinstance(x, np.ndarray)]
            given = [None if x is None else spec_of(x) if isinstance(x, np.ndarray) else Spec((), arrays[0].dtype) for x in inputs]
            try:
                row.specs(*given, **params)
            except Exception as error:
                wanted = error
            else:
                continue
            apart = [i != j for x, y in zip(inputs, sample.inputs) for i, j in zip(np.shape(x), np.shape(y), strict=False)]
            kind = re.sub(r"\d+", "#", str(wanted)), tuple(apart), tuple(map(np.ndim, arrays))
            if kind in met:
                continue
            met.add(kind)
            try:
                with gl.no_grad():
                    call(*[gl.tensor(x) if isinstance(x, np.ndarray) else x for x in inputs], **params)
                said = "nothing"
            except Exception as error:
                if type(error) is type(wanted) and str(wanted) in str(error):
                    continue
                said = repr(error)
            faults.append(f"{[getattr(x, 'shape', x) for x in inputs]}, {params}: the rule says {wanted!r}, the call {said}")
    assert not faults, "\n".join(faults[:8])
