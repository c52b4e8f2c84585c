"""Models as others write them: in several files, mapped into memory, GGUF; and such files that are damaged or made to harm."""

import importlib.util
import json
import struct

import evil_files
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import gradlab as gl
from gradlab.utils.serialization import FileFormatError, from_bytes, to_bytes
from gradlab.utils.serialization.shards import bytes_in

quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
STATE = {"a.weight": (300, 4), "a.bias": (4,), "b.weight": (10, 10), "c": ()}


def state():
    gl.manual_seed(0)
    return {name: gl.randn(*shape) for name, shape in STATE.items()}


# ------------------------------------------------------------ several files


def test_shards_are_written_as_hugging_face_writes_them(tmp_path):
    whole = state()
    gl.save(whole, tmp_path / "model.safetensors", max_shard_size=2000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    index = json.loads((tmp_path / names[-1]).read_text())
    assert index["metadata"] == {"total_size": 4 * (1200 + 4 + 100 + 1)}
    assert index["weight_map"] == {"a.weight": names[0], "a.bias": names[1], "b.weight": names[1], "c": names[1]}
    for place in (tmp_path, tmp_path / names[-1]):
        found = gl.load(place)
        assert list(found) == list(whole) and all(gl.equal(found[k], whole[k]) for k in whole)
    gl.save(whole, tmp_path / "small.safetensors", max_shard_size="1GB")
    assert not (tmp_path / "small.safetensors.index.json").exists() and list(gl.load(tmp_path / "small.safetensors")) == list(whole)


def test_shards_of_others(tmp_path):
    """Written by safetensors and by torch.save's format, with an index of one's own."""
    for ending, name in ((".safetensors", "model.safetensors.index.json"), (".bin", "pytorch_model.bin.index.json")):
        folder = tmp_path / ending[1:]
        folder.mkdir()
        parts = {f"x-{i}{ending}": {f"w{i}": gl.full((2,), float(i))} for i in range(3)}
        for part, content in parts.items():
            gl.save(content, folder / part)
        (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": {key: part for part, c in parts.items() for key in c}}))
        assert [gl.load(folder, map_location="cpu")[f"w{i}"][0].item() for i in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("size", ["", "5 pounds", "-1", 0, "0GB"])
def test_sizes_that_are_none(tmp_path, size):
    with pytest.raises(ValueError, match="max_shard_size is a number of bytes"):
        gl.save(state(), tmp_path / "model.safetensors", max_shard_size=size)


def test_what_is_no_dict_of_tensors(tmp_path):
    with pytest.raises(TypeError, match="a dict of tensors by name"):
        gl.save({"epoch": 3}, tmp_path / "m.safetensors", max_shard_size=100)
    with pytest.raises(ValueError, match=r"name it \.safetensors"):
        gl.save(state(), tmp_path / "m.pt", max_shard_size=100)
    with pytest.raises(IsADirectoryError, match="a folder without a model"):
        gl.load(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "a\\b", "..", "", "c:x", "x\0y"])
def test_an_index_names_files_beside_it_alone(tmp_path, name):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(FileFormatError, match="does not lie beside it"):
        gl.load(tmp_path)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ('{"weight_map": [1]}', "damaged index"), ('{"weight_map": {"w": 3}}', "damaged index"),
        ('{"weight_map": {"w": "gone"}}', "not there"),
        ('{"weight_map"', "damaged index"), ('{"weight_map": {"w": "part.safetensors"}}', "does not hold 'w'"),
        ('{"a": ' * 3000 + '"weight_map"', "damaged index"),
    ],
)  # fmt: skip
def test_a_damaged_index(tmp_path, index, said):
    gl.save({"other": gl.ones(1)}, tmp_path / "part.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(FileFormatError, match=said):
        gl.load(tmp_path / "model.safetensors.index.json")


@quick
@given(st.randoms(use_true_random=False))
def test_an_index_that_was_changed(tmp_path_factory, choose):
    folder = tmp_path_factory.mktemp("index")
    gl.save(state(), folder / "model.safetensors", max_shard_size=2000)
    index = folder / "model.safetensors.index.json"
    index.write_bytes(evil_files.changed(choose, index.read_bytes()))
    try:
        gl.load(index)
    except FileFormatError as error:
        assert str(folder) in str(error)


# ------------------------------------------------------------ mapped into memory


def test_tensors_of_the_disk(tmp_path):
    path = tmp_path / "x.safetensors"
    gl.save({"x": gl.arange(6.0).reshape(2, 3), "half": gl.ones(3, dtype=gl.bfloat16), "none": gl.zeros(0, 2)}, path)
    for option in ({"memory_map": True}, {"mmap": True}):
        found = gl.load(path, **option)
        assert found["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["half"].dtype == gl.bfloat16 and found["none"].shape == (0, 2)
        found["x"].zero_()  # in this process alone
        assert gl.load(path)["x"].sum() == 15
    nested = {"model": {"w": gl.ones(2)}, "epoch": 3}
    gl.save(nested, path)
    assert gl.load(path, memory_map=True)["epoch"] == 3
    gl.save({"w": gl.ones(2)}, tmp_path / "m.safetensors", max_shard_size=1)
    gl.save(gl.ones(2), tmp_path / "x.pt")
    assert gl.load(tmp_path / "x.pt", memory_map=True).tolist() == [1, 1]


@pytest.mark.alone
def test_it_reads_no_more_than_is_used(tmp_path):
    path = tmp_path / "large.safetensors"
    gl.save({"large": gl.zeros(1 << 22), "small": gl.ones(1)}, path)
    import tracemalloc  # only here: it slows everything down once it is started

    tracemalloc.start()
    found = gl.load(path, memory_map=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found["small"].item() == 1 and peak < 1 << 20


def unaligned():
    entries = {"a": ("U8", 0, 1), "b": ("F32", 1, 5)}
    header = json.dumps({key: {"dtype": kind, "shape": [1], "data_offsets": ends} for key, (kind, *ends) in entries.items()})
    return struct.pack("<Q", len(header)) + header.encode() + b"\x07" + struct.pack("<f", 2.5)


def test_a_file_whose_tensors_are_not_aligned(tmp_path):
    (tmp_path / "x").write_bytes(unaligned())
    found = gl.load(tmp_path / "x", memory_map=True)
    assert found["b"].item() == 2.5 and found["b"].numpy().flags.aligned


@quick
@given(st.randoms(use_true_random=False))
def test_mapped_files_that_were_changed(tmp_path_factory, choose):
    path = tmp_path_factory.mktemp("mapped") / "evil.safetensors"
    whole = choose.choice([to_bytes(state()), unaligned(), to_bytes({"model": state(), "epoch": 3})])
    path.write_bytes(evil_files.changed(choose, whole))
    try:
        gl.load(path, memory_map=True)
    except FileFormatError as error:
        assert "evil" in str(error) and len(str(error)) < 800


# ------------------------------------------------------------ GGUF


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors, metadata=b"", pairs=0, version=3, alignment=32):
    """A file of these tensors: (name, kind, array)."""
    head, body = b"GGUF" + struct.pack("<IQQ", version, len(tensors), pairs) + metadata, b""
    for name, kind, array in tensors:
        shape = array.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += array.tobytes() + b"\0" * (-array.nbytes % alignment)
    return head + b"\0" * (-len(head) % alignment) + body


W = np.arange(6, dtype=np.float32).reshape(2, 3)
WHOLE = [("w", 0, W), ("h", 1, W.astype(np.float16)), ("b", 30, W.astype(gl.bfloat16.dtype)), ("n", 26, np.arange(3, dtype=np.int32))]
LENGTHS = struct.pack("<IQ3I", 4, 3, 1, 2, 3)
METADATA = text("general.architecture") + struct.pack("<I", 8) + text("llama") + text("x") + struct.pack("<I", 9) + LENGTHS
METADATA += text("general.alignment") + struct.pack("<II", 4, 64)


@pytest.mark.parametrize("version", [2, 3])
def test_gguf(tmp_path, version):
    (tmp_path / "m.gguf").write_bytes(gguf(WHOLE, METADATA, 3, version, 64))
    found = gl.load(tmp_path / "m.gguf")
    assert list(found) == ["w", "h", "b", "n"]
    assert [x.dtype for x in found.values()] == [gl.float32, gl.float16, gl.bfloat16, gl.int32]
    assert all(x.float().tolist() == W.tolist() for name, x in found.items() if name != "n")


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="the package gguf is not installed")
def test_gguf_of_its_own_package(tmp_path):
    import gguf as package  # optional

    writer = package.GGUFWriter(str(tmp_path / "m.gguf"), "test")
    writer.add_string("name", "x")
    writer.add_array("tokens", ["a", "b"])
    writer.add_tensor("w", W)
    writer.add_tensor("h", W.astype(np.float16))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    found = gl.load(tmp_path / "m.gguf")
    assert found["w"].tolist() == W.tolist() and found["h"].dtype == gl.float16


# The numbers of types and kinds in "GGUF" (the ggml project's specification of the format), without those that were withdrawn.
TYPES = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
QUANTISED = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q8_1": 9, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
    "Q8_K": 15, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ4_NL": 20, "IQ3_S": 21, "IQ2_S": 22, "IQ4_XS": 23, "IQ1_M": 29,
    "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39,
}  # fmt: skip
ENTRIES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_of_gguf(kind):
    """Every other one behind it is still found: a type of another width would shift it."""
    dtype = getattr(gl, TYPES[kind]).dtype
    found = from_bytes(gguf([("a", kind, W.astype(dtype)), ("b", 0, W)]), "f")
    assert found["a"].dtype == getattr(gl, TYPES[kind]) and found["a"].tolist() == found["b"].tolist() == W.tolist()


