"""Comparing a program's run in gradlab with one in PyTorch, in float64, or on another device: what differs and is not rounding.

What rounding explains is measured, not guessed: the program runs several times in float64, each line's result disturbed by the relative
error of the program's own dtype. Where these runs agree, both engines have to agree too.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np

import gradlab as gl

from .programs import Program
from .running import Outcome, run

ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LARGEST = {"float64": 1e300, "float32": 1e36, "float16": 1.5e4, "bfloat16": 1e36}
SMALLEST = {"float64": 0.0, "float32": 1e-40, "float16": 2.0**-20, "bfloat16": 1e-40}
LESS_EXACT = re.compile(r"F\.(hardsigmoid|hardswish|elu|celu|selu)\(|lgamma|sinc\(")  # PyTorch in float64: docs/differences.md
PICKS = re.compile(r"kthvalue|topk|sort|median|quantile|max|min")
MIXED = re.compile(r"_loss\(|cross_entropy|einsum|matmul|linear|bilinear|@|conv1d")  # of two dtypes: docs/differences.md
OF_ITSELF = re.compile(r"^(\w+) = (\w+)[.\[].*^\2(?: [-+*/]=|\.\w+_\().*\b\1\b", re.DOTALL | re.MULTILINE)
TURNED = re.compile(r"\.(t|unsqueeze|squeeze|swapdims)_\(")
RUNS = 4
explained: Counter[str] = Counter()


def spread(program: Program) -> tuple[list[Outcome], bool]:
    """Disturbed runs in float64, and whether all their values are of a size that the program's dtype holds."""
    wide = program.widened()
    runs = [run(gl, wide, noise=ROUNDING[program.dtype] * (4 if i else 1e-3), draw=i) for i in range(RUNS)]
    return runs, all(r.largest < LARGEST[program.dtype] for r in runs)


# What both engines are right in, or gradlab on purpose is not like PyTorch: of an error's text, and why.
REASONS = (
    ("not implemented for|must be either float or double", "PyTorch has no kernel for the dtype"),
    ("derivative for .* is not implemented", "PyTorch has no gradient where ours is zero or none"),
    ("inplace|in-place|in place|written", "one engine keeps a value, or forbids a view, that the other does not"),
    ("[Ii]nference ", "PyTorch forbids more of an inference tensor: docs/differences.md"),
    ("single memory location|overlap", "PyTorch forbids reading and writing the same memory"),
    (r"permute\(|repeat\(", "no argument for no dimension"),
    ("invalid gradient at index|match the broadcast shape|The size of tensor a", "PyTorch's backward behind t_, squeeze_ and broad writes"),
    (r"\.(kron|repeat_interleave|cdist|take_along_dim)\(.*(view size|Dimension)", "PyTorch refuses a transposed or 0-d input"),
    ("expected scalar type|same dtype", "products of different dtypes: docs/differences.md"),
    ("linear: .*bias|linear.*must be a matrix", "PyTorch broadcasts a bias of any shape, and takes no mixture of vectors"),
    ("class indices of shape", "PyTorch takes one class for a vector, but not its gradient"),
    (r"\.(any|all)\(.*uint8", "any and all of uint8 are uint8 in PyTorch: docs/differences.md"),
    ("Found dtype .* but expected", "a loss of two dtypes: docs/differences.md"),
    ("attention: query", "PyTorch takes empty keys of another size"),
    ("with a bool tensor is not supported", "subtraction of bool: docs/differences.md"),
    ("does not support bool input", "PyTorch has no argmax of bool"),
    ("got another shape", "a view of a leaf that t_ or squeeze_ turned: docs/differences.md"),
)


def reason(error: str) -> str:
    return next((why for pattern, why in REASONS if re.search(pattern, error)), "")


def difference(program: Program, found: Outcome, reference: Outcome) -> str:
    """The first thing in which two runs differ, in words; "" if rounding or one of the reasons explains all."""
    for number, line in enumerate(program.lines):
        ours, other = found.refused.get(number), reference.refused.get(number)
        if ours and other and "nference" in other:
            explained["PyTorch writes an inference tensor, and raises then"] += 1
            return ""
        if (ours is None) != (other is None):
            if why := reason(line + (ours or other or "")):
                explained[why] += 1
                return ""  # from here on the programs are not the same
            return f"refusal: {line!r} raises {ours}" if other is None else f"refusal: {line!r} is taken, reference raises {other}"
    ours, other = found.seen.get("backward"), reference.seen.get("backward")  # refused?
    if ours != other and not (ours and other):
        if why := reason(ours or other):
            explained[why] += 1
            return ""
        return f"backward: {ours}, reference {other}"
    runs: tuple[list[Outcome], bool] | None = None
    for label in dict.fromkeys((*reference.seen, *found.seen)):
        a, b = found.seen.get(label), reference.seen.get(label)
        if label == "backward" or (ours and "grad" in label):  # both refuse to differentiate, maybe at another place
            continue
        if isinstance(a, str) or isinstance(b, str):
            if not isinstance(a, str) or not isinstance(b, str) or a != b:
                if label.endswith("grad's dtype") and None in (a, b):
                    continue  # the gradients themselves tell whether one is missing
                if _kind(a) != _kind(b) and MIXED.search(" ".join(program.lines)):
                    explained["products and losses of two dtypes: docs/differences.md"] += 1
                    return ""
                if "properties" in label and re.search(r"requires_grad_\(\)|unique\(\)", " ".join(program.lines)):
                    explained["views of what requires grad later, results of unique: docs/differences.md"] += 1
                    return ""
                if why := reason(f"{_made(program, label)} {a} {b}"):
                    explained[why] += 1
                    return ""
                return f"{label}: {a!r}, reference {b!r}"
        elif a is not None and b is not None and a.shape != b.shape and program.sizes_by_values():
            explained["sizes that rounding decides"] += 1
            return ""
        elif a is None or b is None or a.shape != b.shape:
            if a is not None and b is not None and "grad" in label and TURNED.search(" ".join(program.lines)):
                explained["a view of a leaf that t_ or squeeze_ turned: docs/differences.md"] += 1
                return ""
            nothing = a if b is None else b
            if a is not b and not (label.endswith(("grad", "gradient")) and nothing is not None and not np.any(np.nan_to_num(nothing))):
                return f"{label}: {a}, reference {b}"
        elif not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            if runs is None:
                runs = spread(program)
            if problem := _far(program, label, a, b, *runs):
                return f"{label}: {problem}"
    return ""


