"""A model's weights move between PyTorch and here by name, in a safetensors file, and give the same outputs on both sides."""

from __future__ import annotations

import io

import numpy as np
import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.torch


def mlp(engine):
    nn = engine.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 5, bias=False))


def resnet20(engine):
    """The network of gl.models, written once more for any engine."""
    nn, pad = engine.nn, engine.nn.functional.pad

    class Block(nn.Module):
        def __init__(self, inp, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inp, out, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.stride, self.added = stride, out - inp

        def forward(self, x):
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            half = self.added // 2
            return (y + pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, half))).relu()

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(16)
            self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
            self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
            self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
            self.fc = nn.Linear(64, 10)

        def forward(self, x):
            x = self.bn1(self.conv1(x)).relu()
            return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))

    return ResNet()


def own_resnet20(engine):
    return gl.models.resnet20() if engine is gl else resnet20(engine)


def lstm(engine):
    nn = engine.nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 6)
            self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(16, 3)

        def forward(self, tokens):
            return self.head(self.lstm(self.embedding(tokens))[0])

    return Tagger()


def block(engine):
    return engine.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)


def transformer(engine):
    return engine.nn.Transformer(16, 4, 2, 1, 32, batch_first=True)


def normal(*shape):
    return [np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")]


CASES = {
    "MLP": (mlp, normal(3, 4, 5)),
    "ResNet-20": (resnet20, normal(2, 3, 32, 32)),
    "gl.models.resnet20": (own_resnet20, normal(2, 3, 32, 32)),
    "LSTM": (lstm, [np.random.default_rng(0).integers(0, 11, (2, 7))]),
    "transformer block": (block, normal(2, 5, 16)),
    "Transformer": (transformer, normal(2, 5, 16) + normal(2, 4, 16)),
}
MODELS = pytest.mark.parametrize("name", CASES)


def values(x):
    return x.detach().numpy()


def outputs(engine, model, inputs):
    """What the model gives while it is used, and while it learns if it draws no random numbers."""
    arrays = [engine.from_numpy(x) for x in inputs]
    found = [values(model.eval()(*arrays))]
    if not any(isinstance(m, engine.nn.Dropout) and m.p for m in model.modules()):
        found.append(values(model.train()(*arrays)))
    return found


def worn(engine, model, inputs):
    """The model after some use: batch norms have statistics of their own."""
    model.train()
    for _ in range(2):
        model(*map(engine.from_numpy, inputs))
    return model


def same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5)


@MODELS
def test_from_pytorch(name, tmp_path):
    make, inputs = CASES[name]
    torch.manual_seed(1)
    theirs = worn(torch, make(torch), inputs)
    safetensors.save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    ours = make(gl)
    result = ours.load_state_dict(gl.load(tmp_path / "model.safetensors"))
    assert list(result.missing_keys) == list(result.unexpected_keys) == []
    same(outputs(gl, ours, inputs), outputs(torch, theirs, inputs))


@MODELS
def test_to_pytorch(name, tmp_path):
    make, inputs = CASES[name]
    gl.manual_seed(1)
    ours = worn(gl, make(gl), inputs)
    gl.save(ours.state_dict(), tmp_path / "model.safetensors")
    theirs = make(torch)
    result = theirs.load_state_dict(safetensors.load_file(tmp_path / "model.safetensors"))
    assert list(result.missing_keys) == list(result.unexpected_keys) == []
    same(outputs(gl, ours, inputs), outputs(torch, theirs, inputs))


@MODELS
def test_keys_shapes_and_dtypes_are_alike(name):
    make, _ = CASES[name]
    ours, theirs = make(gl).state_dict(), make(torch).state_dict()
    assert [(k, tuple(v.shape), str(v.numpy().dtype)) for k, v in ours.items()] == [
        (k, tuple(v.shape), str(v.numpy().dtype)) for k, v in theirs.items()
    ]


@MODELS
def test_there_and_back_changes_no_bit(name, tmp_path):
    make, _ = CASES[name]
    ours = make(gl)
    gl.save(ours.state_dict(), tmp_path / "ours.safetensors")
    theirs = make(torch)
    theirs.load_state_dict(safetensors.load_file(tmp_path / "ours.safetensors"))
    safetensors.save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    back = gl.load(tmp_path / "theirs.safetensors")
    assert {k: v.numpy().tobytes() for k, v in back.items()} == {k: v.numpy().tobytes() for k, v in ours.state_dict().items()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype, tmp_path):
    theirs = mlp(torch).to(getattr(torch, dtype))
    safetensors.save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    ours = mlp(gl).to(getattr(gl, dtype))
    ours.load_state_dict(gl.load(tmp_path / "model.safetensors"))
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.dtype == getattr(gl, dtype)
        np.testing.assert_array_equal(values(mine.float()), values(yours.float()))


@pytest.mark.parametrize("archive", [True, False])
def test_files_of_pytorchs_own_format(archive):
    theirs = mlp(torch)
    torch.save(theirs.state_dict(), file := io.BytesIO(), _use_new_zipfile_serialization=archive)
    file.seek(0)
    ours = mlp(gl)
    ours.load_state_dict(gl.load(file))
    gl.save(ours.state_dict(), file := io.BytesIO(), format="torch")
    file.seek(0)
    back = torch.load(file)
    assert {k: v.numpy().tobytes() for k, v in back.items()} == {k: v.numpy().tobytes() for k, v in theirs.state_dict().items()}


def test_another_shape_is_named():
    state = {k: gl.from_numpy(v.numpy()) for k, v in mlp(torch).state_dict().items()}
    state["1.weight"] = gl.zeros(32, 21)
    with pytest.raises(RuntimeError, match=r"1\.weight"):
        mlp(gl).load_state_dict(state)
