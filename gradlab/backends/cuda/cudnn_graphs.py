"""Convolution and attention by cuDNN, through the graphs of its frontend (the package `cudnn`), where users ask for it (`cudnn.py`).

What a graph is told, and why: the dimensions are always batch, channels, space, and the strides say how they lie in memory. The *results'*
strides are set too: left out, frontends up to 1.26 make them channels-last whatever the inputs are, those from 1.27 on row-major. Pointers
are passed as addresses, on the current stream of the driver. The work space is given to each call.
"""

from __future__ import annotations

import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradlab.backends import cudnn as switch, determinism
from gradlab.backends.cuda.gemm.settings import SETTINGS
from gradlab.backends.cuda.launch_context import Work
from gradlab.backends.cuda.layout import element_strides
from gradlab.dtype import HALF
from gradlab.spec import count

Run = Callable[[Work, list[Any], list[Any], dict[str, Any]], None]
DTYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
TOLERANCE = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}  # of the difference to our own kernels, by the norms
ROUNDED = 5e-3  # of float32 products on tensor cores
ALIGNED = 16  # bytes
HEADS = 128  # numbers of a head, at most


class Operand(NamedTuple):
    """A tensor as cuDNN sees it."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Problem(NamedTuple):
    """What a graph computes. Equal problems share one.

    kind       "fprop", "dgrad", "wgrad", "sdpa" or "sdpa_backward"
    operands   those that are read, then those that are written
    numbers    the operation's parameters
    exact      whether float32 is multiplied as float32
    """

    kind: str
    operands: tuple[Operand, ...]
    numbers: tuple[tuple[str, Any], ...]
    exact: bool
    deterministic: bool


# ---------------------------------------------------------------- describing


def describe(library: Any, problem: Problem, handle: Any = None) -> tuple[Any, list[Any]]:
    """The graph of a problem, not built yet, and its tensors in the order of the operands."""
    types = library.data_type
    kinds = {name: getattr(types, there) for name, there in DTYPES.items()}
    io = kinds[problem.operands[0].dtype]
    graph = library.pygraph(io_data_type=io, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT, handle=handle)
    numbers = dict(problem.numbers)
    written = [o for o in problem.operands if o.name.startswith(">")]
    read = {
        o.name: graph.tensor(name=o.name, dim=list(o.shape), stride=list(o.strides), data_type=kinds[o.dtype])
        for o in problem.operands
        if not o.name.startswith(">")
    }
    made = {"fprop": _fprop, "dgrad": _dgrad, "wgrad": _wgrad, "sdpa": _sdpa, "sdpa_backward": _sdpa_backward}[problem.kind](
        graph, read, numbers
    )
    for tensor, o in zip(made, written, strict=True):
        tensor.set_output(True).set_data_type(kinds[o.dtype]).set_dim(list(o.shape)).set_stride(list(o.strides))
    return graph, [*read.values(), *made]


def _windows(numbers: dict[str, Any]) -> dict[str, Any]:
    """A convolution's numbers. By default its kernel is not turned round, which is what networks call a convolution."""
    return {n: list(numbers[n]) for n in ("padding", "stride", "dilation")}


def _fprop(graph: Any, read: dict[str, Any], numbers: dict[str, Any]) -> list[Any]:
    y = graph.conv_fprop(image=read["x"], weight=read["w"], **_windows(numbers))
    if "b" in read:
        y = graph.bias(name="bias", input=y, bias=read["b"])
    return [graph.relu(name="relu", input=y) if numbers["relu"] else y]


def _dgrad(graph: Any, read: dict[str, Any], numbers: dict[str, Any]) -> list[Any]:
    dx = graph.conv_dgrad(loss=read["dy"], filter=read["w"], **_windows(numbers))
    return [graph.bias(name="bias", input=dx, bias=read["b"]) if "b" in read else dx]


def _wgrad(graph: Any, read: dict[str, Any], numbers: dict[str, Any]) -> list[Any]:
    return [graph.conv_wgrad(image=read["x"], loss=read["dy"], **_windows(numbers))]


def _sdpa(graph: Any, read: dict[str, Any], numbers: dict[str, Any]) -> list[Any]:
    return list(
        graph.sdpa(
            name="sdpa", q=read["q"], k=read["k"], v=read["v"], generate_stats=True, attn_scale=numbers["scale"],
            use_causal_mask=numbers["causal"],
        )
    )  # fmt: skip


