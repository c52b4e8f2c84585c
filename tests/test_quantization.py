"""Fake quantisation beside its formula and PyTorch, and models of few bits: accuracy, size, compiled, as ONNX and as C."""

import importlib.util

import numpy as np
import pytest
from deployed import SANITIZE, compiled, compiler, ran, sanitizers, traced

import gradlab as gl
from gradlab import nn
from gradlab.ao import quantization as Q
from gradlab.data import digits, digits_split
from gradlab.models import DigitsCNN, DigitsMLP
from gradlab.nn import functional as F


def test_numbers_lie_on_the_grid_and_gradients_pass_straight_through():
    x = gl.tensor([-9.0, -0.26, 0.26, 0.74, 3.4, 99.0, float("inf")], requires_grad=True)
    y = gl.fake_quantize_per_tensor_affine(x, 0.5, 1, -8, 7)
    assert y.tolist() == [-4.5, -0.5, 0.5, 0.5, 3.0, 3.0, 3.0]
    y.backward(gl.arange(1.0, 8.0))
    assert x.grad.tolist() == [0, 2, 3, 4, 0, 0, 0]
    rows = gl.tensor([[0.3, 0.9], [30.0, 9000.0]], requires_grad=True)
    for axis, given in ((0, rows), (-1, rows.T)):
        y = gl.fake_quantize_per_channel_affine(given, gl.tensor([0.25, 25.0]), gl.tensor([0, -2]), axis, -8, 7)
        assert (y if axis == 0 else y.T).tolist() == [[0.25, 1.0], [25.0, 225.0]]
    assert gl.autograd.grad(y.sum(), rows)[0].tolist() == [[1, 1], [1, 0]]
    for dtype in (gl.float16, gl.bfloat16, gl.float64):
        found = gl.fake_quantize_per_tensor_affine(gl.tensor([0.26, 3.0], dtype=dtype), gl.tensor(0.5), gl.tensor(0), -8, 7)
        assert found.dtype == dtype and found.tolist() == [0.5, 3.0]


