"""`gl.save` and `gl.load`: round trips, other programs' files, damage, and that no code is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from collections import OrderedDict, namedtuple
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import gradlab as gl
from gradlab.dtype import ALL
from gradlab.utils.serialization import FileFormatError, from_bytes, to_bytes


def again(value, **options):
    file = io.BytesIO()
    gl.save(value, file)
    file.seek(0)
    return gl.load(file, **options)


def same(a, b):
    if isinstance(a, gl.Tensor):
        return isinstance(b, gl.Tensor) and a.dtype == b.dtype and a.shape == b.shape and same(a.numpy(force=True), b.numpy(force=True))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return type(a) is type(b) and list(map(repr, a)) == list(map(repr, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


VALUES = [
    None,
    True,
    3,
    -(10**30),
    0.1,
    -0.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    "text ü \n \x00",
    "",
    b"bytes\x00",
    b"",
    bytearray(b"x"),
    [],
    {},
    (),
    [1, [2, [3]]],
    (1, (2,)),
    {"a": {"b": {"c": 1}}},
    {3: "int", "3": "str", True: "bool", None: 0, (1, "a"): 2, 1.5: 3},
    OrderedDict(b=1, a=2),
    gl.float32,
    gl.bfloat16,
    gl.device("cpu"),
    np.arange(6).reshape(2, 3),
    np.array(3.5),
    np.float32(1.5),
    np.int64(-3),
    np.bool_(True),
    np.zeros((0, 3)),
    np.arange(6).reshape(2, 3).T,
    gl.tensor(3.5),
    gl.zeros(0, 2),
    gl.tensor([[1.0, 2.0], [3.0, 4.0]]).mT,
    gl.arange(10)[2:9:3],
    [gl.tensor([1]), {"k": (gl.tensor([2.0]), None)}],
    {"__metadata__": gl.tensor([1.0])},
    {"a": {"b": gl.tensor([1.0])}, "a.b": gl.tensor([2.0])},
    {"tensor": "x"},
    [{"dict": []}, {"float": "nan"}],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    for wrapped in (value, {"k": [value]}):
        assert same(wrapped, again(wrapped))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype(dtype):
    value = gl.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    assert same({"x": value}, again({"x": value}))


def test_special_numbers_keep_their_bits():
    bits = np.array([0x7FC00001, 0xFF800000, 0x80000000, 1], np.uint32).view(np.float32)
    assert again({"x": gl.from_numpy(bits)})["x"].numpy().tobytes() == bits.tobytes()


def test_loaded_tensors_can_be_written():
    found = again({"x": gl.zeros(3), "a": np.zeros(3)})
    found["x"].add_(1)
    found["a"] += 1
    assert found["x"].tolist() == [1, 1, 1]


def test_requires_grad():
    w = gl.tensor([1.0], requires_grad=True)
    found = again({"w": w, "y": w * 2, "plain": gl.tensor([1.0])})
    assert [(found[k].requires_grad, found[k].is_leaf) for k in ("w", "y", "plain")] == [(True, True), (True, True), (False, True)]
    for computed in (w * 2, gl.eye(2).to_sparse().requires_grad_() * 2):
        found = pickle.loads(pickle.dumps(computed))
        assert found.requires_grad and found.is_leaf and found.grad_fn is None


def test_shared_tensors_are_shared_again():
    w = gl.tensor([1.0, 2.0])
    found = again({"a": w, "nested": {"b": w, "c": w.clone()}, "view": w[:1]})
    assert found["a"] is found["nested"]["b"] and found["a"] is not found["nested"]["c"]
    found["a"].fill_(7)
    assert found["nested"]["b"].tolist() == [7, 7] and found["view"].tolist() == [1]


def test_temporaries_are_not_taken_for_shared():
    values = {str(i): np.float32(i) for i in range(100)}
    assert again(values) == values


# ---------------------------------------------------------------- other programs


def test_a_flat_dict_is_a_plain_file(tmp_path):
    w = gl.tensor([[1.0, 2.0], [3.0, 4.0]])
    path = tmp_path / "model.safetensors"
    gl.save({"b.weight": w, "a.bias": gl.arange(3), "tied": w, "t": w.mT}, path)
    found = safetensors.numpy.load_file(path)
    assert {k: v.tolist() for k, v in found.items()} == {
        "b.weight": [[1, 2], [3, 4]],
        "a.bias": [0, 1, 2],
        "tied": [[1, 2], [3, 4]],
        "t": [[1, 3], [2, 4]],
    }
    ours = gl.load(path)
    assert list(ours) == ["b.weight", "a.bias", "tied", "t"] and ours["tied"] is ours["b.weight"]


def test_other_programs_files(tmp_path):
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"x": np.ones((2, 3), np.float16), "n": np.array(3)}, path, {"note": "by someone else"})
    found = gl.load(path)
    assert found["x"].shape == (2, 3) and found["x"].dtype == gl.float16 and found["n"].item() == 3
    safetensors.numpy.save_file({"x": np.ones(3, np.uint16)}, path)
    with pytest.raises(FileFormatError, match="'x' of type U16"):
        gl.load(path)


def test_paths_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gl.save({"x": 1}, "plain")
    with open("file", "wb") as file:
        gl.save({"x": 2}, file)
    assert gl.load(Path("plain")) == {"x": 1} and gl.load("file") == {"x": 2}
    with open("file", "rb") as file:
        assert gl.load(file) == {"x": 2}
    with open("file", encoding="latin-1") as file, pytest.raises(TypeError, match="rb"):
        gl.load(file)
    with pytest.raises(FileNotFoundError):
        gl.load("absent")
    with pytest.raises(FileNotFoundError):
        gl.save(1, "absent/x")
    for wrong in (3, None):
        with pytest.raises(TypeError, match="path"):
            gl.load(wrong)
        with pytest.raises(TypeError, match="path"):
            gl.save(1, wrong)


# ---------------------------------------------------------------- state


def test_optimizer_state():
    p = gl.tensor([1.0, 2.0], requires_grad=True)
    opt = gl.optim.Adam([{"params": [p], "betas": (0.5, 0.75)}])
    p.grad = gl.tensor([1.0, -1.0])
    opt.step()
    state = opt.state_dict()
    assert same(state, again(state)) and again(state)["param_groups"][0]["betas"] == (0.5, 0.75)


def test_map_location():
    value = {"x": gl.zeros(2), "n": 3}
    for place in ("cpu", gl.device("cpu"), {"cpu": "cpu"}, lambda tensor, device: tensor + 1 if device == "cpu" else None):
        found = again(value, map_location=place)
        assert found["x"].device == gl.device("cpu") and found["n"] == 3
    assert found["x"].tolist() == [1, 1]


# ---------------------------------------------------------------- refusals


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"model": {"f": lambda: 0}}, "'model.f' is a builtins.function"),
        ([gl.optim.SGD([gl.zeros(1)])], "state_dict"),
        ({"c": Colour.RED}, "'c' is a Colour"),
        ({"z": 1j}, "'z'"),
        ({"s": {1, 2}}, "'s' is a builtins.set"),
        ({"a": np.array(["x"])}, "'a' is an array of dtype"),
        ({frozenset(): 1}, "key of type frozenset"),
    ],
)
def test_what_is_not_saved(value, message, tmp_path):
    path = tmp_path / "kept.safetensors"
    gl.save({"x": 1}, path)
    with pytest.raises(TypeError, match=message):
        gl.save(value, path)
    assert gl.load(path) == {"x": 1} and os.listdir(tmp_path) == ["kept.safetensors"]


def test_loops_are_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        to_bytes({"a": loop})
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        to_bytes(deep)


def test_named_tuples_become_tuples():
    assert again([namedtuple("P", "x y")(1, 2)]) == [(1, 2)]


def test_old_file_survives_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "model"
    gl.save({"x": 1}, path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        gl.save({"x": 2}, path)
    monkeypatch.undo()
    assert gl.load(path) == {"x": 1} and os.listdir(tmp_path) == ["model"]


# ---------------------------------------------------------------- damage


def sample():
    return to_bytes({"w": gl.tensor([[1.0, 2.0]]), "n": gl.tensor([7]), "more": {"lr": 0.5}})


def test_every_truncation_is_an_error_that_names_the_file(tmp_path):
    whole, path = sample(), tmp_path / "cut.bin"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"cut\.bin"):
            gl.load(path)
    path.write_bytes(whole + b"\x00")
    with pytest.raises(FileFormatError, match=r"cut\.bin"):
        gl.load(path)


def test_every_damaged_byte_of_the_header_is_an_error_or_harmless():
    whole = sample()
    length = struct.unpack("<Q", whole[:8])[0]
    for place in range(8 + length):
        for change in (0x01, 0x80, 0x20):
            content = bytearray(whole)
            content[place] ^= change
            try:
                from_bytes(bytes(content))
            except FileFormatError:
                pass


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_code_is_run(tmp_path, protocol):
    mark, path = tmp_path / "ran", tmp_path / "evil.bin"
    path.write_bytes(pickle.dumps({"w": Payload(str(mark))}, protocol))
    with pytest.raises(FileFormatError, match=r"evil.bin.*(is a pickle|not a safetensors file)"):
        gl.load(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xfe\x00c", "3 bytes"),
        (b"PK\x03\x04" + bytes(50), "damaged zip archive"),
        (b"\x93NUMPY" + bytes(50), "damaged .npy"),
        (b"\x1f\x8b" + bytes(50), "gzip"),
        (b"just some text, not a checkpoint", "not a safetensors file"),
        (bytes(100), "not a safetensors file"),
        (b"\xff" * 100, "not a safetensors file"),
        (struct.pack("<Q", 2) + b"{]", "no JSON"),
        (struct.pack("<Q", 1 << 60) + b"{}", "cut short"),
    ],
)
def test_foreign_files(content, message):
    with pytest.raises(FileFormatError, match=message):
        from_bytes(content, "x")


def with_outline(outline):
    return safetensors.numpy.save({"x": np.zeros(2)}, {"gradlab": outline if isinstance(outline, str) else json.dumps(outline)})


@pytest.mark.parametrize(
    "tree",
    [
        {"tensor": "y"},
        {"tensor": 3},
        {"tensor": ["x"]},
        {"array": {}},
        {"unknown": 1},
        {},
        {"dict": 3},
        {"dict": [[1]]},
        {"dict": [[{"tensor": "x"}, 1]]},
        {"dict": [[[1], 2]]},
        {"tuple": 3},
        {"float": "1e5"},
        {"dtype": "float7"},
        {"device": "nowhere"},
        {"dict": [], "tuple": []},
        {"bytes": "y"},
        {"scalar": "x"},
        {"tensor": "x", "device": 3},
    ],
)
def test_outlines_that_do_not_fit(tree):
    with pytest.raises(FileFormatError, match="damaged"):
        from_bytes(with_outline({"version": 1, "tree": tree}), "x")


def test_outlines_of_another_kind():
    for outline in ("not json", [], {"version": 1}, {"tree": 1}, 3):
        with pytest.raises(FileFormatError):
            from_bytes(with_outline(outline), "x")
    with pytest.raises(FileFormatError, match="version 3"):
        from_bytes(with_outline({"version": 3, "tree": None}), "x")
    with pytest.raises(FileFormatError, match="lost its checksum"):
        from_bytes(with_outline({"version": 2, "tree": None}), "x")
    deep = '{"version": 1, "tree": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(FileFormatError):
        from_bytes(with_outline(deep), "x")


def test_equal_objects_make_equal_files():
    obj = {"w": gl.ones(3), "ümlaut": gl.zeros(2, dtype=gl.bfloat16)}
    assert len({to_bytes(obj) for _ in range(20)}) == 1