def _sdpa_backward(graph: Any, read: dict[str, Any], numbers: dict[str, Any]) -> list[Any]:
    names = {"q": "q", "k": "k", "v": "v", "o": "y", "dO": "g", "stats": "lse"}
    found = {ours: read[theirs] for ours, theirs in names.items()}
    options = {"attn_scale": numbers["scale"], "use_causal_mask": numbers["causal"], "use_deterministic_algorithm": True}
    return list(graph.sdpa_backward(name="sdpa_backward", **found, **options))


# ---------------------------------------------------------------- graphs, ready to run


class Graph:
    """A problem with its plan. checked: whether a result was compared with our own kernels'."""

    def __init__(self, library: Any, problem: Problem, handle: Any, work: Work) -> None:
        self.graph, self.ports = describe(library, problem, handle)
        self.checked = False
        graph, notes = self.graph, library.numerical_note
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([library.heur_mode.A, library.heur_mode.FALLBACK])
        unwanted = [notes.NONDETERMINISTIC] if problem.deterministic else []
        if problem.exact:
            unwanted += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
        if unwanted:
            graph.deselect_numeric_notes(unwanted)
        graph.check_support()
        graph.build_plans()
        self.size = max(int(graph.get_workspace_size()), 1)  # of the work space, in bytes

    def run(self, library: Any, handle: Any, stream: int, places: Sequence[int], space: int) -> None:
        library.set_stream(handle=handle, stream=stream)
        self.graph.execute(dict(zip(self.ports, places, strict=True)), space, handle=handle)


class Cudnn:
    """One driver's cuDNN: handles by device, graphs by problem (None: our own kernels compute it)."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.handles: dict[int, Any] = {}
        self.graphs: dict[tuple[Problem, int], Graph | None] = {}
        self.lock = threading.RLock()
        self.refusals = (RuntimeError, ValueError, getattr(library, "cudnnGraphNotSupportedError", RuntimeError))

    def run(self, work: Work, problem: Problem, own: Run, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> bool:
        """Compute the outputs; False where our own kernels have to."""
        driver = work.driver
        device = driver.current_device()
        with self.lock:
            try:
                graph = self.graphs[problem, device]
            except KeyError:
                if driver.capturing():
                    return False
                graph = self.graphs[problem, device] = self._build(work, problem, device)
            if graph is None or (driver.capturing() and not graph.checked):
                return False
            given = [x for x in inputs if x is not None]
            if any(work.pointer(x) % ALIGNED for x in (*given, *outputs)):
                return False
            memory = work.empty((graph.size,), np.dtype(np.uint8))  # for this call: another stream or a captured graph has its own
            stream, space = driver.current_stream().ptr, work.pointer(memory)
            places = [work.pointer(x) for x in given]
            if graph.checked:
                graph.run(self.library, self.handles[device], stream, [*places, *map(work.pointer, outputs)], space)
                return True
            own(work, inputs, outputs, params)
            made = [work.empty(y.shape, y.dtype) for y in outputs]
            for y in made:
                driver.fill_zero(y)
            try:
                graph.run(self.library, self.handles[device], stream, [*places, *map(work.pointer, made)], space)
                wrong = _difference(driver, problem, made, outputs)
            except self.refusals as error:
                wrong = str(error)
            graph.checked = not wrong
            if wrong:
                self.graphs[problem, device] = None
                shapes = ", ".join(f"{o.name.strip('>')} {list(o.shape)}" for o in problem.operands)
                warnings.warn(f"cuDNN is not used for {problem.kind} of {shapes}: {wrong}", RuntimeWarning, stacklevel=3)
            return True

    def _build(self, work: Work, problem: Problem, device: int) -> Graph | None:
        try:
            if device not in self.handles:
                self.handles[device] = self.library.create_handle()
            return Graph(self.library, problem, self.handles[device], work)
        except self.refusals:  # it has no engine for this
            return None


def _difference(driver: Any, problem: Problem, made: list[Any], wanted: list[Any]) -> str:
    """How two results differ by more than rounding; "" where they do not."""
    for a, b in zip(made, wanted, strict=True):
        got, want = (np.asarray(driver.download(x), np.float64) for x in (a, b))
        name = problem.operands[0].dtype
        most = TOLERANCE[name] if problem.exact or name != "float32" else ROUNDED
        apart = float(np.linalg.norm(got - want)) / max(float(np.linalg.norm(want)), 1e-30)
        if not apart <= most:
            return f"its first result differs from our own kernel's by {apart:.2g} of the norm, where {most:g} is rounding"
    return ""


@functools.lru_cache
def of(driver: Any) -> Cudnn | None:
    """The driver's cuDNN. None, with one warning, where it is not installed; the emulated GPU has none."""
    if driver.name == "emulated":
        return None
    try:
        return Cudnn(importlib.import_module("cudnn"))
    except (ImportError, OSError, RuntimeError) as error:
        why = f'pip install "gradlab-engine[cudnn]" ({error})'
        warnings.warn(f"gl.backends.cudnn.enabled is True, but cuDNN is not there: {why}", RuntimeWarning, stacklevel=4)
        return None


