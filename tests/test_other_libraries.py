"""Libraries that know nothing of gradlab, and what they do with tensors as they are. Each is skipped where it is not installed."""

import importlib.util
import io
import struct
import subprocess
import sys

import numpy as np
import pytest

import gradlab as gl


def of(name):
    return pytest.importorskip(name)


# ------------------------------------------------------------ einops, opt_einsum


def test_einops_functions():
    einops = of("einops")
    x = gl.randn(2, 3, 4, requires_grad=True)
    array = x.detach().numpy()
    pairs = [
        (lambda y: einops.rearrange(y, "a b c -> (c a) b")), (lambda y: einops.repeat(y, "a b c -> a d b c", d=5)),
        (lambda y: einops.rearrange([y, y], "l a b c -> a (l b) c")), (lambda y: einops.einsum(y, y, "a b c, a d c -> b d")),
        (lambda y: einops.pack([y, y[..., 0]], "a b *")[0]), (lambda y: einops.unpack(y, [(2,), (2,)], "a b *")[1]),
        *((lambda y, op=op: einops.reduce(y, "a b c -> b", op)) for op in ("min", "max", "sum", "mean", "prod")),
    ]  # fmt: skip
    for call in pairs:
        found = call(x)
        assert found.requires_grad
        np.testing.assert_allclose(found.detach().numpy(), call(array), rtol=2e-5, atol=1e-6)
    assert einops.reduce(x > 0, "a b c -> b", "any").dtype == gl.bool
    assert einops.parse_shape(x, "a b _") == {"a": 2, "b": 3} and einops.asnumpy(x).shape == (2, 3, 4)
    traced = gl.jit.trace(lambda y: einops.rearrange(y, "a b -> b a"), gl.ones(2, 3))
    assert traced(gl.zeros(2, 3)).shape == (3, 2)


def test_einops_on_a_gpu(cuda):
    einops = of("einops")
    found = einops.reduce(gl.ones(2, 3, device="cuda"), "a b -> a", "sum")
    assert found.device.type == "cuda" and found.tolist() == [3, 3]


def test_einops_layers():
    of("einops")
    from einops.layers.gradlab import EinMix, Rearrange, Reduce  # optional

    mix = EinMix("a (h c) d -> a d (h e)", weight_shape="h c e", bias_shape="h e", h=2, c=2, e=3)
    model = gl.nn.Sequential(mix, Reduce("a d e -> a e", "mean"), Rearrange("a (b c) -> a b c", b=2))
    found = model(gl.ones(5, 4, 6))
    found.sum().backward()
    assert found.shape == (5, 2, 3) and [name for name, _ in model.named_parameters()] == ["0.weight", "0.bias"]
    assert all(p.grad is not None for p in model.parameters())


ORDERS = ["import gradlab as gl, einops", "import einops, gradlab as gl", "import gradlab as gl; from einops import rearrange"]


@pytest.mark.parametrize("order", ORDERS)
def test_whoever_is_imported_first(order):
    of("einops")
    program = f"{order}\nimport einops\nassert einops.rearrange(gl.ones(2, 3), 'a b -> b a').shape == (3, 2)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported_for_einops():
    program = "import sys, gradlab; assert 'einops' not in sys.modules and 'gradlab.interchange.einops_backend' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=300).returncode == 0


def test_opt_einsum():
    opt_einsum = of("opt_einsum")
    shapes = {"a": 3, "b": 4, "c": 5, "d": 3}
    for formula in ("ab,bc->ac", "ab,bc,cd->da", "ab->ba", "ab,bc,cd,da->", "ab,ab->a", "ab,bc->ca"):
        parts = [gl.randn(*(shapes[x] for x in part), requires_grad=True) for part in formula.split("->")[0].split(",")]
        found = opt_einsum.contract(formula, *parts)
        assert found.requires_grad
        expected = np.einsum(formula, *(x.detach().numpy() for x in parts))
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    expression = opt_einsum.contract_expression("ij,jk->ik", gl.ones(2, 3), (3, 4), constants=[0])
    assert expression(gl.ones(3, 4)).tolist() == [[3.0] * 4] * 2


# ------------------------------------------------------------ Matplotlib

LINES = {
    "plot": lambda p, v: p.plot(v), "plot of two": lambda p, v: p.plot(v, v), "hist": lambda p, v: p.hist(v),
    "bar": lambda p, v: p.bar(gl.arange(6), v),
    "scatter": lambda p, v: p.scatter(v, v, c=v, s=v.abs()), "fill_between": lambda p, v: p.fill_between(gl.arange(6), v),
    "errorbar": lambda p, v: p.errorbar(gl.arange(6), v, yerr=v.abs()), "boxplot": lambda p, v: p.boxplot(v),
    "stem": lambda p, v: p.stem(v),
    "step": lambda p, v: p.step(v, v), "barh": lambda p, v: p.barh(gl.arange(6), v), "pie": lambda p, v: p.pie(v.abs()),
    "hist2d": lambda p, v: p.hist2d(v, v), "violinplot": lambda p, v: p.violinplot(v), "quiver": lambda p, v: p.quiver(v, v, v, v),
}  # fmt: skip
SURFACES = {
    "plot": lambda p, v: p.plot(v), "imshow": lambda p, v: p.imshow(v), "pcolormesh": lambda p, v: p.pcolormesh(v),
    "hist": lambda p, v: p.hist(v),
    "contour": lambda p, v: p.contour(v), "contourf": lambda p, v: p.contourf(v), "matshow": lambda p, v: p.matshow(v),
    "colours": lambda p, v: p.imshow(gl.stack([v, v, v], -1)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), [*((name, (6,)) for name in LINES), *((name, (6, 5)) for name in SURFACES)])
