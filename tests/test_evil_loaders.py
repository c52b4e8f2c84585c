"""Every loader on damaged and harmful files (`evil_loaders.py`): no crash, no hang, no code run, no memory beyond a bound."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import gradlab as gl
from gradlab.data import DataError, files, read_idx, read_table, read_text
from gradlab.onnx import OnnxLoadError

KINDS = (
    "safetensors", "checkpoint", "index", "pth", "stream", "npz", "npy", "gguf", "glp", "onnx", "csv", "text", "idx", "image", "hdf5",
    "run",
)  # fmt: skip
NEEDS = {"onnx": "onnx", "image": "PIL", "hdf5": "h5py"}


def there(kind):
    return kind not in NEEDS or importlib.util.find_spec(NEEDS[kind]) is not None


def became(kinds, first, last, place):
    """What a process of its own makes of the files of these seeds."""
    place.write_text("0")
    program = [sys.executable, str(Path(__file__).with_name("evil_loaders.py")), ",".join(kinds), str(first), str(last)]
    environment = {**os.environ, "EVIL_PLACE": str(place)}
    done = subprocess.run(program, capture_output=True, text=True, timeout=6000, check=False, env=environment)
    assert done.returncode == 0, f"the process ended at seed {place.read_text()}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def test_a_few_of_every_kind(tmp_path):
    kinds = [kind for kind in KINDS if there(kind)]
    found = became(kinds, 0, 30, tmp_path / "place")
    assert list(found) == kinds
    assert not {kind: of_it["wrong"] for kind, of_it in found.items() if of_it["wrong"]}
    assert all(of_it["refused"] > 5 for of_it in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_thousands(kind, tmp_path):
    if not there(kind):
        pytest.skip(f"{NEEDS[kind]} is not installed")
    files = 1_000 if kind == "hdf5" else 20_000  # each of which is read in a process of its own
    found = became([kind], 0, files, tmp_path / "place")[kind]
    assert not found["wrong"] and found["read"] + found["refused"] > 0.95 * files, found


def test_compressed_bombs(tmp_path, monkeypatch):
    """Nothing, compressed a thousand times: no more is unpacked than the bound."""
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(1 << 21)))
    unpacked = []
    monkeypatch.setattr(files, "gzip", SimpleNamespace(GzipFile=lambda **given: Counting(unpacked, **given)))
    for read in (read_table, read_text, read_idx):
        with pytest.raises(DataError, match=r"bomb\.gz: .* unpack to more than 1,048,576; .*gunzip"):
            read(path)
    assert unpacked == [(1 << 20) + 1] * 3
    path.write_bytes(gzip.compress(b"a,b\n1,2\n" + b"3,4\n" * 1000))
    assert read_table(path).rows == 1001


class Counting(gzip.GzipFile):
    """Notes how much was asked for and given."""

    def __init__(self, noted, **given):
        super().__init__(**given)
        self.noted = noted

    def read(self, size):
        found = super().read(size)
        self.noted.append(len(found))
        return found


@pytest.mark.skipif(not there("onnx"), reason="onnx is not installed")
def test_onnx_files_name_no_files_elsewhere(tmp_path):
    """Tensors that are said to lie in another file lie beside the model or nowhere."""
    import onnx
    from onnx import TensorProto, helper

    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(secret)
    for location in ("../secret", str(secret), "./../secret", "x/../../secret", "link", "", "absent"):
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])] for name in ("x", "y")]
        model = helper.make_model(helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", *ends, [tensor]))
        path = tmp_path / "in" / "model.onnx"
        path.write_bytes(model.SerializeToString())
        for given in (path, model.SerializeToString(), onnx.load(str(path), load_external_data=False)):
            with pytest.raises(OnnxLoadError):
                gl.onnx.load(given)


def test_a_description_that_asks_for_too_much(tmp_path):
    """No memory is taken for a model that its weights' file cannot hold."""
    from gradlab.cli import main
    from gradlab.runs.folder import RunError

    table, run = tmp_path / "t.csv", tmp_path / "run"
    table.write_text("a,b,kind\n" + "".join(f"{i},{i * i % 7},{'xy'[i % 2]}\n" for i in range(60)))
    quiet, sys.stdout = sys.stdout, io.StringIO()
    try:
        assert main(["train", "table", str(table), "--target", "kind", "--epochs", "1", "--device", "cpu", "--out", str(run)]) == 0
    finally:
        sys.stdout = quiet
    description = json.loads((run / "run.json").read_text())
    description["task"]["layers"]["hidden"] = [1 << 18, 1 << 18]
    (run / "run.json").write_text(json.dumps(description))
    with pytest.raises(RunError, match=r"damaged: no model can be made of it .* bytes of weights, and model\.safetensors"):
        gl.load_run(run)
    (run / "run.json").write_text('{"format": "gradlab run", "x": ' + "[" * 100_000)
    with pytest.raises(RunError, match="damaged"):
        gl.load_run(run)
