"""Whether the exported file says what the model says: ONNX's checker, and a run by ONNX Runtime beside the model's own results."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradlab.advice import GradlabWarning
from gradlab.dtype import FLOATING, HALF
from gradlab.onnx.packages import format_package, reference_evaluator, runtime_package
from gradlab.quiet import quietly

# Differences that are allowed, as shares of each output's largest number; integers and truth values agree exactly.
TOLERANCES = {"float64": 1e-6, "float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}
STEP = 5e-2  # of numbers rounded to 8 bits: where one lies in the middle of two, sums in another order round the other way
# What a model makes of roundings (a logarithm of sums that nearly cancel makes much of them) is allowed as well: so many times what its
# results move where inputs and weights do by one, as sums of many numbers round often, and at most so many times the tolerance.
ROUNDINGS, AT_MOST = 8, 20

KERNEL = "Could not find an implementation for "  # what ONNX Runtime says of an operator and dtype that it lacks


class ExportError(RuntimeError):
    """The exported model does not do what the model does, or cannot be run; no file is left behind."""


class ExportWarning(GradlabWarning):
    """The exported file does less than the model, or something else for some sizes."""


class Deviation(ExportError):
    """A result is further from the model's than is allowed."""


class Case(NamedTuple):
    """Inputs by name, the model's results, and what to call the sizes ("batch=3")."""

    inputs: dict[str, Any]
    results: Sequence[Any]
    sizes: str
    may_differ: bool = False  # with a warning


class Verdict(NamedTuple):
    """By what the file was run, the largest deviation as a share of an output's largest number, and what could not be compared."""

    runner: str
    deviation: float
    unchecked: tuple[str, ...]


class Runner:
    """Runs a file: ONNX Runtime, or ONNX's own interpreter for what the runtime has no kernels of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.session: Any = None
        self.reference: Any = None
        self.title = ""
        runtime = runtime_package()
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        # Above it stands NchwcTransformer, in which version 1.32 ends the whole process for some files of transposes and clips.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        try:
            self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            self.title = f"ONNX Runtime {runtime.__version__}"
        except Exception as error:
            self._refused(error)

    def _refused(self, error: Exception) -> None:
        """Another runner where ONNX Runtime has no kernel; ExportError where it refuses the file."""
        text = str(error)
        kernel = KERNEL in text or "is not supported" in text
        if not kernel and "OrtValue indexes should have been populated" not in text:  # a file of nothing but constants
            raise ExportError(f"onnx.export: ONNX Runtime refuses the model: {text}") from error
        self.session = None
        try:
            self.reference = reference_evaluator()(str(self.path))
        except Exception as odd:
            raise ExportError(f"onnx.export: ONNX Runtime refuses the model: {text}; ONNX's reference evaluator: {odd}") from error
        why = text.split(KERNEL)[1].split(" with ", maxsplit=1)[0] if KERNEL in text else "a file of nothing but constants"
        self.title = f"ONNX's reference evaluator, as ONNX Runtime has no kernel for {why}"

    def second(self, inputs: dict[str, Any]) -> list[Any] | None:
        """The results of ONNX's own interpreter, where ONNX Runtime's deviate: its fast functions (sigmoid, tanh, erf) are off in their
        tails, and a model may make much of it. None where it cannot be asked."""
        if self.session is None:
            return None
        try:
            self.reference = self.reference or reference_evaluator()(str(self.path))
            with np.errstate(all="ignore"):
                found: list[Any] = self.reference.run(None, inputs)
        except Exception:  # it lacks the operator, or has its own troubles
            return None
        return found

    def moved(self, inputs: dict[str, Any]) -> list[float] | None:
        """How far each result moves, as a share of its largest number, where inputs and weights do by a rounding error or none at all.
        None where it cannot be said."""
        onnx = format_package()
        try:
            before = self.run(inputs)
            found = [0.0] * len(before)
            for seed in range(3):
                generator = np.random.default_rng(seed)
                model = onnx.load(str(self.path))
                for weight in model.graph.initializer:
                    array = onnx.numpy_helper.to_array(weight)
                    if array.dtype.name in TOLERANCES and array.ndim:
                        weight.CopyFrom(onnx.numpy_helper.from_array(rounded(array, generator), weight.name))
                twin = self.path.with_name("moved.onnx")
                twin.write_bytes(model.SerializeToString())
                after = Runner(twin).run({k: rounded(a, generator) if a.dtype.kind == "f" else a for k, a in inputs.items()})
                found = [max(old, share(a, b)) for old, a, b in zip(found, after, before, strict=True)]
        except Exception:  # too large for one file, or what the runner has troubles with
            return None
        return found

    def run(self, inputs: dict[str, Any]) -> list[Any]:
        """The results for arrays by name."""
        if self.session is not None:
            try:
                wanted = {i.name for i in self.session.get_inputs()}
                found: list[Any] = self.session.run(None, {k: np.asarray(v, order="C") for k, v in inputs.items() if k in wanted})
                return found
            except Exception as error:
                self._refused(error)
        try:
            with np.errstate(all="ignore"):
                results: list[Any] = self.reference.run(None, inputs)
        except Exception as error:
            raise ExportError(f"onnx.export: neither ONNX Runtime nor ONNX's reference evaluator runs the model: {error}") from error
        return results


def rounded(array: Any, generator: np.random.Generator) -> Any:
    """An array whose numbers are moved by half of their last place: up, down, or not at all."""
    step = float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 2.0**-8
    signs = generator.integers(-1, 2, array.shape)
    return (array.astype(np.float64) * (1 + 0.5 * step * signs)).astype(array.dtype)


def share(a: Any, b: Any) -> float:
    """The largest difference of finite numbers as a share of b's largest one."""
    a, b = np.asarray(a), np.asarray(b)
    if b.dtype.kind != "f" or not b.size:
        return 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    largest = float(np.abs(quietly(np.subtract, a, b))[finite].max(initial=0.0))
    return largest / max(float(np.abs(b[finite]).max(initial=0.0)), float(np.finfo(np.float32).tiny)) if largest else 0.0