def test_wrong_calls_are_named():
    x, scale, zero = gl.ones(2, 3), gl.ones(3), gl.zeros(3)
    per_tensor, per_channel = gl.fake_quantize_per_tensor_affine, gl.fake_quantize_per_channel_affine
    for call, error, message in (
        (lambda: per_tensor(x, 0.1, 9, -8, 7), ValueError, "zero_point 9 is not between -8 and 7"),
        (lambda: per_tensor(x, 0.1, 0, 8, 7), ValueError, "quant_min 8 is above quant_max 7"),
        (lambda: per_tensor(x.long(), 0.1, 0, -8, 7), RuntimeError, "the input is gradlab.int64|the input is .*int64"),
        (lambda: per_tensor(x, scale, 0, -8, 7), ValueError, r"scale is of shape \(3,\), and is one number"),
        (lambda: per_channel(x, scale, zero, 0, -8, 7), ValueError, r"scale is of shape \(3,\), where dimension 0 has 2 places"),
        (lambda: per_channel(x, scale, 0, 1, -8, 7), ValueError, "zero_point is a int"),
        (lambda: per_channel(x, scale, zero, 2, -8, 7), IndexError, "axis 2 is out of range of 2 dimensions"),
        (lambda: Q.convert(Q.prepare(nn.Linear(3, 2))), RuntimeError, "no numbers were seen yet"),
        (lambda: Q.quantize_dynamic(nn.Conv2d(1, 1, 1), {nn.Conv2d}, gl.float16), NotImplementedError, "dtype is gl.int8"),
        (lambda: Q.quantize_dynamic(nn.ReLU(), {nn.ReLU}), NotImplementedError, "is no layer of Linear"),
        (lambda: Q.QuantizedWeight(nn.Conv2d(1, 1, 1), 4), ValueError, "int4 of linear ones"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_observers_make_scales_that_hold_what_they_saw():
    seen = Q.MinMaxObserver()
    seen(gl.tensor([-1.0, 0.5])), seen(gl.tensor([3.0]))
    scale, zero = seen.calculate_qparams()
    assert scale.item() == pytest.approx(4 / 255) and zero.item() == -128 + round(255 / 4)
    symmetric = Q.MinMaxObserver(-127, 127, "per_tensor_symmetric")
    symmetric(gl.tensor([-1.0, 2.0]))
    assert [v.item() for v in symmetric.calculate_qparams()] == [pytest.approx(2 / 127), 0]
    moving = Q.MovingAverageMinMaxObserver(0.5)
    moving(gl.tensor([0.0, 1.0])), moving(gl.tensor([-2.0, 2.0]))
    assert (moving.min_val.item(), moving.max_val.item()) == (-1.0, 1.5)
    channels = Q.PerChannelMinMaxObserver(1)
    channels(gl.tensor([[1.0, -4.0], [2.0, 0.0]]))
    assert np.allclose(channels.calculate_qparams()[0].tolist(), [2 / 127.5, 4 / 127.5])


def test_int4_weights_are_within_half_a_step(tmp_path):
    layer = nn.Linear(37, 5)
    small = Q.QuantizedWeight(layer, 4)
    assert small.quantized.dtype == gl.uint8 and small.quantized.shape == (5, 32)  # 37 inputs are two groups of 32
    steps = small.scale.repeat_interleave(32, 1)[:, :37]
    assert ((small.weight() - layer.weight).abs() <= steps / 2 + 1e-6).all()
    gl.save(small.state_dict(), tmp_path / "small.safetensors")
    again = Q.QuantizedWeight(nn.Linear(37, 5), 4)
    again.load_state_dict(gl.load(tmp_path / "small.safetensors"))
    x = gl.randn(3, 37)
    assert (again(x) == small(x)).all()


@pytest.fixture(scope="module")
def learned():
    """The digits' MLP, trained for a few epochs; the training part and the held-out one."""
    gl.manual_seed(0)
    pixels, labels = digits()
    x, y = gl.tensor((pixels / 16).astype(np.float32))[:, None], gl.tensor(labels)
    training, held_out = (gl.tensor(rows) for rows in digits_split())
    model = DigitsMLP(hidden=64)
    fit(model, x[training], y[training], 12)
    return model.eval(), (x[training], y[training]), (x[held_out], y[held_out])


def fit(model, x, y, epochs, rate=3e-3):
    optimizer = gl.optim.Adam(model.parameters(), rate)
    for _ in range(epochs):
        for rows in gl.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model


def accuracy(model, x, y):
    with gl.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


def size(model):
    return sum(v.numel() * v.element_size() for v in model.state_dict().values())


def test_accuracy_with_few_bits_stays(learned):
    model, (x, y), held_out = learned
    whole = accuracy(model, *held_out)
    prepared = Q.prepare(model)
    prepared(x[:512])
    static = Q.convert(prepared)
    for small, least in ((static, 3), (Q.quantize_dynamic(model), 3), (Q.quantize_dynamic(model, bits=4, activations=False), 5)):
        assert accuracy(small, *held_out) >= whole - 0.003, small
        assert size(small) * least < size(model)
    trained = fit(Q.prepare_qat(model).train(), x, y, 1, 1e-3).eval()
    assert accuracy(Q.convert(trained), *held_out) >= whole - 0.003
    assert accuracy(trained, *held_out) == accuracy(Q.convert(trained), *held_out)
    assert accuracy(model, *held_out) == whole  # is as it was


def test_a_small_model_is_compiled_exported_and_built(learned, tmp_path):
    model, (x, _), (new, _) = learned
    prepared = Q.prepare(model)
    prepared(x[:512])
    quantised = {
        "calibrated": (Q.convert(prepared).eval(), {"QuantizeLinear", "DequantizeLinear", "Gemm"}, 3),
        "dynamic": (Q.quantize_dynamic(model).eval(), {"DynamicQuantizeLinear", "MatMulInteger"}, 3),
        "four": (Q.quantize_dynamic(model, bits=4, activations=False).eval(), {"Gemm"}, 4),
        "four, rounded": (Q.quantize_dynamic(model, bits=4).eval(), {"DynamicQuantizeLinear", "Gemm"}, 4),
    }  # fmt: skip
    for name, (small, wants, smaller) in quantised.items():
        name = name.replace(", ", "_")
        with gl.no_grad():
            wanted = small(new[:32])
            step = gl.compile(small)
            for _ in range(3):
                found = step(new[:32])
        close(found, wanted)
        if compiler() is not None:
            program, _ = traced(small, new[:32])
            built = gl.deploy.build(program, tmp_path, name=name)
            close(gl.tensor(ran(compiled(built, "-O1", *(SANITIZE if sanitizers() else ())), built, [new[:32]])[0]), wanted)
            assert built.weights.stat().st_size * smaller < size(model), "the file holds the bits"
        if importlib.util.find_spec("onnxruntime"):
            import onnx
            import onnxruntime

            gl.onnx.export(small, new[:32], tmp_path / f"{name}.onnx", check=False)
            session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
            (found,) = session.run(None, {session.get_inputs()[0].name: new[:32].numpy()})
            close(gl.tensor(found), wanted, 0.1)  # ONNX divides by the scale where PyTorch multiplies: ties of these pixels differ
            kinds = {node.op_type for node in onnx.load(tmp_path / f"{name}.onnx").graph.node}
            assert wants <= kinds, kinds


def close(found, wanted, few=0.02):
    """Equal but for few numbers that were rounded to the neighbouring step, as sums in another order may be."""
    assert ((found - wanted).abs() > 1e-4 * wanted.abs().max()).double().mean() < few
    assert (found - wanted).abs().max() < 0.05 * wanted.abs().max()


class Windows(nn.Module):
    """Strides, a dilation, groups, one channel each, one and three dimensions, padding by name and by reflection."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 18, 3, stride=2, padding=1, padding_mode="reflect")
        self.groups, self.planes = nn.Conv2d(18, 12, 3, padding="same", dilation=2, groups=3), nn.Conv2d(12, 12, 3, groups=12)
        self.cubes, self.line = nn.Conv3d(2, 4, (2, 3, 3), padding=1), nn.Conv1d(4, 5, 3, bias=False)

    def forward(self, x):
        x = self.planes(self.groups(self.first(x).relu()))
        x = self.cubes(x.reshape(x.shape[0], 2, 6, *x.shape[2:])).flatten(2)
        return self.line(x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_convolutions_give_the_same_bits_in_every_way(tmp_path, dynamic):
    gl.manual_seed(2)
    model, x = Windows().eval(), gl.randn(2, 3, 11, 9)
    seen = Q.prepare(model)
    seen(x)
    small = Q.quantize_dynamic(model, {nn.Conv1d, nn.Conv2d, nn.Conv3d}) if dynamic else Q.convert(seen).eval()
    with gl.no_grad():
        whole, wanted = model(x), small(x)
        step = gl.compile(small)
        assert all((step(x) == wanted).all() for _ in range(3))
        assert (wanted - whole).abs().max() < 0.05 * whole.abs().max()
        if compiler() is not None:
            program, _ = traced(small, x)
            built = gl.deploy.build(program, tmp_path, name="windows")
            flags = ("-march=native",) if dynamic else SANITIZE if sanitizers() else ()
            assert (ran(compiled(built, "-O1", *flags), built, [x])[0] == wanted.numpy()).all()


def test_numbers_that_are_none_do_not_vanish():
    """A NaN among inputs, which has no place on the grid, is found in its row's results; an infinity is the largest place."""
    layer, seen = nn.Linear(3, 2), Q.MinMaxObserver()
    seen(gl.tensor([-1.0, 1.0]))
    small, x = Q.QuantizedWeight(layer, 8, seen), gl.tensor([[1.0, float("nan"), 0.0], [float("inf"), 0.0, 0.0], [9.0, 0.0, 0.0]])
    found = small(x)
    assert found[0].isnan().all() and (found[1] == found[2]).all()


def test_gradients_pass_straight_through_integer_layers():
    gl.manual_seed(4)
    for model, x in ((nn.Linear(40, 5), gl.randn(3, 40)), (nn.Conv2d(4, 6, 3, padding=1, groups=2), gl.randn(2, 4, 5, 5))):
        seen = Q.MinMaxObserver()
        seen(x[:1])
        kinds = [Q.QuantizedWeight(model, 8, seen), Q.QuantizedWeight(model, 8, None, True)]
        if isinstance(model, nn.Linear):
            kinds += [Q.QuantizedWeight(model, 4, None, rounds) for rounds in (False, True)]
        for small in kinds:
            given = x.clone().requires_grad_()
            y = small(given)
            g = gl.randn(*y.shape)
            found, bias = gl.autograd.grad(y, [given, small.layer.bias], g)
            plain = x.clone().requires_grad_()
            weight = small.weight().detach()
            made = F.linear(plain, weight) if isinstance(model, nn.Linear) else F.conv2d(plain, weight, None, 1, 1, 1, 2)
            (wanted,) = gl.autograd.grad(made, plain, g)
            if small.ranged:
                low, high = ((limit - small.input_zero_point) * small.input_scale for limit in (-128.5, 127.5))
                wanted = wanted * ((x > low) & (x < high))
            assert gl.allclose(found, wanted, atol=1e-5) and gl.allclose(bias, g.sum(0) if y.ndim == 2 else g.sum((0, 2, 3)), atol=1e-5)


def test_pytorchs_names_choose_and_fuse():
    """qconfig chooses layers, batch norms go into the layers before them, observers and rounding are switched, the rest says what to do."""
    gl.manual_seed(5)
    model = nn.Sequential(Q.QuantStub(), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3), Q.DeQuantStub())
    x = gl.randn(8, 2, 6, 6)
    model.train()(x)
    with pytest.raises(ValueError, match=r"call model\.eval"):
        Q.fuse_modules(model, ["1", "2", "3"])
    model.eval()
    fused = Q.fuse_modules(model, [["1", "2", "3"]])
    assert isinstance(fused[2], nn.Identity) and gl.allclose(fused(x), model(x), atol=1e-5)
    fused.qconfig, fused[5].qconfig = Q.get_default_qconfig("fbgemm"), None
    small = Q.quantize(fused, lambda m, x: m(x), [x])
    assert isinstance(small[1], Q.QuantizedWeight) and type(small[5]) is nn.Linear
    assert (small(x) - model(x)).abs().max() < 0.03 * model(x).abs().max()
    fused.qconfig = Q.get_default_qat_qconfig()
    trained = Q.prepare_qat(fused).train()
    trained(x)
    kept = trained[1].inputs.activation_post_process.max_val.item()
    trained.apply(Q.disable_observer)(x * 9)
    assert trained[1].inputs.activation_post_process.max_val.item() == kept
    trained.apply(Q.disable_fake_quant)
    assert (trained[1].inputs(x) == x).all()
    with pytest.raises(ValueError, match="makes a FakeQuantize"):
        fused.qconfig = Q.default_qconfig
        Q.prepare_qat(fused)
    with pytest.raises(ValueError, match="are no layer, batch norm and ReLU"):
        Q.fuse_modules(model, ["3", "4"])
    for name in ("prepare_fx", "convert_fx", "prepare_qat_fx", "fuse_modules_qat", "get_default_qconfig_mapping"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(Q, name)(model)
    for call in (lambda: Q.convert(model, {}), lambda: Q.prepare(model, allow_list=[]), lambda: Q.prepare_qat(model, {})):
        with pytest.raises(NotImplementedError, match="stays None"):
            call()


def test_every_qconfig_prepares_trains_and_converts():
    """What the qconfig says about inputs holds in the converted layers: known ranges, the range of each call, or as they are."""
    gl.manual_seed(6)
    x = gl.randn(4, 3, 4, 4)
    wanted = {f"{name}_qconfig": "dynamic" for name in ("default_dynamic", "per_channel_dynamic", "default_dynamic_qat")}
    wanted["default_weight_only_qconfig"] = "as they are"
    names = [name for name in Q.__all__ if name.endswith(("_qconfig", "_qconfig_v2")) and isinstance(getattr(Q, name), Q.QConfig)]
    assert len(names) >= 8
    for name in names:
        qconfig = getattr(Q, name)
        kind = wanted.get(name, "calibrated")
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)).eval()
        whole = model(x)
        model.qconfig = qconfig
        for prepare in (Q.prepare, Q.prepare_qat):
            if prepare is Q.prepare_qat and type(qconfig.activation()) is Q.MinMaxObserver:
                continue  # an observer alone: refused by prepare_qat, with a message
            seen = prepare(model).train()
            seen(x).sum().backward()
            small = Q.convert(seen.eval())
            assert f"inputs {kind}" in str(small[0]) and f"inputs {kind}" in str(small[3]), (name, prepare.__name__)
            assert (small(x) - whole).abs().max() < 0.05 * whole.abs().max(), (name, prepare.__name__)
        for spec in ({nn.Linear: qconfig}, {"3": qconfig}, {"": qconfig, "0": None}):
            small = Q.quantize_dynamic(model, spec)
            assert isinstance(small[0], nn.Conv2d) and isinstance(small[3], Q.QuantizedWeight), (name, spec)
            assert small[3].dynamic == (kind != "as they are") and (small(x) - whole).abs().max() < 0.05 * whole.abs().max()
    assert isinstance(Q.quantize_dynamic(model, {"0"})[0], Q.QuantizedWeight)
    with pytest.raises(ValueError, match="no module '7'"):
        Q.quantize_dynamic(model, {"7"})


