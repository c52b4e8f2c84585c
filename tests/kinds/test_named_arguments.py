"""A call by names, in any order, is the call by places: every public function, also on half types, where the order decides the type."""

import inspect

import numpy as np

import gradlab as gl

from kinds.calls import CALLS, parts


def by_name(call, args, options):
    """The arguments by the names of their parameters, the last first; None where not all have one."""
    try:
        parameters = list(inspect.signature(call.function).parameters.values())
    except (TypeError, ValueError):
        return None
    if len(args) > len(parameters) or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters[: len(args)]):
        return None
    named = {p.name: value for p, value in zip(parameters, args)} | options
    return dict(reversed(named.items()))


def seen(call, args, options):
    gl.manual_seed(0)
    result = call.function(*args, **options)
    found = [p.detach() for p in parts(result)]
    return [(str(p.dtype), tuple(p.shape), (p if p.is_complex() else p.double()).numpy()) for p in found]


def compared(dtypes):
    """(call, what differs) of calls whose float tensors have the types in turn; and how many were compared."""
    wrong, number = [], 0
    for call in CALLS:
        if call.function.__name__ == "<lambda>" or by_name(call, *call.tensors()) is None:
            continue

        def made(call=call):
            args, options = call.tensors()
            turn = iter(range(100))

            def cast(value):
                floating = isinstance(value, gl.Tensor) and value.dtype == gl.float32
                return value.to(dtypes[next(turn) % len(dtypes)]) if floating else value

            return tuple(map(cast, args)), {name: cast(value) for name, value in options.items()}

        try:
            places = seen(call, *made())
        except Exception:
            continue
        number += 1
        names = seen(call, (), by_name(call, *made()))
        for a, b in zip(places, names, strict=True):
            if a[:2] != b[:2] or not np.array_equal(a[2], b[2], equal_nan=True):
                wrong.append((repr(call), a[:2], b[:2]))
    return wrong, number


def test_names_are_places():
    for dtypes in ([gl.float32], [gl.float16, gl.float32], [gl.float32, gl.bfloat16]):
        wrong, number = compared(dtypes)
        assert wrong == []
        assert number > 500, number


def test_the_first_tensor_decides_the_type_by_its_place():
    F, x, w = gl.nn.functional, gl.ones(2, 4, 6, dtype=gl.float16), gl.ones(4)
    assert F.group_norm(weight=w, bias=w, num_groups=2, input=x).dtype == gl.float16
    assert F.group_norm(x, 2, weight=w).dtype == gl.float16
    assert F.cosine_embedding_loss(x[0], x[0].float(), gl.ones(4)).dtype == gl.float32
    assert F.cosine_embedding_loss(target=gl.ones(4), input2=x[0], input1=x[0]).dtype == gl.float16