def in_float32(path: Path) -> Path:
    """A twin of a file whose bfloat16 inputs and outputs are float32: NumPy and ONNX Runtime do not exchange bfloat16."""
    onnx = format_package()
    model = onnx.load(str(path), load_external_data=False)
    half, full = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    before, after = [], []
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == half:
            inner, name = value.name + "__narrow", value.name
            value.type.tensor_type.elem_type = full
            before.append(onnx.helper.make_node("Cast", [name], [inner], to=half))
            replace(model.graph, name, inner)
    for value in model.graph.output:
        if value.type.tensor_type.elem_type == half:
            inner = value.name + "__narrow"
            for node in model.graph.node:
                node.output[:] = [inner if n == value.name else n for n in node.output]
            replace(model.graph, value.name, inner)
            value.type.tensor_type.elem_type = full
            after.append(onnx.helper.make_node("Cast", [inner], [value.name], to=full))
    nodes = [*before, *model.graph.node, *after]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    twin = path.with_name("check.onnx")
    onnx.save_model(model, str(twin))
    return twin


def replace(graph: Any, name: str, new: str) -> None:
    """Read another value in place of one, in inner graphs too."""
    for node in graph.node:
        node.input[:] = [new if n == name else n for n in node.input]
        for a in node.attribute:
            if a.HasField("g"):
                replace(a.g, name, new)
                for value in a.g.output:
                    value.name = new if value.name == name else value.name


def inner_tolerance(path: Path) -> float:
    """What the narrowest numbers inside a file allow: half types, and numbers rounded to 8 bits."""
    onnx = format_package()
    found = 0.0
    rounds, graphs = False, [onnx.load(str(path), load_external_data=False).graph]
    while graphs:
        graph = graphs.pop()
        codes = {t.data_type for t in graph.initializer}
        for node in graph.node:
            codes |= {a.i for a in node.attribute if a.name == "to"}
            graphs += [a.g for a in node.attribute if a.HasField("g")]
            rounds = rounds or node.op_type in ("Round", "QuantizeLinear")
        limits = {onnx.TensorProto.FLOAT16: TOLERANCES["float16"], onnx.TensorProto.BFLOAT16: TOLERANCES["bfloat16"]}
        if rounds:
            limits |= {onnx.TensorProto.INT8: STEP, onnx.TensorProto.UINT8: STEP}
        found = max([found, *(limit for code, limit in limits.items() if code in codes)])
    return found


