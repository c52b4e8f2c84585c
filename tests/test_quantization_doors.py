"""Few bits of models in every dtype, in bodies of control flow, moved to another type: eager, compiled, as C and as ONNX give the same."""

import importlib.util

import numpy as np
import pytest
from deployed import SANITIZE, compiled, compiler, ran, sanitizers, traced

import gradlab as gl
from gradlab import nn
from gradlab.ao import quantization as Q

KINDS = {
    "calibrated": None,
    "dynamic": lambda model: Q.quantize_dynamic(model, {nn.Linear, nn.Conv2d}),
    "int4, rounded": lambda model: Q.quantize_dynamic(model, bits=4),
    "int4": lambda model: Q.quantize_dynamic(model, bits=4, activations=False),
    "weights": lambda model: Q.quantize_dynamic(model, {nn.Linear, nn.Conv2d}, activations=False),
}
OFF = {"calibrated": 0.05, "dynamic": 0.05, "int4, rounded": 0.25, "int4": 0.25, "weights": 0.05}


class Flows(nn.Module):
    """Layers in bodies of every kind of control flow."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(40, 40) for _ in range(4))
        self.window = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x):
        chosen = gl.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x), (x,))
        switched = gl.switch(gl.tensor(1), [lambda x: x, lambda x: self.c(x) + x], (chosen,))
        _, grown = gl.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, self.d(y).tanh()), (gl.tensor(0), switched))
        last, states = gl.scan(lambda h, t: (self.a(h).tanh() + t, self.b(h)), grown, gl.stack([x, x * 0.5]))
        seen = gl.cond(x.sum() > 0, lambda x: self.window(x.reshape(-1, 1, 5, 8)), lambda x: self.window(x.reshape(-1, 1, 5, 8)), (x,))
        return last, states, seen


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.window, self.linear, self.out = nn.Conv2d(1, 4, 3), nn.Linear(72, 40), nn.Linear(40, 3)

    def forward(self, x):
        return (self.out(self.linear(self.window(x).relu().flatten(1)).relu()),)


def small_of(model, kind, x):
    """A model of few bits."""
    with gl.no_grad():
        if KINDS[kind] is not None:
            return KINDS[kind](model).eval()
        seen = Q.prepare(model)
        seen(x), seen(-x)
        return Q.convert(seen).eval()


def near(found, wanted, few, far):
    """Equal, but for numbers that sums in another order or another type's last place rounded to the next step."""
    for y, z in zip(found, wanted, strict=True):
        if isinstance(y, np.ndarray):
            y = gl.tensor(y.view(np.int16)).view(gl.bfloat16) if y.dtype.kind == "V" else gl.tensor(y)
        assert y.dtype == z.dtype and y.shape == z.shape
        gap = (y.double() - z.double()).abs() / z.double().abs().max()
        assert (gap > 1e-5).double().mean() <= few and gap.max() <= far


def compiled_gives(small, x, wanted, far):
    with gl.no_grad():
        step = gl.compile(small)
        for _ in range(3):
            near(step(x), wanted, 0.1, far)


def c_gives(small, x, wanted, far, folder, flags=None):
    program, _ = traced(small, x)
    built = gl.deploy.build(program, folder, name="small")
    flags = flags if flags is not None else SANITIZE if sanitizers() else ()
    near(ran(compiled(built, "-O1", *flags), built, [x]), wanted, 0.1, far)
    return built


def onnx_gives(small, x, wanted, folder):
    assert gl.onnx.export(small, x, folder / "small.onnx").deviation <= 0.05
    found = gl.onnx.load(folder / "small.onnx")(x)
    near(found if isinstance(found, tuple) else (found,), wanted, 1.0, 0.05)


def test_half_types_are_quantised_and_stay_half():
    """Each kind, each door; scales are float32, so that a model of bfloat16 loses by its weights alone."""
    gl.manual_seed(3)
    for dtype in (gl.bfloat16, gl.float16):
        model, x = Layers().to(dtype).eval(), gl.randn(4, 1, 8, 5).to(dtype)
        with gl.no_grad():
            whole = model(x)[0].double()
        for kind in KINDS:
            small = small_of(model, kind, x)
            assert all(b.dtype == gl.float32 for n, b in small.named_buffers() if n.endswith("scale")), kind
            with gl.no_grad():
                wanted = small(x)
            (y,) = wanted
            assert y.dtype == dtype and (y.double() - whole).abs().max() < OFF[kind] * whole.abs().max(), kind
            if kind == "dynamic":
                compiled_gives(small, x, wanted, 1e-5)


def test_a_small_model_moves_to_another_type():
    gl.manual_seed(4)
    model, x = Layers().eval(), gl.randn(4, 1, 8, 5)
    for kind in KINDS:
        small = small_of(model, kind, x)
        with gl.no_grad():
            before = small(x)[0].double()
            scales = {n: b.clone() for n, b in small.named_buffers() if n.endswith("scale")}
            half = small.half()
            y = half(x.half())[0]
            assert y.dtype == gl.float16 and (y.double() - before).abs().max() < 0.03 * before.abs().max(), kind
            assert all((b == scales[n]).all() and b.dtype == gl.float32 for n, b in half.named_buffers() if n.endswith("scale"))
            assert half.out.layer.bias.dtype == gl.float16


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
def test_bodies_of_control_flow_hold_few_bits_as_c(tmp_path):
    gl.manual_seed(1)
    small, x = small_of(Flows().eval(), "dynamic", gl.zeros(3, 40)), gl.randn(3, 40)
    with gl.no_grad():
        built = c_gives(small, x, small(x), 1e-2, tmp_path, ())
    weights = sum(m.quantized.numel() for m in small.modules() if isinstance(m, Q.QuantizedWeight))
    assert weights < built.weights.stat().st_size < 2 * weights + 12000, "the file holds the bits, each once"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_door_of_every_kind(tmp_path, kind):
    gl.manual_seed(5)
    images = gl.randn(4, 1, 8, 5)
    cases = [(Layers().to(dtype).eval(), images.to(dtype)) for dtype in (gl.bfloat16, gl.float16, gl.float64)]
    for model, x in [(Flows().eval(), gl.randn(3, 40)), *cases]:
        small = small_of(model, kind, x)
        with gl.no_grad():
            wanted = small(x)
        flows, whole = isinstance(model, Flows), kind == "weights"
        compiled_gives(small, x, wanted, 1e-2 if flows or whole else 1e-5)
        if compiler() is not None:
            c_gives(small, x, wanted, 1e-2 if flows or whole else 1e-5, tmp_path)
        if importlib.util.find_spec("onnxruntime"):
            onnx_gives(small, x, wanted, tmp_path)
