"""The checks of `opcheck`. Each takes the operation and its samples, returns a note, and raises AssertionError for what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.autograd import grad, gradcheck, gradgradcheck
from gradlab.autograd.gradcheck import GradcheckError
from gradlab.autograd.record import wrap
from gradlab.backends.cuda.backend import CudaBackend
from gradlab.backends.cuda.emulator import ORDERS, KernelFault
from gradlab.backends.cuda.loading import emulating
from gradlab.dtype import FLOATING, as_numpy
from gradlab.func.derivatives import grad as gradient_function
from gradlab.func.mapping import vmap
from gradlab.graph import compile as compile_function, trace
from gradlab.kernel import Elementwise, Kernel, Library, Reduction
from gradlab.spec import spec_of
from gradlab.testing import cases
from gradlab.testing.cases import Case, Subject, floating, numbers, tensors
from gradlab.testing.launches import Recorder, raced, sanitized
from gradlab.testing.parity import units


class NotApplicable(Exception):
    """The operation has nothing that the check could look at."""


class Options(NamedTuple):
    """What the caller of `opcheck` chose."""

    dtypes: tuple[str, ...]
    sanitize: tuple[str, ...]
    tolerance: float


def _near(got: Any, want: Any, options: Options, what: str) -> None:
    """Assert that arrays agree within the tolerance of their dtype."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, expected {want.dtype}"
    error = units(got, want)
    if error <= options.tolerance:
        return
    if got.dtype not in FLOATING:
        raise AssertionError(f"{what}: {int((got != want).sum())} of {got.size} elements differ")
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))
    at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
    raise AssertionError(f"{what}: {error:.3g} × the tolerance of {got.dtype}; at {list(at)}: {a[at]:.9g}, expected {b[at]:.9g}")


def _outputs(subject: Subject, case: Case, device: str = "cpu") -> list[Any]:
    return [numbers(t) for t in subject(tensors(case, device=device), case.params)]


def _label(number: int, case: Case) -> str:
    return f"sample {number} ({case})"


# ---------------------------------------------------------------- values