def verify(path: Path, cases: Sequence[Case], names: Sequence[str], random: set[str], tolerance: float | None) -> Verdict:
    """Run the file for all cases beside their results. Raises ExportError naming the largest deviation."""
    arrays = [a for case in cases for a in (*case.inputs.values(), *case.results)]
    narrow = any(a.dtype.name == "bfloat16" for a in arrays)
    runner = Runner(in_float32(path) if narrow else path)
    worst, inner, title = 0.0, inner_tolerance(path), ""
    for case in cases:
        try:
            by, deviation = _verified(runner, case, names, random, tolerance, inner)
        except ExportError as error:
            if not case.may_differ:
                raise
            warnings.warn(
                f"onnx.export: with {case.sizes} the file does something else than the model, whose code (or an If of the file that it was "
                f"loaded from) decides by sizes, which is done once, as the example has them: {error}", ExportWarning, stacklevel=3,
            )  # fmt: skip
            continue
        worst, title = max(worst, deviation), title if title and by == runner.title else by
    return Verdict(title or runner.title, worst, tuple(n for n in names if n in random))


def _verified(
    runner: Runner, case: Case, names: Sequence[str], random: set[str], tolerance: float | None, inner: float
) -> tuple[str, float]:
    """By what the file gives the results of a case, and the largest deviation."""
    inputs = {k: a.astype(np.float32) if a.dtype.name == "bfloat16" else a for k, a in case.inputs.items()}
    where = f" with {case.sizes}" if case.sizes else ""
    if len(case.results) != len(names):
        raise ExportError(f"onnx.export: the file has {len(names)} results, and{where} the model gives {len(case.results)}")
    first: ExportError | None = None
    for by, found, moved in opinions(runner, inputs, tolerance is not None):
        try:
            return by, max([
                compared(name, got, want, name in random, (tolerance, inner, rounding), by, where)
                for name, got, want, rounding in zip(names, found, case.results, moved, strict=True)
            ], default=0.0)  # fmt: skip
        except ExportError as error:
            if first is None and not isinstance(error, Deviation):
                raise
            first = first or error
    assert first is not None
    raise first


def opinions(runner: Runner, inputs: dict[str, Any], strict: bool) -> Iterator[tuple[str, list[Any], list[float]]]:
    """What the file gives, and by what; again where that deviates: by ONNX's own interpreter, and (unless strict) with how far roundings
    move each result."""
    found = runner.run(inputs)
    still = [0.0] * len(found)
    yield runner.title, found, still
    second = runner.second(inputs)
    if second is not None:
        yield "ONNX's reference evaluator, as ONNX Runtime deviates by more than is allowed", second, still
    moved = None if strict else runner.moved(inputs)
    if moved is not None:
        yield f"{runner.title}, as near as roundings of inputs and weights let it be", found, moved


def compared(name: str, got: Any, want: Any, random: bool, tolerances: tuple[float | None, float, float], runner: str, where: str
             ) -> float:  # fmt: skip
    """The deviation of one output; that of random numbers is not looked at. tolerances: the caller's, what the file's inside allows, how
    far roundings move it."""
    got = np.asarray(got)
    if got.shape != want.shape:
        raise ExportError(f"onnx.export: output {name} has shape {got.shape} in {runner}{where}, the model gives {want.shape}")
    dtype = np.dtype(np.float32) if want.dtype.name == "bfloat16" else want.dtype
    if got.dtype != dtype:
        raise ExportError(f"onnx.export: output {name} is {got.dtype} in {runner}{where}, the model gives {want.dtype}")
    if random or not want.size:
        return 0.0
    if want.dtype not in FLOATING:
        if (got != want).any():
            raise ExportError(f"onnx.export: {int((got != want).sum())} of {want.size} elements of output {name} ({want.dtype}) differ in "
                              f"{runner}{where} from what the model gives")  # fmt: skip
        return 0.0
    tolerance, inner, moved = tolerances
    limit = max(TOLERANCES[want.dtype.name], inner) if tolerance is None else tolerance
    limit = max(limit, min(ROUNDINGS * moved, AT_MOST * limit))
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    odd = (np.isfinite(a) != finite) | (~finite & (a != b) & ~(np.isnan(a) & np.isnan(b)))
    if want.dtype in HALF:  # what overflows in one may not quite in the other
        odd &= ~((np.abs(a) > 6e4) & (np.abs(b) > 6e4) & (np.sign(a) == np.sign(b)))
    if odd.any():
        raise ExportError(
            f"onnx.export: {int(odd.sum())} elements of output {name} are infinite or NaN in {runner} or in the model{where}, "
            f"but not in both"
        )
    deviation = share(a, b)
    if deviation > limit:
        size = float(np.abs(b[finite]).max(initial=0.0))
        raise Deviation(
            f"onnx.export: output {name} deviates by {deviation * size:.3g} ({deviation:.2g} of its largest number {size:.3g}; {limit:g} "
            f"is allowed) in {runner}{where} from what the model gives"
        )
    return deviation
