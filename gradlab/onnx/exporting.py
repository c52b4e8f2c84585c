"""`export`: a module, a function or a traced program as an ONNX file, checked before success is reported."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gradlab import dispatch
from gradlab.autograd import no_grad
from gradlab.autograd.base import Differentiable
from gradlab.autograd.record import wrap
from gradlab.graph.ir.dims import Dim, hints_of, unknown
from gradlab.graph.ir.graph import Graph, Value
from gradlab.graph.passes.drop_clones import drop_clones
from gradlab.graph.passes.fold_constants import fold_constants
from gradlab.graph.staging.program import Program, trace
from gradlab.graph.staging.symbol import TraceError
from gradlab.graph.staging.tree import flatten, unflatten
from gradlab.nn import Module
from gradlab.onnx.arguments import Dynamic, axes, dynamic_sizes, input_names, output_names, parameter_names, plain
from gradlab.onnx.building import Ends, bytes_of, model_of
from gradlab.onnx.checking import Case, ExportError, ExportWarning, Verdict, verify
from gradlab.onnx.emitter import Wire
from gradlab.onnx.layers import kept
from gradlab.onnx.loading import OnnxModel
from gradlab.onnx.lowering import Lowering, UnsupportedError
from gradlab.onnx.packages import format_package, runtime_package
from gradlab.onnx.patterns import batch_norms
from gradlab.tensor.generator import default_generator

LIMIT = 1_900_000_000  # bytes of tensors that a single file takes: protobuf's limit is 2 GiB
PLAIN = 20  # the opset that is written where none is wanted, and where an older one cannot say it
OLDEST, LEAST = 11, 7  # the oldest that is written, and the oldest that may be asked for


@dataclass(frozen=True)
class Exported:
    """What was written. Shapes hold numbers and the names of dynamic sizes; `deviation` is a share of an output's largest number."""

    path: Path
    opset: int
    inputs: dict[str, tuple[Any, ...]]
    outputs: dict[str, tuple[Any, ...]]
    nodes: int
    parameters: int
    checked_by: str = "nothing: check=False"
    deviation: float = 0.0
    sizes: tuple[str, ...] = field(default_factory=tuple)
    unchecked: tuple[str, ...] = ()


def export(
    model: Any,
    example: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    dynamic: Any = None,
    opset: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    check: bool = True,
    tolerance: float | None = None,
    check_sizes: Mapping[str, int] | None = None,
    external_data: bool | None = None,
    args: Any = None,
    f: str | os.PathLike[str] | None = None,
    dynamic_axes: Any = None,
    opset_version: int | None = None,
    export_params: bool = True,
    do_constant_folding: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamo: bool = True,
    verbose: bool | None = None,
) -> Exported:
    """Write `model` as an ONNX file at `path`; what was written and how far its results deviate from the model's.

    model: a module (as it is: call eval() first), a function of tensors, or a program of `gradlab.graph.trace`.
    example: its arguments: a tensor, or a tuple of what it takes (tensors nested in lists, tuples and dicts).
    dynamic: sizes that may differ from the example's, by input (its name or number) and dimension: {"x": {0: "batch"}} or
    {"x": ["batch", None]}. One name is one size.
    opset: the version of ONNX's operators, from 11 on, by default 20; where an older one cannot say it, 20 with a warning.
    input_names, output_names: by default the function's parameters, and "output".
    check: run the file with ONNX Runtime on the example, and with dynamic sizes on a second one (check_sizes: {"batch": 7} says which),
    beside the model itself. tolerance: by default 1e-4 of each output's largest number for float32 (float64 1e-6, float16 1e-2, bfloat16
    4e-2). external_data: tensors in a file of their own, path + ".data"; by default where one file would be too large.
    args, f, dynamic_axes, opset_version: PyTorch's names of example, path, dynamic and opset. Of dynamic_axes those of outputs are passed
    over, since they follow; a list of dimensions names them by itself. export_params, do_constant_folding and keep_initializers_as_inputs
    are always as they are by default (ValueError otherwise); dynamo and verbose change nothing.

    Raises ImportError without the packages onnx and onnxruntime; UnsupportedError, naming every operation that ONNX cannot say and its
    line; ExportError where the file's results deviate. Then nothing is written, and a file that was there stays as it was.
    """
    example = args if example is None else example
    path = f if path is None else path
    if path is None:
        raise TypeError("onnx.export: the path of the file is missing: export(model, example, path)")
    if not export_params or not do_constant_folding or keep_initializers_as_inputs:
        raise ValueError("onnx.export: a file holds its parameters as constants; leave out export_params, do_constant_folding and "
                         "keep_initializers_as_inputs")  # fmt: skip
    opset = (PLAIN if opset_version is None else opset_version) if opset is None else opset
    onnx = format_package()
    if check:
        runtime_package()
    newest = onnx.defs.onnx_opset_version()
    if not LEAST <= opset <= newest:
        raise ValueError(f"onnx.export: opset is {LEAST} to {newest} (what the onnx package {onnx.__version__} knows), not {opset}")
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"onnx.export: there is no directory {target.parent}")
    work = _Work(plain(model), example if isinstance(example, tuple) else (example,), input_names)
    work.trace(axes(dynamic_axes, output_names) if dynamic is None else dynamic, check)
    with _folder(target) as folder:
        write = partial(work.write, folder / target.name, names=output_names, external=external_data, check=check, sizes=check_sizes,
                        tolerance=tolerance)  # fmt: skip
        try:
            files, found = write(opset)
        except (UnsupportedError, ExportError) as error:
            if opset >= PLAIN:
                raise
            files, found = write(PLAIN)
            reason = " ".join(str(error).split())
            warnings.warn(f"onnx.export: the file has opset {PLAIN}, not {opset}: {reason}", ExportWarning, stacklevel=2)
        for part in files:
            os.replace(folder / part, target.parent / part)
    return dataclasses.replace(found, path=target)