def value(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """Rule and reference agree; inputs stay as they are; the same bits twice."""
    for number, case in enumerate(samples):
        kept = [np.array(x) for x in case.arrays()]
        first, second = _outputs(subject, case), _outputs(subject, case)
        for before, after in zip(kept, case.arrays()):
            assert before.tobytes() == after.tobytes(), f"{_label(number, case)}: the reference changed an input"
        for a, b in zip(first, second):
            assert a.tobytes() == b.tobytes(), f"{_label(number, case)}: twice on the same inputs, and the results differ"
            assert not any(np.shares_memory(a, x) for x in case.arrays()), f"{_label(number, case)}: an output lies in an input's memory"
        if all(isinstance(x, np.ndarray) or x is None for x in case.inputs) and subject.row.promote is None:
            specs = [None if x is None else spec_of(x) for x in case.inputs]
            found = tuple(spec_of(y) for y in first)
            said = subject.row.specs(*specs, **case.params)
            assert said == found, f"{_label(number, case)}: infer says {said}, the result is {found}"
    return ""


def dtypes(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """Other floating point dtypes against float64 on the same (rounded) numbers."""
    if not any(floating(x) for case in samples for x in case.inputs):
        raise NotApplicable("no floating point input")
    for number, case in enumerate(samples):
        for dtype in options.dtypes:
            narrow = case.cast(dtype)
            got, want = _outputs(subject, narrow), _outputs(subject, narrow.cast("float64"))
            for i, (a, b) in enumerate(zip(got, want)):
                b = b.astype(as_numpy(dtype)) if floating(b) else b
                _near(a, b, options, f"{_label(number, narrow)}, output {i}, compared with float64")
    return " ".join(options.dtypes)


def layouts(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """Strided, transposed and expanded inputs against contiguous ones."""
    for number, case in enumerate(samples):
        for change in (cases.strided, cases.transposed, cases.expanded):
            other = change(case)
            plain = other.each(np.ascontiguousarray)
            for a, b in zip(_outputs(subject, other), _outputs(subject, plain)):
                _near(a, b, options, f"{_label(number, case)}, {change.__name__}, compared with contiguous")
    return "strided, transposed, expanded"


def empty(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """Inputs with a dimension of size 0: the outputs that the rule says, and gradients of zeros where there are any."""
    done = 0
    for case in samples:
        for shrunk in cases.empties(subject, case):
            found = _forward_and_backward(subject, shrunk)
            done += 1
            assert all(np.isfinite(g).all() for g in found[1]), f"{shrunk}: a gradient is not finite"
    if not done:
        raise NotApplicable("no sample has an empty form that the rule takes")
    return f"{done} forms"


# ---------------------------------------------------------------- gradients


def _weighted(outputs: Sequence[Any]) -> Any:
    """A scalar of all outputs in a graph: each element by a weight of its own."""
    total = None
    for t in outputs:
        if t.is_floating_point() and t.requires_grad:
            weights = np.cos(np.arange(t.numel(), dtype=np.float64)).reshape(t.shape) + 0.5
            part = (t * wrap(weights.astype(t._array.dtype)).to(t.device)).sum()
            total = part if total is None else total + part
    return total


def _forward_and_backward(subject: Subject, case: Case, device: str = "cpu") -> tuple[list[Any], list[Any]]:
    """Outputs, and the gradients of a weighted sum of them."""
    inputs = tensors(case, subject.differentiable, device)
    outputs = subject(inputs, case.params)
    wanted = [t for t in inputs if getattr(t, "requires_grad", False)]
    total = _weighted(outputs) if wanted else None
    found = grad(total, wanted, materialize_grads=True) if total is not None else ()
    return [numbers(t) for t in outputs], [numbers(t) for t in found]


def _checked(check: Callable[..., Any], subject: Subject, samples: Sequence[Case]) -> str:
    places = subject.differentiable
    if not places:
        raise NotApplicable("the operation has no gradient")
    done = 0
    for number, case in enumerate(samples):
        inputs = tensors(case.each(np.array), places)
        if not any(getattr(t, "requires_grad", False) for t in inputs):
            continue
        positions = [i for i, t in enumerate(inputs) if hasattr(t, "requires_grad")]

        def function(*given: Any, inputs: list[Any] = inputs, positions: list[int] = positions, params: Any = case.params) -> Any:
            full = list(inputs)
            for i, t in zip(positions, given):
                full[i] = t
            return tuple(t for t in subject(full, params) if t.is_floating_point())

        try:
            check(function, [inputs[i] for i in positions])
        except GradcheckError as error:
            raise AssertionError(f"{_label(number, case)}: {error}") from None
        done += 1
    if not done:
        raise NotApplicable("no sample has a floating point input with a gradient")
    without = [n for i, n in enumerate(subject.row.inputs) if i not in places and any(floating(c.inputs[i]) for c in samples)]
    return f"no gradient for {', '.join(without)}" if without else ""


def first_order(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """Gradients against finite differences."""
    return _checked(gradcheck, subject, samples)


def second_order(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """Gradients of the gradients against finite differences."""
    return _checked(gradgradcheck, subject, samples)


# ---------------------------------------------------------------- programs and batches


def traced(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """A traced program of forward and backward, on fresh inputs."""
    for number, case in enumerate(samples):
        places = [i for i, x in enumerate(case.inputs) if isinstance(x, np.ndarray)]

        def everything(*given: Any, case: Case = case, places: list[int] = places) -> Any:
            full = list(case.inputs)
            for i, t in zip(places, given):
                full[i] = t
            outputs = subject(full, case.params)
            wanted = [t for t in given if t.requires_grad]
            total = _weighted(outputs) if wanted else None
            return list(outputs), list(grad(total, wanted, materialize_grads=True)) if total is not None else []

        program = trace(everything, *[t for t in tensors(case, subject.differentiable) if hasattr(t, "_array")])
        other = cases.turned(case)
        got = program(*[t for t in tensors(other, subject.differentiable) if hasattr(t, "_array")])
        want = _forward_and_backward(subject, other)
        for a, b in zip([*got[0], *got[1]], [*want[0], *want[1]]):
            _near(numbers(a), b, options, f"{_label(number, case)}, replayed on other inputs, compared with eager")
    return ""


def compiled(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """A compiled function, forward and backward, at its first, second and third call."""
    for number, case in enumerate(samples):
        narrow = case.cast("float32")
        places = [i for i, x in enumerate(case.inputs) if isinstance(x, np.ndarray)]

        def function(*given: Any, case: Case = narrow, places: list[int] = places) -> Any:
            full = list(case.inputs)
            for i, t in zip(places, given):
                full[i] = t
            return subject(full, case.params)

        staged = compile_function(function)
        for turn, one in enumerate((narrow, cases.turned(narrow), narrow)):
            inputs = tensors(one, subject.differentiable)
            outputs = staged(*[inputs[i] for i in places])
            wanted = [t for t in inputs if getattr(t, "requires_grad", False)]
            total = _weighted(outputs) if wanted else None
            found = grad(total, wanted, materialize_grads=True) if total is not None else ()
            want = _forward_and_backward(subject, one)
            for a, b in zip([*outputs, *found], [*want[0], *want[1]]):
                _near(numbers(a), b, options, f"{_label(number, case)}, call {turn + 1} of the compiled function, compared with eager")
    return ""


def mapped(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """`vmap` against one by one; gradients of vmap and vmap of gradients."""
    for number, case in enumerate(samples):
        places = [i for i, x in enumerate(case.inputs) if isinstance(x, np.ndarray)]
        other = cases.turned(case)
        stacked = [wrap(np.stack([case.inputs[i], other.inputs[i]])) for i in places]

        def function(*given: Any, case: Case = case, places: list[int] = places) -> Any:
            full = list(case.inputs)
            for i, t in zip(places, given):
                full[i] = t
            return subject(full, case.params)

        def scalar(*given: Any, function: Any = function) -> Any:
            kept = [t for t in function(*given) if t.is_floating_point()]
            return sum((t.sin().sum() for t in kept[1:]), kept[0].sin().sum())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that samples are taken one by one
            got = vmap(function)(*stacked)
            for i, (a, b) in enumerate(zip(_outputs(subject, case), _outputs(subject, other))):
                _near(numbers(got[i]), np.stack([a, b]), options, f"{_label(number, case)}, vmap, compared with one by one")
            wanted = tuple(n for n, i in enumerate(places) if i in subject.differentiable and floating(case.inputs[i]))
            if not wanted:
                continue
            inside = vmap(gradient_function(scalar, argnums=wanted))(*stacked)
            outside = gradient_function(lambda *given, scalar=scalar: vmap(scalar)(*given).sum(), argnums=wanted)(*stacked)
            for a, b in zip(inside, outside):
                _near(numbers(a), numbers(b), options, f"{_label(number, case)}, vmap of grad, compared with grad of vmap")
    return ""


# ---------------------------------------------------------------- kernels


def parity(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """The GPU against the CPU, forward and backward."""
    with emulating() as backend:
        for number, case in enumerate(samples):
            for dtype in options.dtypes:
                _compare(subject, case.cast(dtype), options, _label(number, case.cast(dtype)))
            for change in (cases.strided, cases.transposed, cases.expanded):
                _compare(subject, change(case.cast("float32")), options, f"{_label(number, case.cast('float32'))}, {change.__name__}")
            for shrunk in cases.empties(subject, case.cast("float32")):
                _compare(subject, shrunk, options, f"{shrunk}")
        name = "the emulated GPU" if backend.driver.name == "emulated" else backend.driver.device_name(backend.driver.current_device())
    return f"on {name}" + ("" if _has_kernel(subject) else ", through the host: there is no kernel")


def _compare(subject: Subject, case: Case, options: Options, label: str) -> None:
    want, got = _forward_and_backward(subject, case), _forward_and_backward(subject, case, "cuda")
    for i, (a, b) in enumerate(zip(got[0], want[0])):
        _near(a, b, options, f"{label}, output {i} of the GPU, compared with the CPU")
    for i, (a, b) in enumerate(zip(got[1], want[1])):
        _near(a, b, options, f"{label}, gradient {i} of the GPU, compared with the CPU")


def _has_kernel(subject: Subject) -> bool:
    return isinstance(subject.row.cuda, (Elementwise, Reduction, Kernel, Library))


def _recording() -> tuple[Recorder, CudaBackend]:
    driver: Any = Recorder()
    return driver, CudaBackend(driver)


def _on(backend: CudaBackend, subject: Subject, case: Case) -> list[Any]:
    """The row alone on a backend of its own, with inputs as the kernels get them."""
    ready = tensors(case)
    if subject.row.promote is not None:
        kinds = [x.dtype for x in case.inputs if isinstance(x, np.ndarray) and (floating(x) or subject.row.promote == "same")]
        dtype = kinds[0] if kinds else as_numpy("float32")
        ready = [wrap(t._array.astype(dtype)) if hasattr(t, "_array") else t for t in ready]
    driver = backend.driver
    arrays = [driver.upload(np.ascontiguousarray(t._array)).reshape(t._array.shape) if hasattr(t, "_array") else t for t in ready]
    found = backend.run(subject.row, arrays, dict(case.params))
    return [backend.to_numpy(y) for y in (found if isinstance(found, tuple) else (found,))]


def orders(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """The same bits, in whichever order a kernel's threads run."""
    if not _has_kernel(subject):
        raise NotApplicable("there is no kernel")
    driver, backend = _recording()
    for number, case in enumerate(samples):
        narrow = case.cast("float32")
        expected: list[Any] | None = None
        for order in ORDERS:
            driver.order = order
            try:
                found = _on(backend, subject, narrow)
            except KernelFault as fault:
                raise AssertionError(f"{_label(number, narrow)}, order {order}: {fault}") from None
            expected = found if expected is None else expected
            for a, b in zip(found, expected):
                same = a.tobytes() == b.tobytes()
                assert same, f"{_label(number, narrow)}: threads in the order {order!r} give another result than in {ORDERS[0]!r}"
    return ", ".join(ORDERS)


def races(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """No two threads of a launch touch a byte, one of them writing, with nothing that orders the two."""
    if not _has_kernel(subject):
        raise NotApplicable("there is no kernel")
    driver, backend = _recording()
    for case in samples:
        _on(backend, subject, case.cast("float32"))
    found = raced(driver.recorded)
    assert not found, "\n".join(map(str, found))
    return f"{len(driver.recorded)} launches"


def sanitizers(subject: Subject, samples: Sequence[Case], options: Options) -> str:
    """The kernels under sanitizers, in a process of their own."""
    if not _has_kernel(subject) or not options.sanitize:
        raise NotApplicable("there is no kernel" if options.sanitize else "none was asked for")
    smallest = min(range(len(samples)), key=lambda i: sum(x.size for x in samples[i].arrays()))
    driver, backend = _recording()
    counts = []
    for case in samples:
        _on(backend, subject, case.cast("float32"))
        counts.append(len(driver.recorded))
    done = []
    for names in options.sanitize:
        begin = counts[smallest - 1] if smallest else 0
        chosen = driver.recorded[begin : counts[smallest]] if names == "thread" else driver.recorded
        try:
            found = sanitized(chosen, names)
        except RuntimeError as error:
            raise NotApplicable(str(error)) from None
        assert not found, f"the {names} sanitizer found:\n" + "\n".join(map(str, found))
        done.append(f"{names} ({len(chosen)} launches)")
    return "; ".join(done)