def offered(kind: str, own: Run) -> Run:
    """A launch rule's `run` that lets cuDNN compute where it was asked for and can."""
    problem_of = {"sdpa": _attention, "sdpa_backward": _attention}.get(kind, _convolution)

    def run(work: Work, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> None:
        if switch.enabled and all(count(x.shape) for x in (*inputs, *outputs) if x is not None):
            driver: Any = work.driver
            library = of(driver)
            if library is not None:
                given = [x if x is None or _dense(x) else work.contiguous(x) for x in inputs]
                problem = problem_of(kind, given, outputs, params)
                if problem is not None and library.run(work, problem, own, given, outputs, params):
                    return
        own(work, inputs, outputs, params)

    return run


def _dense(x: Any) -> bool:
    """Whether an array is in row-major order, channels first or last."""
    return x.flags.c_contiguous or (len(x.shape) > 2 and x.transpose(0, *range(2, len(x.shape)), 1).flags.c_contiguous)


def _problem(kind: str, named: dict[str, Any], numbers: dict[str, Any]) -> Problem | None:
    if any(x.dtype.name not in DTYPES for x in named.values()):
        return None
    operands = tuple(Operand(n, *_planes(kind, n, x), x.dtype.name) for n, x in named.items())
    exact = operands[0].dtype == "float32" and SETTINGS.precision == "highest"
    return Problem(kind, operands, tuple(numbers.items()), exact, determinism.STATE.deterministic)


def _planes(kind: str, name: str, x: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides: a bias and a line get the dimensions that cuDNN's convolutions have, statistics of attention a last one."""
    shape, strides = tuple(x.shape), element_strides(x)
    if name == "b":
        return (1, shape[0], 1, 1), (shape[0], 1, 1, 1)
    if len(shape) == 3:
        where = 3 if kind.startswith("sdpa") else 2
        step = 1 if where == 3 else strides[2] * shape[2]
        return (*shape[:where], 1, *shape[where:]), (*strides[:where], step, *strides[where:])
    return shape, strides


def _convolution(kind: str, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Problem | None:
    activation = params.get("activation")
    rank = len(inputs[0].shape) - 2
    if params["groups"] != 1 or activation not in {None, "relu"} or rank > 2:
        return None
    names = {"fprop": ("x", "w", "b", ">y"), "dgrad": ("dy", "w", *("b",) * (len(inputs) - 2), ">dx"), "wgrad": ("x", "dy", ">dw")}[kind]
    named = {n: x for n, x in zip(names, (*inputs, *outputs), strict=True) if x is not None}
    lead = (2 - rank) * (0,), (2 - rank) * (1,)
    numbers = {"padding": lead[0] + params["padding"], "stride": lead[1] + params["stride"], "dilation": lead[1] + params["dilation"]}
    return _problem(kind, named, {**numbers, "relu": activation == "relu"})


def _attention(kind: str, inputs: list[Any], outputs: list[Any], params: dict[str, Any]) -> Problem | None:
    if kind == "sdpa":
        q, k, v, mask = inputs
        named, extra = {"q": q, "k": k, "v": v, ">y": outputs[0], ">lse": outputs[1]}, None
    else:
        g, extra, q, k, v, mask, y, lse = inputs
        named = {"g": g, "q": q, "k": k, "v": v, "y": y, "lse": lse, **dict(zip((">dq", ">dk", ">dv"), outputs, strict=True))}
    sizes = (q.shape[3], v.shape[3])
    if mask is not None or extra is not None or q.dtype not in HALF or max(sizes) > HEADS or any(s % 8 for s in sizes):
        return None
    if params["causal"] and q.shape[2] != k.shape[2]:
        return None
    return _problem(kind, named, {"scale": float(params["scale"]), "causal": bool(params["causal"])})

