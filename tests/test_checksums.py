"""Files that `gl.save` writes are checksummed: whichever byte is changed, reading is an error that names the file, or changes nothing."""

from __future__ import annotations

import io
import json
import random
from collections import OrderedDict

import numpy as np
import pytest
import safetensors.numpy

import gradlab as gl
from gradlab.jit.portable import LoadError
from gradlab.utils.serialization import FileFormatError, checksum, from_bytes, to_bytes
from gradlab.utils.serialization.torch_writing import to_bytes as to_torch


def checkpoint():
    """What a training checkpoint holds: a model with buffers, an optimizer's state, numbers, random state."""
    gl.manual_seed(0)
    model = gl.nn.Sequential(gl.nn.Linear(3, 5), gl.nn.BatchNorm1d(5), gl.nn.Linear(5, 2))
    optimizer = gl.optim.AdamW(model.parameters())
    model(gl.randn(8, 3)).square().mean().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": gl.get_rng_state()}
    return {**state, "history": [{"epoch": 1.0, "loss": 0.5}]}


CONTENTS = {
    "flat": lambda: {"w": gl.arange(12.0).reshape(3, 4), "n": gl.tensor([7])},
    "nothing": dict,
    "state dict": lambda: checkpoint()["model"],
    "checkpoint": checkpoint,
}
each_content = pytest.mark.parametrize("name", CONTENTS)


def header_end(content):
    return 8 + int.from_bytes(content[:8], "little")


def changed(content, place, change):
    return content[:place] + bytes([content[place] ^ change]) + content[place + 1 :]


@each_content
def test_a_flipped_byte_is_refused_wherever_it_is(name):
    whole, choose = to_bytes(CONTENTS[name]()), random.Random(0)
    from_bytes(whole)
    places = [(place, change) for place in range(min(header_end(whole), 900)) for change in (1, 2, 4, 0x20, 0x80, 0xFF)]
    places += [(choose.randrange(len(whole)), choose.randrange(1, 256)) for _ in range(1500)]
    for place, change in places:
        with pytest.raises(FileFormatError, match=r"model\.safetensors"):
            from_bytes(changed(whole, place, change), "model.safetensors")


def test_every_change_of_every_byte_of_a_small_file():
    whole = to_bytes({"x": gl.ones(1)})
    for place in range(len(whole)):
        for change in range(1, 256):
            with pytest.raises(FileFormatError):
                from_bytes(changed(whole, place, change))


def test_several_changes_cuts_and_mixtures():
    whole, other = to_bytes(CONTENTS["flat"]()), to_bytes({"w": gl.arange(12.0).reshape(3, 4) + 1, "n": gl.tensor([7])})
    choose = random.Random(1)
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(choose.choice((2, 3, 8, 50))):
            content[choose.randrange(len(content))] ^= choose.randrange(1, 256)
        assert bytes(content) != whole
        with pytest.raises(FileFormatError):
            from_bytes(bytes(content))
    assert header_end(whole) == header_end(other)
    with pytest.raises(FileFormatError, match="checksum is not that of what it holds"):
        from_bytes(whole[: header_end(whole)] + other[header_end(whole) :])


@each_content
def test_a_flipped_byte_of_pytorchs_format_is_refused_or_changes_nothing(name):
    """There each record has its own checksum; what no record holds, such as the space between them, decides nothing."""
    whole, choose = to_torch(CONTENTS[name](), False), random.Random(0)
    expected, refused = to_bytes(from_bytes(whole)), 0
    for place in [*range(0, len(whole), max(1, len(whole) // 700)), *(choose.randrange(len(whole)) for _ in range(300))]:
        try:
            found = from_bytes(changed(whole, place, choose.randrange(1, 256)), "model.pt")
        except FileFormatError as error:
            assert "model.pt" in str(error)
            refused += 1
        else:
            assert to_bytes(found) == expected, place
    assert refused > 100


def test_programs_are_checksummed_too():
    gl.jit.save(gl.jit.trace(gl.nn.Linear(3, 2), gl.zeros(1, 3)), file := io.BytesIO())
    whole, choose = file.getvalue(), random.Random(0)
    key = whole.index(checksum.KEY.encode())
    for place in (choose.randrange(len(whole)) for _ in range(400)):
        if not key <= place < key + len(checksum.KEY):  # a program without a checksum is read: it is checked as a stranger's anyway
            with pytest.raises((LoadError, FileFormatError)):
                gl.jit.load(io.BytesIO(changed(whole, place, 1)))


def test_other_readers_read_them(tmp_path):
    path = tmp_path / "model.safetensors"
    gl.save(CONTENTS["flat"](), path)
    found = safetensors.numpy.load_file(path)
    assert found["w"].tolist() == np.arange(12.0).reshape(3, 4).tolist() and found["n"].tolist() == [7]
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata()["format"] == "pt" and len(file.metadata()[checksum.KEY]) == 64
    assert header_end(path.read_bytes()) % 8 == 0


def test_files_without_a_checksum_are_read():
    """Those of other programs, and of gradlab before there was one."""
    assert from_bytes(safetensors.numpy.save({"x": np.ones(2)}, {"format": "pt", "sha256": "of something else"}))["x"].tolist() == [1, 1]
    outline = json.dumps({"version": 1, "tree": {"ordered": [["x", {"tensor": "x"}], ["n", 3]]}})
    found = from_bytes(safetensors.numpy.save({"x": np.ones(2)}, {"gradlab": outline}))
    assert type(found) is OrderedDict and found["n"] == 3 and found["x"].tolist() == [1, 1]


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_the_versions_of_a_models_parts_are_kept(format):
    state = gl.nn.Sequential(gl.nn.Linear(2, 2), gl.nn.BatchNorm1d(2)).state_dict()
    for given, pick in ((state, lambda found: found), ({"model": state, "epoch": 3}, lambda found: found["model"])):
        gl.save(given, file := io.BytesIO(), format=format)
        found = pick(from_bytes(file.getvalue()))
        assert found._metadata == state._metadata
    plain = OrderedDict(x=gl.ones(1))
    gl.save(plain, file := io.BytesIO(), format=format)
    assert not hasattr(from_bytes(file.getvalue()), "_metadata")