@pytest.mark.parametrize("name", QUANTISED)
def test_each_quantised_type_is_named(name):
    with pytest.raises(FileFormatError, match=rf"'w' \({name}\)"):
        from_bytes(gguf([("w", QUANTISED[name], W)]), "f")


@pytest.mark.parametrize("kind", ENTRIES)
def test_each_kind_of_metadata(kind):
    """Alone and in an array: what comes behind is found."""
    one = text("one") + struct.pack(f"<I{ENTRIES[kind]}", kind, 1)
    many = text("many") + struct.pack(f"<IIQ3{ENTRIES[kind]}", 9, kind, 3, 1, 0, 1)
    assert from_bytes(gguf([("w", 0, W)], one + many, 2), "f")["w"].tolist() == W.tolist()


def test_more_entries_than_there_is_room_for():
    """They are refused before the first is read: each takes 12 bytes at least."""
    content = gguf([("w", 0, W)])
    for tensors, pairs in ((1, len(content) // 12), (len(content) // 12, 1), (1 << 62, 0), (1, 1 << 62)):
        with pytest.raises(FileFormatError, match=f"{tensors} tensors and {pairs} entries of metadata in {len(content)} bytes"):
            from_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + content[24:], "f")


UNITS = {"": 1, "b": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


@pytest.mark.parametrize("unit", UNITS)
def test_each_unit_of_a_size(unit):
    assert [bytes_in(f"{n}{unit}") for n in ("3", "2.5", " 7 ")] == [3 * UNITS[unit], int(2.5 * UNITS[unit]), 7 * UNITS[unit]]


@pytest.mark.parametrize(("first", "end", "right"), [
    (0, 24, True), (0, 23, False), (0, 25, False), (8, 24, False), (24, 0, False), (8, 32, False), (1, 25, False),
])  # fmt: skip
@pytest.mark.parametrize("mapped", [False, True])
def test_where_a_tensor_lies(tmp_path, first, end, right, mapped):
    """As many bytes as its shape says, within the file: both, whether the file is read or mapped."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [first, end]}}).encode()
    header += b" " * (-len(header) % 8)
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(24))
    if right:
        assert gl.load(tmp_path / "m.safetensors", mmap=mapped)["w"].shape == (2, 3)
        return
    with pytest.raises(FileFormatError, match=r"damaged|cut short"):
        gl.load(tmp_path / "m.safetensors", mmap=mapped)


def test_quantised_ones_are_named():
    content = gguf([("w", 0, W), ("blk.0.q", 12, W), ("blk.1.q", 99, W)])
    with pytest.raises(FileFormatError, match=r"f holds 2 quantised tensors.*'blk\.0\.q' \(Q4_K\), 'blk\.1\.q' \(of kind 99\)"):
        from_bytes(content, "f")


def test_gguf_that_says_more_than_it_has():
    for content in (
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), gguf(WHOLE)[:-40], gguf(WHOLE, text("k") + struct.pack("<IIQ", 9, 8, 1 << 50), 1),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 1 << 62) + b"x" * 50, gguf([("w", 0, W)] * 2), b"GGUF",
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("w") + struct.pack("<I2QIQ", 2, 1 << 40, 1 << 40, 0, 0),
        gguf(WHOLE, text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20, 1),
        gguf(WHOLE, text("general.alignment") + struct.pack("<II", 4, 0), 1),
    ):  # fmt: skip
        with pytest.raises(FileFormatError, match="damaged GGUF file"):
            from_bytes(content, "f")
    with pytest.raises(FileFormatError, match="version 1"):
        from_bytes(gguf(WHOLE, version=1), "f")


@quick
@given(st.randoms(use_true_random=False))
def test_gguf_that_was_changed(choose):
    try:
        found = from_bytes(evil_files.changed(choose, gguf(WHOLE, METADATA, 3, alignment=64)), "evil")
    except FileFormatError as error:
        assert "evil" in str(error) and len(str(error)) < 800
    else:
        assert isinstance(found, dict)