@pytest.mark.slow
def test_convolutions_keep_their_accuracy():
    gl.manual_seed(1)
    pixels, labels = digits()
    x, y = gl.tensor((pixels / 16).astype(np.float32))[:, None], gl.tensor(labels)
    training, held_out = (gl.tensor(rows) for rows in digits_split())
    model = fit(DigitsCNN(), x[training], y[training], 8).eval()
    whole = accuracy(model, x[held_out], y[held_out])
    prepared = Q.prepare(model)
    prepared(x[training][:512])
    found = {
        "calibrated": Q.convert(prepared), "dynamic": Q.quantize_dynamic(model, {nn.Linear, nn.Conv2d}),
        "trained": Q.convert(fit(Q.prepare_qat(model).train(), x[training], y[training], 1, 1e-3).eval()),
    }  # fmt: skip
    for name, small in found.items():
        assert accuracy(small, x[held_out], y[held_out]) >= whole - 0.003, name


@pytest.mark.torch
def test_values_and_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for scale, zero, low, high in ((0.1, 3, -8, 7), (0.037, 0, -128, 127), (1.7, 200, 0, 255)):
        x = (rng.normal(size=(64, 9)) * 40 * scale).astype(np.float32)
        ours, theirs = gl.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        for axis in (None, 0, 1):
            if axis is None:
                y = gl.fake_quantize_per_tensor_affine(ours, scale, zero, low, high)
                z = torch.fake_quantize_per_tensor_affine(theirs, scale, zero, low, high)
            else:
                scales, zeros = (np.linspace(scale / 2, scale, x.shape[axis]).astype(np.float32), np.full(x.shape[axis], zero, np.int32))
                y = gl.fake_quantize_per_channel_affine(ours, gl.tensor(scales), gl.tensor(zeros), axis, low, high)
                z = torch.fake_quantize_per_channel_affine(theirs, torch.tensor(scales), torch.tensor(zeros), axis, low, high)
            assert (y.detach().numpy() == z.detach().numpy()).all()
            (g,), (h,) = gl.autograd.grad(y.sum(), [ours]), torch.autograd.grad(z.sum(), [theirs])
            assert (g.numpy() == h.numpy()).all()


