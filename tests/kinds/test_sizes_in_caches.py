"""A size that is not known equals its hint, a number: what is kept for one is not given to the other, whichever came first."""

import importlib
import importlib.util
import pkgutil

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn, ops
from gradlab.graph.ir.dims import Dim, Ratio, hint, unknown
from gradlab.graph.staging.program import trace
from gradlab.spec import Spec, cached_sizes

from samples import SAMPLES

# Arguments of every function that keeps its answers by sizes (`cached_sizes`); those for real arrays alone are called by nobody else.
CACHED = {
    "ops.conv.output_shape": ((7, 4, 9, 9), (6, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    "ops.pool.output_sizes": ((7, 4, 9, 9), (3, 3), (2, 2), (0, 0), (1, 1), False),
    "strides.preserved": ((7, 4, 9), (144, 4, 16), 4), "strides.beside": ((((7, 4, 9), (36, 9, 1)), ((7, 4, 9), (36, 1, 4))), (7, 4, 9), 4),
    "ops.conv_cpu.symmetric": ((2, 3),),
    "tensor.shape._filled": ("view", (7, -1, 9), (7, 4, 9)), "tensor.shape._widened": ((7, 4, -1), (4, 9)),
    "ops.movement.numpy_index": (((2, 9, 1), 3),),
    "ops.conv_cpu.mirrored": ((9, 9), (7, 7), (3, 3), (0, 0), (1, 1)),
}
REAL = {
    "ops.conv_cpu.windows", "ops.pool_cpu.max_windows", "ops.pool_cpu.divisors", "ops.layout.triangle", "ops.gather._others",
    "taps.taps", "taps.adjoint_taps", "tensor.shape._allowed", "tensor.shape._turned",
    "ops.memory.places", "onnx.operators.fourier._basis",
}  # fmt: skip
# Keyed by names, code, bytes or nothing.
OTHERS = {
    "ops.optim._sgd_constants", "ops.optim._adam_constants", "ops.optim._lion_constants", "ops.optim_variants._rmsprop_constants",
    "graph.guards.sources.instructions_of", "graph.guards.sources.globals_of", "graph.guards.frame_operands._sizes",
    "tensor.norms.least", "deploy.loops.functions_of", "device._device",
}  # fmt: skip


def functions(wanted):
    """What modules of the library hold that has this attribute, by name."""
    found = {}
    for info in pkgutil.walk_packages(gl.__path__, "gradlab."):
        if info.name.split(".")[1] not in ("cuda", "backends", "cli", "as_torch", "sklearn", "interchange", "__main__"):
            for name, value in vars(importlib.import_module(info.name)).items():
                if callable(value) and hasattr(value, wanted) and getattr(value, "__module__", "").startswith("gradlab."):
                    found[f"{value.__module__.removeprefix('gradlab.')}.{name}"] = value
    return found


def strange(value):
    """The value with its numbers from 2 on as unknown sizes."""
    if isinstance(value, tuple):
        return tuple(map(strange, value))
    return unknown(f"s{value}", value) if type(value) is int and value > 1 else value


def plain(value):
    return tuple(map(plain, value)) if isinstance(value, tuple) else hint(value) if isinstance(value, (Dim, Ratio)) else value


def has_unknown(value):
    return any(map(has_unknown, value)) if isinstance(value, tuple) else isinstance(value, (Dim, Ratio))


N = unknown("n")


@pytest.mark.parametrize("number", [N, unknown("m", 12), N * 2 + 1, N // 3, 1 / N, N * 0.5], ids=str)
def test_what_is_kept_is_kept_for_numbers(number):
    real = hint(number)
    assert number == real
    calls = []
    for nested in (lambda n: n, lambda n: (3, n), lambda n: ((1, 2), (n, 3))):
        remembered = cached_sizes(8)(lambda *sizes: calls.append(sizes) or sizes)
        for value in (number, real, number, real):
            (found,) = remembered(nested(value))
            assert has_unknown(found) == (value is number)
        assert remembered.by_sizes.cache_info().currsize == 1
    assert len(calls) == 9


def test_all_caches_are_known():
    assert set(functions("by_sizes")) == {*CACHED, *REAL}
    others = {name for name, f in functions("cache_info").items() if f.cache_parameters()["maxsize"] is not None}
    assert others == OTHERS, "a cache by sizes is made with spec.cached_sizes; others stand here"


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("first", ["unknown", "real"])
def test_cached_shape_rules(name, first):
    function, real = functions("by_sizes")[name], CACHED[name]
    function.by_sizes.cache_clear()
    known = function.__wrapped__(*real)
    for args in (strange(real), real, strange(real)) if first == "unknown" else (real, strange(real), real):
        found = function(*args)
        assert has_unknown(found) == has_unknown(args) and plain(found) == known


@pytest.mark.parametrize("name", [name for name, row in ops.ROWS.items() if not row.dynamic])
def test_rules_of_rows(name):
    """For each sample the rule with a size unknown, in turn with the real one: it gives what it gives alone."""
    row = ops.ROWS[name]
    for sample in SAMPLES[name]:
        arrays = [x for x in sample.inputs if isinstance(x, np.ndarray)]
        for size in sorted({n for a in arrays for n in a.shape if n > 1}):
            real = [Spec(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in sample.inputs]
            odd = [Spec(tuple(strange(n) if n == size else n for n in x.shape), x.dtype) if isinstance(x, Spec) else x for x in real]
            try:
                found = [row.specs(*given, **sample.params) for given in (odd, real, odd, real)]
            except (RuntimeError, ValueError, IndexError, TypeError, AttributeError):  # a parameter holds the size as a number
                continue
            shapes = [[tuple(map(repr, spec.shape)) for spec in specs] for specs in found]
            assert shapes[0] == shapes[2] and shapes[1] == shapes[3]
            assert not any(has_unknown(spec.shape) for spec in (*found[1], *found[3]))
            assert [plain(spec.shape) for spec in found[0]] == [tuple(spec.shape) for spec in found[1]]


LAYERS = {
    "conv": nn.Conv1d(1, 1, 1), "transposed": nn.ConvTranspose1d(1, 1, 1), "max": nn.MaxPool1d(1), "average": nn.AvgPool1d(1),
    "adaptive": nn.AdaptiveAvgPool1d(1), "flat": nn.Flatten(0), "upsample": nn.Upsample(scale_factor=1), "pad": nn.ConstantPad1d(1, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_a_real_size_after_a_trace_that_failed(layer):
    """A batch as large as the prime, after a trace in which that batch was not known, failed; and the other way round."""
    size, module = hint(unknown("batch")), LAYERS[layer]
    x = gl.ones(size, 1, 1)

    def fails(x):
        module(x)
        raise RuntimeError("on purpose")

    expected = tuple(module(x[:2]).shape)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            trace(fails, x[:2], dynamic={0: {0: "batch"}})
        found = module(x).shape
        assert all(type(n) is int for n in found)
        program = trace(module, x[:2], dynamic={0: {0: "batch"}})
        assert tuple(program(x[:2]).shape) == expected and tuple(program(x[:3]).shape) != expected


@pytest.mark.parametrize("order", [("number", "size"), ("size", "number", "size")])
def test_shapes_that_equal_numbers(order):
    """A shape's class is kept by its numbers; a trace's shapes, and what is cut of them, know what they stand for."""
    number, seen = hint(unknown("batch")), []

    def note(x):
        whole = x.shape
        seen.append([whole, whole[:1], whole + (3,), (3,) + whole[:1], whole * 2, gl.Size(whole), x.size()])  # noqa: RUF005
        return x * 1

    for kind in order:
        if kind == "size":
            trace(note, gl.ones(2, 1), dynamic={0: {0: "batch"}})
        else:
            note(gl.ones(number, 1))
        assert all(type(shape) is gl.Size for shape in seen[-1])
        assert all(any(type(n) is Dim for n in shape) == (kind == "size") for shape in seen[-1])


class Refused(nn.Module):
    def forward(self, x):
        return gl.nn.functional.unfold(x, 3)


@pytest.mark.parametrize("dynamic", [{}, {0: "n"}], ids=["fixed", "dynamic"])
def test_a_file_after_an_export_that_failed(dynamic, tmp_path):
    """Through the whole way: what is written, read again and run (by ONNX Runtime too, where it is) has the sizes of numbers."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5))
    x, path = gl.randn(2, 3, 8, 8), tmp_path / "model.onnx"
    with pytest.raises(gl.onnx.UnsupportedError):
        gl.onnx.export(Refused(), (gl.randn(1, 3, 12, 12),), tmp_path / "no.onnx", input_names=["x"], dynamic_axes={"x": {2: "h", 3: "w"}})
    gl.onnx.export(model, (x,), path, input_names=["x"], dynamic_axes={"x": dynamic} if dynamic else None)
    loaded = gl.onnx.load(path)
    for rows in (2, 5) if dynamic else (2,):
        given = gl.randn(rows, 3, 8, 8)
        np.testing.assert_allclose(loaded(given).detach().numpy(), model(given).detach().numpy(), rtol=1e-5, atol=1e-6)
        if importlib.util.find_spec("onnxruntime"):
            import onnxruntime

            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            assert session.get_outputs()[0].shape[1:] == [5]
            found = session.run(None, {"x": given.numpy()})[0]
            np.testing.assert_allclose(found, model(given).detach().numpy(), rtol=1e-4, atol=1e-5)