@pytest.mark.filterwarnings("ignore")
def test_matplotlib(name, shape):
    matplotlib = of("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # optional

    draw = (LINES if len(shape) == 1 else SURFACES)[name]
    try:
        plt.figure()
        draw(plt, gl.rand(*shape))
        plt.savefig(io.BytesIO())
        with pytest.raises(RuntimeError, match=r"requires grad.*\.detach\(\)"):
            draw(plt, gl.rand(*shape, requires_grad=True))
    finally:
        plt.close("all")


# ------------------------------------------------------------ pictures, TensorBoard, the default device


def test_make_grid():
    grid = gl.utils.make_grid(gl.arange(5.0).reshape(5, 1, 1, 1).expand(5, 1, 4, 4), nrow=3, padding=1, pad_value=9.0)
    assert grid.shape == (3, 11, 16) and grid[0, 1, 1] == 0 and grid[2, 6, 6] == 4 and grid[1, 0, 0] == 9 and grid[0, 10, 15] == 9
    assert gl.utils.make_grid([gl.zeros(3, 2, 2)]).shape == (3, 2, 2) and gl.utils.make_grid(gl.zeros(2, 2)).shape == (3, 2, 2)
    scaled = gl.utils.make_grid(gl.tensor([[[[2.0, 4.0]]], [[[0.0, 1.0]]]]), padding=0, normalize=True, scale_each=True)
    assert scaled[0].tolist() == [[0.0, 1.0, 0.0, 1.0]]
    assert gl.utils.make_grid(gl.tensor([[[[2.0, 4.0]]]]), normalize=True, value_range=(0.0, 8.0))[0].tolist() == [[0.25, 0.5]]
    with pytest.raises(ValueError, match="not of shape"):
        gl.utils.make_grid(gl.zeros(3))
    with pytest.raises(TypeError, match="value_range"):
        gl.utils.make_grid(gl.zeros(1, 1, 2, 2), value_range=3)


@pytest.mark.torch
def test_make_grid_of_torchvision():
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    import torch
    import torchvision  # optional

    x = np.random.default_rng(0).random((7, 3, 5, 4), np.float32)
    for options in ({}, {"nrow": 3, "padding": 1, "normalize": True}, {"normalize": True, "scale_each": True, "pad_value": 0.5}):
        expected = torchvision.utils.make_grid(torch.from_numpy(x), **options).numpy()
        np.testing.assert_allclose(gl.utils.make_grid(gl.from_numpy(x), **options).numpy(), expected, atol=1e-6)


def test_save_image(tmp_path):
    gl.utils.save_image(gl.rand(5, 1, 8, 8), tmp_path / "x.png", nrow=2)
    content = (tmp_path / "x.png").read_bytes()
    assert content[:4] == b"\x89PNG" and struct.unpack(">II", content[16:24]) == (22, 32)
    gl.utils.save_image(gl.rand(3, 8, 8, requires_grad=True), file := io.BytesIO())
    assert file.getvalue()[:4] == b"\x89PNG"


def test_a_graph_of_a_frozen_model(tmp_path):
    model = gl.nn.Sequential(gl.nn.Linear(3, 4), gl.nn.ReLU()).requires_grad_(False)
    with gl.no_grad(), gl.utils.tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, gl.ones(1, 3))
    assert not any(p.requires_grad for p in model.parameters())
    content = next(tmp_path.iterdir()).read_bytes()
    assert b"Sequential/Linear" in content
    if importlib.util.find_spec("tensorboard") is not None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # optional

        events = EventAccumulator(str(tmp_path))
        events.Reload()
        assert len(events.Graph().node) > 3


@pytest.mark.parametrize(("name", "said"), [("cpu", "cpu"), ("meta", "meta"), ("gpu", "GRADLAB_DEVICE=gpu: no device 'gpu'")])
def test_the_device_of_the_environment(name, said):
    program = "import gradlab as gl; print(gl.get_default_device(), gl.ones(2).device.type, gl.nn.Linear(2, 2).weight.device.type)"
    environment = {"GRADLAB_DEVICE": name, "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False, env=environment)
    if name == "gpu":
        assert done.returncode != 0 and said in done.stderr
    else:
        assert done.stdout.split() == [said] * 3
