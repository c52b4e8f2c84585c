"""Files in PyTorch's format between the two engines."""

import argparse
import io

import numpy as np
import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

OPTIMIZERS = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor"]


def model_of(engine):
    engine.manual_seed(0)
    nn = engine.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(16, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2),
    )  # fmt: skip


def trained(engine, model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model.eval()(engine.ones(3, 1, 4, 4)).square().sum().backward()
        optimizer.step()
    return [p.detach().numpy().copy() for p in model.parameters()]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("way", ["from PyTorch", "to PyTorch"])
def test_checkpoints(name, way, tmp_path):
    """One engine's checkpoint goes on in the other as it would have at home."""
    first, second = (torch, gl) if way == "from PyTorch" else (gl, torch)
    path = tmp_path / "checkpoint.pth.tar"
    model = model_of(first)
    optimizer = getattr(first.optim, name)(model.parameters(), lr=0.01)
    scheduler = first.optim.lr_scheduler.StepLR(optimizer, 3)
    trained(first, model, optimizer, 3)
    scheduler.step()
    checkpoint = {"epoch": 3, "args": argparse.Namespace(lr=0.01), "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(),
                  "scheduler": scheduler.state_dict(), "seen": np.arange(3), "best": first.tensor(0.5)}  # fmt: skip
    first.save(checkpoint, path)
    arrays = (np.ndarray, np.dtype, np.dtypes.Int64DType, np._core.multiarray._reconstruct)
    with second.serialization.safe_globals([argparse.Namespace, *arrays] if second is torch else []):
        found = second.load(path, map_location="cpu")
    assert found["args"].lr == 0.01 and found["seen"].tolist() == [0, 1, 2] and float(found["best"]) == 0.5
    other = model_of(second)
    other.load_state_dict(found["state_dict"])
    other_optimizer = getattr(second.optim, name)(other.parameters(), lr=1.0)
    other_optimizer.load_state_dict(found["optimizer"])
    second.optim.lr_scheduler.StepLR(other_optimizer, 3).load_state_dict(found["scheduler"])
    for ours, theirs in zip(trained(first, model, optimizer, 4), trained(second, other, other_optimizer, 4), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6)


def test_plain_values_go_to_pytorch():
    value = {
        "dtypes": {d: gl.tensor([0, 1]).to(getattr(gl, d)) for d in ("float16", "bfloat16", "float64", "int8", "int32", "uint8", "bool")},
        "turned": gl.arange(6.0).reshape(2, 3).mT, "empty": gl.zeros(0, 2), "leaf": gl.ones(2, requires_grad=True),
        "parameter": gl.nn.Parameter(gl.ones(1), requires_grad=False), "dtype": gl.bfloat16, "device": gl.device("cpu"),
        "size": gl.Size([1, 2]), "set": {1}, "number": 2.5, "complex": 1j, "bytes": b"\xff",
    }  # fmt: skip
    gl.save(value, file := io.BytesIO(), format="torch")
    file.seek(0)
    found = torch.load(file, weights_only=True)
    for name, x in found["dtypes"].items():
        assert x.dtype == getattr(torch, name) and x.tolist() == [0, 1]
    assert found["turned"].tolist() == value["turned"].tolist() and found["empty"].shape == (0, 2) and found["leaf"].requires_grad
    assert type(found["parameter"]) is torch.nn.Parameter and not found["parameter"].requires_grad
    assert (found["dtype"], found["device"], found["size"]) == (torch.bfloat16, torch.device("cpu"), torch.Size([1, 2]))
    assert (found["set"], found["number"], found["complex"], found["bytes"]) == ({1}, 2.5, 1j, b"\xff")


@pytest.mark.filterwarnings("ignore:.*weights_only=False.*:gradlab.GradlabWarning")
def test_whole_modules_of_pytorchs():
    theirs = model_of(torch)
    trained(torch, theirs, torch.optim.SGD(theirs.parameters(), lr=0.01), 2)
    torch.save(theirs.eval(), file := io.BytesIO())
    file.seek(0)
    with pytest.raises(gl.serialization.UnsafeFileError, match=r"torch\.nn\.modules"):
        gl.load(file)
    file.seek(0)
    ours = gl.load(file, weights_only=False)
    assert type(ours[0]) is gl.nn.Conv2d and not ours.training
    x = np.random.default_rng(0).normal(size=(3, 1, 4, 4)).astype("float32")
    np.testing.assert_allclose(ours(gl.from_numpy(x)).detach().numpy(), theirs(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6)
    trained(gl, ours, gl.optim.SGD(ours.parameters(), lr=0.01), 1)


@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors(layout):
    values = [[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]]
    torch.save({"x": torch.tensor(values).to_sparse(layout=getattr(torch, layout))}, file := io.BytesIO())
    file.seek(0)
    ours = gl.load(file)["x"]
    assert ours.layout is getattr(gl, layout) and ours.to_dense().tolist() == values
    gl.save({"x": ours}, file := io.BytesIO(), format="torch")
    file.seek(0)
    back = torch.load(file)["x"]
    assert back.layout == getattr(torch, layout) and back.to_dense().tolist() == values


def test_other_kinds_are_named():
    for value, text in ((torch.ones(2, dtype=torch.uint16), "uint16"),):
        torch.save({"x": value}, file := io.BytesIO())
        file.seek(0)
        with pytest.raises(gl.serialization.FileFormatError, match=text):
            gl.load(file)