def _no_arrays(example: Any) -> None:
    """Refuse NumPy arrays among the arguments: they would be constants of the file, not inputs."""
    if isinstance(example, np.ndarray):
        raise TypeError("onnx.export: the example holds a NumPy array; inputs are tensors: gl.from_numpy(array)")
    if isinstance(example, (list, tuple, dict)):
        for part in example.values() if isinstance(example, dict) else example:
            _no_arrays(part)


class _Work:
    """One export: the model, its example, and what was traced."""

    def __init__(self, model: Any, arguments: tuple[Any, ...], names: Sequence[str] | None) -> None:
        self.model, self.arguments = model, arguments
        _no_arrays(arguments)
        self.tensors, self.structure = flatten(arguments)
        self.names = input_names(model, self.structure, names)
        self.dynamic: Dynamic = {}
        self.first: list[Any] = []
        self.program: Program
        self.graph: Graph
        self.results: list[Wire] = []

    def trace(self, dynamic: Any, run: bool) -> None:
        """Trace the model. A module runs once before: that makes what is lazy."""
        self.dynamic = dynamic_sizes(dynamic, self.names, [t._array.shape for t in self.tensors])
        if isinstance(self.model, Program):
            if self.dynamic:
                raise ValueError("onnx.export: a program is traced already; give its dynamic sizes to trace(…, dynamic=…)")
            self.program = self.model
            self.dynamic = _known(self.program.graph, self.tensors)
        else:
            if isinstance(self.model, Module):
                self.first = self.eager(self.arguments, None)
            self.program = self._traced()
        self.graph = self.program.graph
        if run and not self.first:
            self.first = self.eager(self.arguments, self.graph)
        self._warn()

    def _traced(self) -> Program:
        hints = [{i: {d: unknown(s) if isinstance(s, str) else s for d, s in dims.items()} for i, dims in self.dynamic.items()}]
        if self.dynamic:  # comparisons such as length <= maximum need a hint that is possible: the example's size
            own = {i: {d: self._hint(s, self.tensors[i]._array.shape[d]) for d, s in dims.items()} for i, dims in self.dynamic.items()}
            hints.append(own)
        for last, sizes in zip((not self.dynamic, True), hints):
            try:
                with _quiet(self.model), kept() if isinstance(self.model, Module) else nullcontext():
                    return trace(self.model, *self.arguments, dynamic=sizes)
            except TraceError:
                raise
            except (ValueError, IndexError, RuntimeError, AssertionError):
                if last:
                    raise
        raise AssertionError

    @staticmethod
    def _hint(size: Any, actual: int) -> Any:
        return unknown(size, max(int(actual), 2)) if isinstance(size, str) else size

    def _warn(self) -> None:
        advice = "; call eval() on the model first" if isinstance(self.model, Module) and self.model.training else ""
        if self.graph.random:
            warnings.warn(f"onnx.export: the program draws random numbers, and ONNX draws others{advice}", ExportWarning, stacklevel=4)
        if self.graph.updates or any(v is not None for _, v in self.graph.gradients):
            count = len(self.graph.updates)
            warnings.warn(
                f"onnx.export: the program writes {count} tensors that it keeps (running statistics, parameters), which ONNX cannot: the "
                f"file computes the results alone{advice}", ExportWarning, stacklevel=4,
            )  # fmt: skip

    def eager(self, arguments: tuple[Any, ...], graph: Graph | None) -> list[Any]:
        """The model's own results; what it changes is put back."""
        with _unchanged(self.model, graph), _quiet(self.model):
            found, _ = flatten(self.model(*arguments))
            return [_host(t) for t in found]

    def lower(self, opset: int, names: Sequence[str] | None, title: str) -> tuple[Lowering, Any, list[str]]:
        """The nodes, the model's message, the outputs' names. Raises UnsupportedError."""
        outputs = output_names(self.model, self.program._result, names)
        graph = drop_clones(dataclasses.replace(self.graph, updates=[], gradients=[]).without_dead_calls())
        if not self.dynamic:
            graph = fold_constants(graph)
        graph = batch_norms(graph).without_dead_calls()
        lowering = Lowering(opset, {} if isinstance(self.model, Program) else parameter_names(self.model))
        e = lowering.e
        clash = sorted(set(self.names) & set(outputs))
        if clash:
            raise ValueError(f"onnx.export: {', '.join(clash)} is the name of an input and of an output; pass output_names")
        inputs = [Wire(lowering.names.fresh(n), v.spec.dtype, e, v.spec.shape) for n, v in zip(self.names, graph.inputs)]
        lowering.names.taken.update(outputs)
        for wire in inputs:
            for dim, size in enumerate(wire.shape or ()):
                if isinstance(size, Dim):
                    e.leaves.setdefault(size.expr, (wire, dim))
        e.hints = hints_of(e.leaves)
        self.results = lowering.graph(graph, inputs)
        if lowering.missing:
            raise UnsupportedError(lowering.missing)
        proto = model_of(e, Ends(inputs, self.names), Ends(self.results, outputs), title)
        return lowering, proto, outputs

    def write(
        self, file: Path, opset: int, *, names: Sequence[str] | None, external: bool | None, check: bool, sizes: Mapping[str, int] | None,
        tolerance: float | None,
    ) -> tuple[list[str], Exported]:  # fmt: skip
        """Write a file of an opset, checked; the names of its parts. Raises UnsupportedError and ExportError."""
        if opset < OLDEST:
            raise ExportError(f"the oldest opset that is written is {OLDEST}")
        onnx = format_package()
        lowering, proto, outputs = self.lower(opset, names, file.stem)
        files = _write(onnx, proto, file, bytes_of(lowering.e.constants), external)
        try:
            onnx.checker.check_model(str(file), full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise ExportError(f"onnx.export: ONNX's checker refuses the model: {error}") from error
        verdict, shown = Verdict("nothing: check=False", 0.0, ()), tuple[str, ...]()
        if check:
            random = {n for n, w in zip(outputs, self.results, strict=True) if w.name in lowering.e.drawn}
            cases = self.cases(sizes)
            verdict, shown = verify(file, cases, outputs, random, tolerance), tuple(c.sizes for c in cases if c.sizes and not c.may_differ)
        graph = self.graph
        return files, Exported(
            file, opset, {n: tuple(v.spec.shape) for n, v in zip(self.names, graph.inputs)},
            {n: tuple(v.spec.shape) for n, v in zip(outputs, graph.outputs)}, len(proto.graph.node),
            sum(int(a.size) for a in graph.state.values()), verdict.runner, verdict.deviation, shown, verdict.unchecked,
        )  # fmt: skip

    # ------------------------------------------------------------ what the file is compared on

    def cases(self, wanted: Mapping[str, int] | None) -> list[Case]:
        """The example, and with dynamic sizes a second one and, where the model runs with them, smaller ones."""
        found = [Case(dict(zip(self.names, map(_host, self.tensors))), self.first, "")]
        if not self.dynamic:
            return found
        own = {_label(s): int(self.tensors[i]._array.shape[d]) for i, dims in self.dynamic.items() for d, s in dims.items()}
        if wanted is not None:
            if unknown_names := sorted(set(wanted) - set(own)):
                raise ValueError(f"onnx.export: check_sizes names {', '.join(unknown_names)}; the dynamic sizes are {', '.join(own)}")
            return [*found, self._resized_case([{**own, **wanted}])]
        found.append(self._resized_case([{n: change(s, i) for i, (n, s) in enumerate(own.items())} for change in CHANGES]))
        smaller = [{n: min(s, least) for n, s in own.items()} for least in (1, 2)]
        try:
            return [*found, self._resized_case([sizes for sizes in smaller if sizes != own])._replace(may_differ=True)]
        except Exception:  # of the model's code, which need not take them
            return found

    def _resized_case(self, trials: list[dict[str, int]]) -> Case:
        """The first sizes that the model runs with. Raises ExportError for none."""
        error: Exception | None = None
        for sizes in trials:
            tensors = [self._resized(i, t, sizes) for i, t in enumerate(self.tensors)]
            try:
                results = self.eager(tuple(unflatten(self.structure, tensors)), self.graph)
            except (ValueError, IndexError, RuntimeError, AssertionError) as found:
                error = found
                continue
            text = ", ".join(f"{n}={s}" for n, s in sizes.items())
            return Case(dict(zip(self.names, map(_host, tensors))), results, text)
        raise ExportError(
            f"onnx.export: the model ran with no other sizes than the example's (tried {'; '.join(map(str, trials))}), so the dynamic "
            f"sizes cannot be checked; say others in check_sizes. The last error: {error}"
        )

    def _resized(self, i: int, tensor: Any, sizes: Mapping[str, int]) -> Any:
        """An input of other sizes: its elements repeated, floating point ones changed a little."""
        if i not in self.dynamic:
            return tensor
        array = _host(tensor)
        for dim, size in self.dynamic[i].items():
            array = np.take(array, np.arange(sizes[_label(size)]) % max(array.shape[dim], 1), axis=dim)
        if array.dtype.kind not in "iub":
            wave = 1 + 0.1 * np.sin(np.arange(array.size)).reshape(array.shape)
            array = (array.astype(np.float64) * wave).astype(array.dtype)
        device = tensor.device
        return wrap(dispatch.backend_for(device).from_numpy(array, device))


CHANGES: tuple[Callable[[int, int], int], ...] = (
    lambda size, i: size + 1 + i, lambda size, i: size + 1, lambda size, i: 2 * size, lambda size, i: size + 2, lambda size, i: size + 8,
    lambda size, i: max(size - 1, 1), lambda size, i: max(size // 2, 1),
)  # fmt: skip


def _label(size: Any) -> str:
    label: str = size if isinstance(size, str) else size.expr
    return label


def _known(graph: Graph, tensors: Sequence[Any]) -> Dynamic:
    """The unknown sizes of a program's inputs."""
    if len(graph.inputs) != len(tensors):
        raise ValueError(f"onnx.export: the program takes {len(graph.inputs)} tensors, the example has {len(tensors)}")
    found: Dynamic = {}
    for i, value in enumerate(graph.inputs):
        for dim, size in enumerate(value.spec.shape):
            if isinstance(size, Dim):
                found.setdefault(i, {})[dim] = size
    return found


def _host(tensor: Any) -> Any:
    return np.array(dispatch.backend_of(tensor._array).to_numpy(tensor._array))


@contextmanager
def _quiet(model: Any) -> Iterator[None]:
    """A module runs without recording gradients, and gives tensors; a function may compute some of its own."""
    if isinstance(model, Module):
        with no_grad(), model.without_maps() if isinstance(model, OnnxModel) else nullcontext():
            yield
    else:
        yield


@contextmanager
def _unchanged(model: Any, graph: Graph | None) -> Iterator[None]:
    """Put back what a run of the model changes: buffers, updated state, gradients, the random stream."""
    tensors: list[Differentiable] = list(model.buffers()) if isinstance(model, Module) else []
    arrays = {id(t._array): t._array for t in tensors if hasattr(t._array, "shape")}
    leaves: list[Any] = []
    generators: list[Any] = [default_generator]
    if graph is not None:
        state = {v.id: a for v, a in graph.state.items()}
        arrays.update((id(state[old.id]), state[old.id]) for old, _ in graph.updates if isinstance(old, Value) and old.id in state)
        leaves = [(leaf, leaf._grad) for leaf, _ in graph.gradients]
        generators += [g for g, _, _ in graph.random]
    kept = [(a, dispatch.backend_of(a).copy(a)) for a in arrays.values()]
    places = [(g, g.get_state()) for g in generators]
    try:
        yield
    finally:
        for array, copy in kept:
            dispatch.backend_of(array).assign(array, copy)
        for leaf, gradient in leaves:
            leaf._grad = gradient
        for generator, place in places:
            generator.set_state(place)


@contextmanager
def _folder(target: Path) -> Iterator[Path]:
    """A directory beside the target, which goes again: files are moved from it when they are complete and checked."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(onnx: Any, proto: Any, file: Path, size: int, external: bool | None) -> list[str]:
    """Write the model into a directory; the names of its files, the one that refers to the others last."""
    if external or (external is None and size > LIMIT):
        data = f"{file.name}.data"
        onnx.save_model(proto, str(file), save_as_external_data=True, all_tensors_to_one_file=True, location=data, size_threshold=1024)
        return [data, file.name] if (file.parent / data).exists() else [file.name]
    if size > LIMIT:
        raise ExportError(f"onnx.export: the tensors take {size} bytes, above the {LIMIT} that one file holds; leave external_data out")
    file.write_bytes(proto.SerializeToString())
    return [file.name]
