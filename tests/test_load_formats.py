"""`gl.load` of what other programs write: NumPy's files and HDF5 are read, others are named with the way out."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.serialization import FileFormatError, from_bytes, hdf5

needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")


def npy(array, **options):
    np.save(file := io.BytesIO(), array, **options)
    return file.getvalue()


def npz(write=np.savez, **arrays):
    write(file := io.BytesIO(), **arrays)
    return file.getvalue()


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return file.getvalue()


# ---------------------------------------------------------------- NumPy

TENSORS = {
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3), "big endian": np.arange(6, dtype=">f8").reshape(2, 3),
    "Fortran's order": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "a number": np.array(3), "none": np.zeros((0, 3)),
    "bool": np.array([True, False]), "int8": np.array([-1, 2], np.int8), "float16": np.array([0.5], np.float16),
    "complex": np.array([1j, 2]),
}  # fmt: skip
ARRAYS = {
    "text": np.array(["a", "bcd"]), "uint16": np.array([65535], np.uint16),
    "dates": np.array(["2020-01-01"], "M8[D]"), "structured": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*TENSORS, *ARRAYS])
def test_arrays(name, tmp_path):
    array = {**TENSORS, **ARRAYS}[name]
    for content in (npy(array), npz(x=array), npz(np.savez_compressed, x=array)):
        (tmp_path / "array").write_bytes(content)  # the content says what it is, not the name
        found = gl.load(tmp_path / "array")
        found = found["x"] if isinstance(found, dict) else found
        assert isinstance(found, gl.Tensor if name in TENSORS else np.ndarray)
        values = found.numpy() if name in TENSORS else found
        assert values.shape == array.shape and np.array_equal(values, array) and values.dtype == array.dtype.newbyteorder("=")


def test_archives_keep_their_names_and_can_be_written():
    found = from_bytes(npz(**{"layer1/w": np.ones((2, 2)), "b": np.zeros(2), "words": np.array(["x"])}))
    assert list(found) == ["layer1/w", "b", "words"] and isinstance(found["words"], np.ndarray)
    found["b"].add_(1)
    moved = from_bytes(npz(b=np.zeros(2)), "x", lambda tensor, place: tensor + 5)
    assert found["b"].tolist() == [1, 1] and moved["b"].tolist() == [5, 5]


def header(text, version=1, rest=b""):
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + rest


def test_old_and_new_versions_of_the_format():
    plain = b"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n"
    for version in (1, 2, 3):
        assert from_bytes(header(plain, version, bytes(8))).tolist() == [0, 0]
    assert from_bytes(header(plain.replace(b"(2,)", b"(2L,)"), 1, bytes(8))).tolist() == [0, 0]  # Python 2 on Windows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy(np.array([{}, 1], object), allow_pickle=True), "Python objects, .* as a pickle, .* runs code"),
        (npz(x=np.array([{}], object)), "the array 'x' of f holds an array of Python objects"),
        (npy(np.ones(9))[:-1], "cut short"),
        (npy(np.ones(9)) + b"x", "damaged or cut short"),
        (npy(np.ones(9))[:30], "its header should have 118 bytes"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"), "no array of shape"),
        (header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"), "no meaning"),
        (header(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 1, bytes(8)), "Python objects"),
        (header(b"__import__('os').system('true')"), "no meaning"),
        (header(b"(" * 5000), "no meaning"),
        (header(b"{}", 9), "version of the format that is not known"),
        (npz(x=np.ones(9))[:-40], "damaged"),
        (npz(x=np.ones(9)).replace(b"x.npy", b"x.txt"), "none that torch.save or numpy.savez writes"),
    ],
)
def test_what_is_wrong_with_arrays_is_said(content, message):
    with pytest.raises(FileFormatError, match=message) as found:
        from_bytes(content, "f")
    assert " f " in str(found.value)


# ---------------------------------------------------------------- HDF5


def test_without_h5py_it_says_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileFormatError, match="f is an HDF5 file, which h5py reads, and that is not installed: pip install h5py"):
        from_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100), "f")


@needs_h5py
def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "model.weights.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["layers/dense/kernel"] = np.ones((3, 2), np.float32)
        file.create_dataset("layers/dense/bias", data=np.arange(100_000.0), compression="gzip")
        file["name"], file["words"], file["step"] = "a text", ["x", "yz"], 7
        file["wide"] = np.array([1], np.uint16)
        file["empty"] = h5py.Empty("f4")
        file["again"] = h5py.SoftLink("/layers")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
        file.attrs["config"] = "not read"
    found = gl.load(path)
    assert set(found) == {"layers", "name", "words", "step", "wide", "empty"} and found["empty"] is None
    assert found["layers"]["dense"]["kernel"].shape == (3, 2) and found["layers"]["dense"]["kernel"].dtype == gl.float32
    assert found["layers"]["dense"]["bias"][-1].item() == 99_999 and found["step"].item() == 7
    assert found["name"] == "a text" and found["words"].tolist() == ["x", "yz"] and found["wide"].dtype == np.uint16


@needs_h5py
def test_hdf5_that_is_harmful_or_damaged(tmp_path):
    h5py = pytest.importorskip("h5py")

    def written(name, fill):
        with h5py.File(tmp_path / name, "w") as file:
            fill(file)
        return tmp_path / name

    huge = written("huge", lambda file: file.create_dataset("x", (10**12,), "f8", chunks=(1000,)))
    with pytest.raises(FileFormatError, match=r"huge cannot be read: /x takes 8,000,000,000,000 bytes"):
        gl.load(huge)
    outside = written("outside", lambda file: file.create_dataset("x", (8,), "u1", external=[(str(tmp_path / "secret"), 0, 8)]))
    with pytest.raises(FileFormatError, match="/x lies in another file"):
        gl.load(outside)

    def circle(file):
        file.create_group("a/b")
        file["a/b/back"] = file["a"]

    with pytest.raises(FileFormatError, match="contains itself"):
        gl.load(written("circle", circle))
    pairs = written("pairs", lambda file: file.create_dataset("x", data=np.array([(1, b"ab")], [("n", "i4"), ("s", "S2")])))
    assert gl.load(pairs)["x"]["n"].tolist() == [1]
    whole = written("whole", lambda file: file.create_dataset("x", data=np.ones(50))).read_bytes()
    for length in (8, 100, len(whole) - 10):
        with pytest.raises(FileFormatError, match="f is a damaged HDF5 file"):
            from_bytes(whole[:length], "f")


# ---------------------------------------------------------------- other kinds


def tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))
    return file.getvalue()


OTHERS = {
    "GGUF": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "a GGUF file of llama.cpp; convert its weights to safetensors"),
    "pickle": (pickle.dumps({"w": np.ones(3)}), "it is a pickle; reading a pickle runs code"),
    "an old pickle": (pickle.dumps({"w": [1, 2]}, 0), "a pickle of an old protocol"),
    "joblib": (zlib.compress(pickle.dumps(np.ones(3))), "a pickle that joblib has compressed"),
    "gzip": (gzip.compress(b"x"), "compressed with gzip; unpack it first"),
    "bzip2": (bz2.compress(b"x"), "compressed with bzip2"),
    "xz": (lzma.compress(b"x"), "compressed with xz"),
    "tar": (tar(), "a tar archive, as torch.save wrote in 2016"),
    "ONNX": (b"\x08\x09\x12\x07pytorch" + bytes(9), "an ONNX model; gradlab.onnx.load reads it"),
    "SavedModel": (b"\x08\x01\x12\x10" + bytes(20), "a SavedModel of TensorFlow"),
    "TFLite": (b"\x1c\x00\x00\x00TFL3" + bytes(9), "a TensorFlow Lite model"),
    "a TensorFlow checkpoint": (bytes(40) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", "a TensorFlow checkpoint"),
    "Keras": (zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras model; take model.weights.h5 out of it"),
    "TorchScript": (zipped("a/data.pkl", "a/constants.pkl", "a/code/__torch__.py"), "a TorchScript archive; save the module's state_dict"),
    "Excel": (zipped("[Content_Types].xml", "xl/workbook.xml"), "an Office document"),
    "zip": (zipped("a.txt"), "a zip archive, but none that torch.save or numpy.savez writes"),
    "Parquet": (b"PAR1" + bytes(20), "a Parquet table; see gradlab.data.read_table"),
    "MATLAB": (b"MATLAB 5.0 MAT-file" + bytes(120), "a MATLAB file; read it with scipy.io.loadmat"),
    "PNG": (b"\x89PNG\r\n\x1a\n" + bytes(9), "a PNG picture"),
    "a page": (b"\n<!DOCTYPE html><html>404</html>", "an HTML page, perhaps what a download said in place of the file"),
    "an index": (json.dumps({"metadata": {}, "weight_map": {"a": "model-00001.safetensors"}}).encode(), "the index of a model"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS, not the file itself; fetch that"),
    "JSON": (b'[1, 2, "three", 4, 5]', "a text; see .* Python's json"),
    "a text": (b"epoch,loss\n1,0.5\n", "a text"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_others_are_named_with_the_way_out(kind, tmp_path):
    content, message = OTHERS[kind]
    (tmp_path / "file.bin").write_bytes(content)
    with pytest.raises(FileFormatError, match=rf"file\.bin.*{message}"):
        gl.load(tmp_path / "file.bin")


def test_files_are_not_named_as_what_they_are_not(tmp_path):
    for name in ("a.npy", "a.npz", "a.h5"):
        with pytest.raises(ValueError, match=f"{name} ends as files of another format do"):
            gl.save(gl.ones(2), tmp_path / name)
        gl.save(gl.ones(2), tmp_path / name, format="safetensors")
        assert gl.load(tmp_path / name).tolist() == [1, 1]


def test_names_tell_where_the_content_does_not(tmp_path):
    for name, message in {"m.onnx": "ONNX", "m.msgpack": "Flax", "old.mat": "MATLAB", "m.data-00000-of-00001": "TensorFlow"}.items():
        with pytest.raises(FileFormatError, match=message):
            from_bytes(b"\x01\x02\x00\x03" * 9, name)
    with pytest.raises(FileFormatError, match=r"not a safetensors file$"):
        from_bytes(b"\x01\x02\x00\x03" * 9, "m.bin")
    with pytest.raises(IsADirectoryError):
        gl.load(tmp_path)


@needs_h5py
def test_hdf5_that_ends_its_library_or_never_ends(tmp_path, monkeypatch):
    """The library in C then ends a process of its own, not this one."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(content := io.BytesIO(), "w") as file:
        file["x"] = np.ones(3)
    monkeypatch.setattr(hdf5, "_PROGRAM", program := tmp_path / "program.py")
    for text, message in (
        ("import os; os.abort()", r"f is a damaged HDF5 file: its library ended with -?\d+"),
        ("import os; os.write(1, b'{' + (1).to_bytes(8, 'little'))", "f is a damaged HDF5 file, or .*: JSONDecodeError"),
        ("while True: pass", "f is a damaged HDF5 file: reading it had not ended after 1 s"),
    ):
        program.write_text(text)
        monkeypatch.setattr(hdf5, "SECONDS", 60 if "os" in text else 1)
        with pytest.raises(FileFormatError, match=message):
            from_bytes(content.getvalue(), "f")
