"""ONNX's own node tests, and the doors that each is put through: compiled, saved, exported again, as C, on a GPU, with gradients."""

from __future__ import annotations

import re
import warnings

import numpy as np
import onnx
from deployed import compiled as compiled_c, ran

import gradlab as gl
from gradlab.deploy.freezing import freeze
from gradlab.deploy.program import Refused, generate
from gradlab.graph.staging.symbol import TraceError
from gradlab.onnx.holders import NAMES, held
from gradlab.onnx.importing import OPERATORS, OnnxLoadError
from gradlab.spec import ShapeError

FLOATS = {1, 10, 11, 16}
KNOWN = FLOATS | {2, 3, 5, 6, 7, 9} | set(NAMES)
RANDOM = ("bernoulli", "dropout_default_mask", "training_dropout", "random")
# A ShapeError: an open size beside a fixed one that is not 1.
REFUSALS = (NotImplementedError, OnnxLoadError, TraceError, ShapeError, gl.onnx.UnsupportedError, gl.onnx.ExportError, Refused)


def cases():
    """The node tests on numbers."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        graph = case.model.graph
        types = [v.type.tensor_type.elem_type for v in (*graph.input, *graph.output) if v.type.HasField("tensor_type")]
        plain = all(o.domain in ("", "ai.onnx") for o in case.model.opset_import)
        if plain and types and all(t in KNOWN for t in types):
            yield case


def array(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def given(value):
    value = array(value)
    if isinstance(value, list):
        return [given(v) for v in value]
    return gl.tensor(held(np.asarray(value))) if isinstance(value, (np.ndarray, np.generic)) else value


def is_random(case):
    return "bernoulli" in case.name or ("dropout" in case.name and "train" in case.name)


def compare(case, got, want):
    """A result beside the case's."""
    if isinstance(want, list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            compare(case, a, b)
        return
    got, want = (got.detach().cpu().numpy() if isinstance(got, gl.Tensor) else np.asarray(got)), held(np.asarray(array(want)))
    assert got.shape == want.shape, (got.shape, want.shape)
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    if is_random(case):
        return
    wide = [v.astype(np.float64) if v.dtype.kind in "fV" else v for v in (got, want)]
    narrow = re.search(r"cast(?:like)?_FLOAT(?:16)?_to_(U?)INT([24])", case.name)
    if narrow:  # ONNX leaves open what numbers beyond the range become, and what ml_dtypes makes of them changed with 0.7
        low, high = (0, 2 ** int(narrow[2])) if narrow[1] else (-(2 ** int(narrow[2]) // 2), 2 ** int(narrow[2]) // 2)
        x = np.asarray(array(case.data_sets[0][0][0])).astype(np.float64)
        wide = [np.where((x > low - 1) & (x < high), v.astype(np.float64), 0) for v in wide]
    np.testing.assert_allclose(*wide, rtol=case.rtol, atol=max(case.atol, 1e-7))


def numbers_among(model):
    """The names of the file's inputs that are plain numbers to the operators that read them (shapes, axes, pads)."""
    return {name for node in model.graph.node if node.op_type in OPERATORS
            for i, name in enumerate(node.input) if i in OPERATORS[node.op_type].host and name}  # fmt: skip


class Subject:
    """A case, loaded: its numbers fixed, its tensors, and what it gives."""

    def __init__(self, case):
        self.case = case
        fixed = numbers_among(case.model)
        names = [v.name for v in case.model.graph.input]
        self.sets = []
        for inputs, outputs in case.data_sets:
            values = dict(zip(names, map(given, inputs), strict=False))
            constants = {n: v.numpy() for n, v in values.items() if n in fixed and isinstance(v, gl.Tensor)}
            self.sets.append((constants, [v for n, v in values.items() if n not in constants], outputs))
        self.constants = self.sets[0][0]
        self.model = gl.onnx.load(case.model, constants=self.constants)
        self.check(self.model)

    def check(self, run, tensors_only=False):
        with np.errstate(all="ignore"), gl.no_grad():
            for constants, tensors, outputs in self.sets:
                if constants.keys() == self.constants.keys() and all(np.array_equal(v, self.constants[k]) for k, v in constants.items()):
                    got = run(*(t for t in tensors if isinstance(t, gl.Tensor) or not tensors_only))
                    for a, b in zip(got if isinstance(got, tuple) else (got,), outputs, strict=True):
                        compare(self.case, a, b)

    @property
    def tensors(self):
        return self.sets[0][1]


def compiled(subject, folder):
    run = gl.compile(subject.model)
    for _ in range(3):
        subject.check(run)


def traced(subject, folder):
    program = gl.jit.trace(subject.model, tuple(subject.tensors), check_trace=False)
    subject.check(program)
    program.save(folder / "p.glp")
    subject.check(gl.jit.load(folder / "p.glp"))


def exported(subject, folder):
    again(subject, folder, None)


def exported_open(subject, folder):
    """With the first size left open, where the model runs at another one too."""
    tensors = subject.tensors
    if not tensors or not isinstance(tensors[0], gl.Tensor) or not tensors[0].dim() or not tensors[0].shape[0]:
        return
    first = tensors[0].shape[0]
    open_ = {i for i, t in enumerate(tensors) if isinstance(t, gl.Tensor) and t.dim() and t.shape[0] == first}
    if not all(isinstance(t, gl.Tensor) for t in tensors):
        return
    for count in (first + 1, first + 2, 2 * first):
        try:
            with gl.no_grad(), np.errstate(all="ignore"):
                subject.model(*(gl.cat([t] * 3)[:count] if i in open_ else t for i, t in enumerate(tensors)))
        except Exception:
            continue
        again(subject, folder, {i: {0: "n"} for i in open_}, {"n": count})
        return


def again(subject, folder, dynamic, sizes=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gl.onnx.ExportWarning)
        gl.onnx.export(subject.model, tuple(subject.tensors), folder / "again.onnx", dynamic=dynamic, check_sizes=sizes)
    proto = onnx.load(str(folder / "again.onnx"))
    if not any(isinstance(v, list) for v in (*subject.tensors, *subject.sets[0][2])):
        assert [v.name for v in proto.graph.output] == subject.model.output_names, "names of results"
        taken = [n for n, t in zip(subject.model.input_names, subject.tensors, strict=True) if isinstance(t, gl.Tensor)]
        assert [v.name for v in proto.graph.input] == taken, "names of inputs"
        subject.check(gl.onnx.load(folder / "again.onnx"), tensors_only=True)


def is_float(value):
    return isinstance(value, gl.Tensor) and value.is_floating_point()


def gradients(subject, folder):
    """Finite where the results are, and those of the compiled program as those of eager."""
    found = []
    for run in (subject.model, gl.compile(subject.model)):
        for _ in range(2):
            tensors = [t.clone().detach().requires_grad_() if is_float(t) else t for t in subject.tensors]
            y = run(*tensors)
            results = [t for t in (y if isinstance(y, tuple) else (y,)) if is_float(t) and t.requires_grad]
            wanted = [t for t in tensors if is_float(t)]
            if not results or not wanted:
                return
            with np.errstate(all="ignore"):
                got = gl.autograd.grad([t.float().sum() for t in results], wanted, allow_unused=True)
            found.append([None if g is None else g.numpy().astype(np.float64) for g in got])
        if is_random(subject.case):
            break
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert (a is None) == (b is None), "compiled and eager differ in what has a gradient"
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True)
    if all(bool(gl.isfinite(t).all()) for t in (*results, *wanted)):
        assert all(g is None or np.isfinite(g).all() for g in found[0]), "a gradient that is not finite"


def c_text(subject, folder):
    """The program as C, not compiled."""
    generate(freeze(program_of(subject).graph), "one")


def flat(values):
    return [t for v in values for t in (flat(v) if isinstance(v, (list, tuple)) else [v])]


def c_program(subject, folder):
    """Built, compiled and run."""
    made = gl.jit.trace(lambda *given: flat([subject.model(*given)]), tuple(subject.tensors), check_trace=False)
    built = gl.deploy.build(made, folder, name="one")
    found = ran(compiled_c(built, "-O1", "-march=native"), built, flat(subject.tensors))
    wanted = flat(subject.sets[0][2])
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        kind = held(np.asarray(array(want))).dtype
        compare(subject.case, got.view(kind) if got.dtype.kind == "V" else got, want)


def on_gpu(subject, folder):
    model = gl.onnx.load(subject.case.model, constants=subject.constants, device="cuda")

    def moved(value):
        return [moved(v) for v in value] if isinstance(value, list) else value.to("cuda") if isinstance(value, gl.Tensor) else value

    subject.check(lambda *given: model(*map(moved, given)))


def program_of(subject):
    with gl.no_grad():
        return gl.jit.trace(subject.model, tuple(subject.tensors), check_trace=False)


DOORS = {"compiled": compiled, "traced": traced, "exported": exported, "exported_open": exported_open, "gradients": gradients,
         "c_text": c_text, "c_program": c_program, "on_gpu": on_gpu}  # fmt: skip
FEW = {"compiled", "gradients", "c_program", "on_gpu"}  # those that take seconds each: the first case of each operator
