"""`out=` of another dtype: every public function takes what PyTorch's takes, and refuses what it refuses."""

import pytest

import gradlab as gl

from kinds.calls import CALLS, TORCH, parts

OTHER = {
    "float32": "float64", "float64": "float32", "int64": "int32", "int32": "int64", "bool": "uint8", "complex64": "complex128",
}  # fmt: skip
ROOMS = ("gl", "linalg", "special", "fft")
CANDIDATES = [c for c in CALLS if c.reference and c.name.split(".")[0] in ROOMS and not c.name.endswith("_") and "random" not in c.marks]
# Two take no `out`; gl.cholesky is linalg's function, which refuses another type, as PyTorch's function of linalg does.
APART = {"gl.histogramdd", "linalg.lstsq", "gl.cholesky"}


def attempt(engine, result, call):
    """Whether the function writes its result into tensors of another type; None where it knows no `out`."""
    outs = [engine.empty(0, dtype=getattr(engine, OTHER[str(p.dtype).rpartition(".")[2]])) for p in parts(result)]
    try:
        call(outs[0] if isinstance(result, (gl.Tensor, TORCH.Tensor)) else tuple(outs))
    except TypeError as error:
        return None if any(word in str(error) for word in ("unexpected", "invalid combination", "multiple values")) else False
    except (RuntimeError, ValueError):
        return False
    return True


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_out_of_another_type_as_in_pytorch():
    different, compared = [], 0
    for call in CANDIDATES:
        if call.name in APART:
            continue
        try:
            ours, theirs = call.run(), call.run_reference(TORCH.float32)
        except (RuntimeError, TypeError, ValueError):  # a setting that only one takes, which other tests are about
            continue
        if not parts(ours) or any(str(p.dtype).rpartition(".")[2] not in OTHER for p in (*parts(ours), *parts(theirs))):
            continue
        args, options = call.tensors()
        there, named = call.reference_tensors(TORCH.float32)
        wanted = attempt(TORCH, theirs, lambda out, there=there, named=named, call=call: call.reference(*there, **named, out=out))
        if wanted is None:
            continue
        compared += 1
        if attempt(gl, ours, lambda out, args=args, options=options, call=call: call.function(*args, **options, out=out)) != wanted:
            different.append((repr(call), wanted))
    assert different == []
    assert compared > 250, compared


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_overloads_differ_as_in_pytorch():
    """A bound, weight or power decides, too."""
    takes = {}
    for engine in (gl, TORCH):
        x, line = engine.ones(3, 3), engine.ones(3)

        def out(engine=engine):
            return engine.empty(0, dtype=engine.float64)

        calls = {
            "lerp": lambda o, x=x, e=engine: e.lerp(x, x, 0.5, out=o), "lerp.Tensor": lambda o, x=x, e=engine: e.lerp(x, x, x, out=o),
            **{f"{name} of a {kind}": lambda o, x=x, e=engine, n=name, b=bound: getattr(e, n)(x, b, out=o)
               for name in ("clamp", "clamp_min", "clamp_max", "max", "min") for kind, bound in (("number", 1), ("tensor", x))
               if kind == "tensor" or name.startswith("clamp")},
            **{f"{name} of all": lambda o, x=line, e=engine, n=name: getattr(e, n)(x, out=o) for name in ("max", "min", "all", "any")},
            **{f"power {n}": lambda o, x=x, e=engine, n=n: e.matrix_power(x, n, out=o) for n in (0, 1, 2, 3)},
            **{f"{name} into uint8": lambda o, x=line, e=engine, n=name: getattr(e, n)(x, out=e.empty(0, dtype=e.uint8))
               for name in ("all", "any")},
        }  # fmt: skip
        for name, call in calls.items():
            try:
                call(out())
            except RuntimeError:
                takes.setdefault(name, []).append(False)
            else:
                takes.setdefault(name, []).append(True)
    assert {name: found for name, found in takes.items() if len(set(found)) > 1} == {}