class Reads(nn.Module):
    """What models do with their layers beside calling them."""

    def __init__(self):
        super().__init__()

        class Twice(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        self.first, self.twice, self.attention = nn.Linear(6, 8), Twice(8, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.convolution, self.block = nn.Conv1d(8, 8, 3, padding=1), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.seen = 0
        self.first.register_forward_hook(lambda module, given, found: found * 3)
        self.first.register_forward_pre_hook(self.note)

    def note(self, module, given):
        self.seen += 1

    def forward(self, x):
        x = self.twice(self.first(x)) * self.first.out_features / self.first.in_features + self.first.bias
        x = self.block(self.attention(x, x, x)[0])
        return self.convolution(x.transpose(1, 2)) / self.convolution.stride[0]


def test_hooks_subclasses_and_what_a_model_reads_of_its_layers_stay():
    """Classes of the user's, whose forward is another, are left as in PyTorch; so is the layer that attention reads, not calls."""
    gl.manual_seed(0)
    model, x = Reads().eval(), gl.randn(2, 5, 6)
    want = model(x)
    seen, trained = Q.prepare(model), Q.prepare_qat(model)
    assert gl.allclose(seen(x), want, atol=1e-6)
    trained.train()(x)
    for small in (Q.convert(seen), Q.convert(trained.eval()), Q.quantize_dynamic(model, {nn.Linear, nn.Conv1d}),
                  Q.quantize_dynamic(model, bits=4, activations=False), trained):  # fmt: skip
        before = small.seen
        assert (small(x) - want).abs().max() < 0.2 * want.abs().max()
        assert small.seen == before + 1 and type(small.twice) is type(model.twice)
        assert type(small.attention.out_proj) is type(model.attention.out_proj)
    assert model.seen == 1 and type(model.first) is nn.Linear