def _kind(properties: Any) -> str:
    """The dtype among a tensor's properties."""
    return next(iter(re.findall(r"\) (\w+)", str(properties))), "")


def _made(program: Program, label: str) -> str:
    """The last line that binds the variable of a label."""
    return next((line for line in reversed(program.lines) if f"{label.partition(':')[0]} = " in line), "")


def _far(program: Program, label: str, a: Any, b: Any, runs: list[Outcome], fits: bool) -> str:
    wide = [r.seen.get(label) for r in runs]
    if any(w is None or isinstance(w, str) or w.shape != b.shape for w in wide):
        explained["the float64 run has another shape or is refused: values decide"] += 1
        return ""
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        unlike = ~(finite | (np.isnan(a) & np.isnan(b)) | (a == b))
        if unlike.any():
            steady = np.all([np.isfinite(w) == np.isfinite(wide[0]) for w in wide], 0)
            if re.search(r"\.sgn\(|\.sign\(", " ".join(program.lines)) and np.isnan(a[unlike]).all():
                explained["sign of NaN: docs/differences.md"] += 1
            elif "grad" in label and any(isinstance(v, np.ndarray) and np.isnan(v).any() for v in runs[0].seen.values()):
                explained["the gradient of what is NaN"] += 1
            elif "grad" in label and program.dtype == "float16":
                explained["out of float16's range on the way back"] += 1
            elif not (unlike & np.isfinite(b)).any() and np.isfinite(wide).all():
                explained["a number, where PyTorch has NaN or an infinity"] += 1
            elif fits and (unlike & steady).any():
                return f"{a.ravel()[:6]}, reference {b.ravel()[:6]}, in float64 {wide[0].ravel()[:6]}"
            explained["out of the dtype's range on the way"] += 1
        stack = np.stack(wide).astype("float64")
        room = np.ptp(stack, 0)
        scale = np.abs(np.where(np.isfinite(b), b, 0)).max(initial=1)
        room = 4 * np.nan_to_num(room, nan=np.inf, posinf=np.inf).max(initial=0)
        room *= 8 if "second" in label else 1
        room += (16 if program.dtype in ("float32", "float64") else 4) * ROUNDING[program.dtype] * scale + SMALLEST[program.dtype]
        apart = np.where(finite, np.abs(a.astype("float64") - b.astype("float64")), 0).max(initial=0)
        if apart <= room:
            return ""
        if not fits:
            explained["out of the dtype's range on the way"] += 1
            return ""
        if program.dtype in ("float16", "bfloat16") and np.abs(a - wide[0])[finite].max(initial=0) <= room:
            explained["PyTorch rounds half types on the way, gradlab is as float64"] += 1
            return ""
        if OF_ITSELF.search("\n".join(program.lines)) and np.abs(a - wide[0])[finite].max(initial=0) <= room:
            explained["PyTorch writes what it goes on to read: a view of the target, broadcast"] += 1
            return ""
        alike = np.allclose(np.sort(a, None), np.sort(b, None), rtol=0, atol=room)
        if alike and "grad" in label and PICKS.search(" ".join(program.lines)):
            explained["which one of equal values is picked"] += 1
            return ""
        if "grad" in label and any("no_grad" in line and TURNED.search(line) for line in program.lines):
            explained["PyTorch's backward behind t_, squeeze_ and broad writes"] += 1
            return ""
        if label.endswith(("grad", "gradient")) and any(".data" in line for line in program.lines):
            explained["what is written through .data, no backward pass knows"] += 1
            return ""
        text = " ".join(program.lines)
        if apart < scale * (2.0**-10 if "sinc(" in text else 2.0**-20) and LESS_EXACT.search(text):
            explained["PyTorch computes in float64 with constants of float32, or with fewer terms"] += 1
            return ""
    return f"{a.ravel()[:6]}, reference {b.ravel()[:6]}, in float64 {wide[0].ravel()[:6]}; apart {apart:.3g}, rounding explains {room:.3g}"


def against(reference: Any, program: Program) -> str:
    """gradlab against an engine (a module), or against itself in float64 (None)."""
    found = run(gl, program)
    other = run(gl, program.widened()) if reference is None else run(reference, program)
    if reference is None:
        if found.refused != other.refused:
            explained["refused in one dtype, taken in another"] += 1
            return ""
        for outcome in (found, other):
            outcome.seen = {k: v for k, v in outcome.seen.items() if not k.endswith(("properties", "dtype"))}
    return difference(program, found, other)


def on_gpu(program: Program) -> str:
    """The GPU, or the emulated one, against the CPU."""
    return difference(program, run(gl, program, "cuda"), run(gl, program))
