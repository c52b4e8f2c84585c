"""Event files: every record's check sums, and what the messages in it say, read back by a reader of their own."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.tensorboard import SummaryWriter, messages, pictures
from gradlab.utils.tensorboard.records import check_sum


def fields(content):
    """A message's fields: number -> what it was given, in order; messages in it stay bytes."""
    found, at = {}, 0

    def whole():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = content[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value

    while at < len(content):
        field, kind = divmod(whole(), 8)
        if kind == 0:
            value = whole()
        else:
            size = {1: 8, 5: 4}.get(kind) or whole()
            value = content[at : at + size]
            at += size
            value = struct.unpack("<d" if kind == 1 else "<f", value)[0] if kind != 2 else value
        found.setdefault(field, []).append(value)
    return found


def events(folder):
    """All events of a folder's files: (step, field -> content)."""
    found = []
    for file in sorted(Path(folder).glob("events.out.tfevents.*")):
        content = file.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            record = content[12 : 12 + size]
            sums = struct.unpack("<I", content[8:12])[0], struct.unpack("<I", content[12 + size : 16 + size])[0]
            assert sums == (check_sum(content[:8]), check_sum(record))
            found.append(fields(record))
            content = content[16 + size :]
    assert found[0][3] == [b"brain.Event:2"]
    return found[1:]


def values(folder):
    """Tag -> (step, the value's fields)."""
    made = {}
    for event in events(folder):
        for summary in event.get(5, []):
            for value in fields(summary)[1]:
                told = fields(value)
                made[told[1][0].decode()] = event.get(2, [0])[0], told
    return made


def test_check_sum():
    masked = check_sum(b"123456789")
    turned = masked - 0xA282EAD8 & 0xFFFFFFFF
    assert (turned >> 17 | turned << 15) & 0xFFFFFFFF == 0xE3069283  # the check value of CRC-32C


def test_scalars(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", gl.tensor([0.25], requires_grad=True), 7, walltime=12.0)
        writer.add_scalar("new", np.float32(2), np.int64(3), new_style=True)
        writer.add_scalars("both", {"a": 1, "b": gl.tensor(2.0)}, 5)
        with pytest.raises(ValueError, match="one number"):
            writer.add_scalar("x", gl.ones(2))
        with pytest.raises(TypeError, match="str"):
            writer.add_scalar("x", "high")
    found = values(tmp_path)
    assert (found["loss"][0], found["loss"][1][2]) == (7, [0.25]) and events(tmp_path)[0][1] == [12.0]
    tensor = fields(found["new"][1][8][0])
    assert found["new"][0] == 3 and np.frombuffer(tensor[5][0], "<f4") == 2
    assert fields(fields(found["new"][1][9][0])[1][0])[1] == [b"scalars"]
    assert {k: values(tmp_path / f"both_{k}")["both"][1][2] for k in "ab"} == {"a": [1.0], "b": [2.0]}


@pytest.mark.parametrize("bins", ["tensorflow", "auto", 7])
def test_histogram(tmp_path, bins):
    numbers = np.random.default_rng(0).normal(size=200)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", gl.tensor(numbers), bins=bins, max_bins=None if bins == "tensorflow" else 5)
        with pytest.raises(ValueError, match="no values"):
            writer.add_histogram("h", [])
    told = fields(values(tmp_path)["h"][1][5][0])
    np.testing.assert_allclose([told[i][0] for i in range(1, 6)], [numbers.min(), numbers.max(), 200, numbers.sum(), (numbers**2).sum()])
    limits, counts = (np.frombuffer(told[i][0]) for i in (6, 7))
    below = [np.sum(numbers <= limit) for limit in limits]
    assert np.cumsum(counts).tolist() == below and len(counts) <= (5 if bins != "tensorflow" else 2000)


def test_pictures(tmp_path):
    image = gl.rand(3, 4, 5)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("chw", image)
        writer.add_image("hw", image[0], dataformats="HW")
        writer.add_images("many", gl.rand(5, 1, 4, 4))
        writer.add_audio("sound", gl.rand(10))
        for wrong in ("HW", "CHX"):
            with pytest.raises(ValueError, match="dataformats"):
                writer.add_image("x", image, dataformats=wrong)
    found = values(tmp_path)
    told = fields(found["chw"][1][4][0])
    assert (told[1], told[2], told[3]) == ([4], [5], [3])
    data = told[4][0]
    start = data.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompress(data[start:-16]), np.uint8).reshape(4, 16)
    assert (lines[:, 0] == 0).all() and (lines[:, 1:].reshape(4, 5, 3) == (image.numpy() * 255).astype(np.uint8).transpose(1, 2, 0)).all()
    assert [fields(found["many"][1][4][0])[i][0] for i in (1, 2, 3)] == [8, 12, 1]
    assert fields(found["sound"][1][6][0])[4][0][:4] == b"RIFF"
    assert pictures.pixels("x", np.zeros((2, 3, 4), np.uint8), "HCW").shape == (2, 4, 3)


def test_texts_settings_points_and_graphs(tmp_path):
    model = gl.nn.Sequential(gl.nn.Linear(3, 2), gl.nn.ReLU())
    writer = SummaryWriter(tmp_path)
    writer.add_text("note", "**x**", 1)
    writer.add_graph(model, gl.randn(1, 3))
    writer.add_hparams({"lr": 0.1, "fast": True, "name": "sgd"}, {"accuracy": 0.5}, run_name="run")
    writer.add_embedding(gl.eye(2), ["a", "b"], global_step=3)
    writer.close()
    writer.add_scalar("later", 1)  # a new file
    writer.close()
    found = values(tmp_path)
    assert fields(found["note/text_summary"][1][8][0])[8] == [b"**x**"] and "later" in found
    graph = next(event[4][0] for event in events(tmp_path) if 4 in event)
    nodes = [fields(line) for line in fields(graph)[1]]
    assert [n[2][0] for n in nodes][:2] == [b"Linear", b"ReLU"] and nodes[1][3] == nodes[0][1]
    told = {"experiment", "session_start_info", "session_end_info"}
    assert set(values(tmp_path / "run")) == {"accuracy", *(f"_hparams_/{name}" for name in told)}
    assert (tmp_path / "00003/default/tensors.tsv").read_text() == "1.0\t0.0\n0.0\t1.0\n"
    assert 'metadata_path: "00003/default/metadata.tsv"' in (tmp_path / "projector_config.pbtxt").read_text()
    for call, error in (
        (lambda: writer.add_graph(model), ValueError),
        (lambda: writer.add_hparams({"x": [1]}, {}), TypeError),
        (lambda: writer.add_embedding(gl.ones(2)), ValueError),
        (lambda: writer.add_embedding(gl.eye(2), label_img=gl.ones(2, 3, 4, 4)), NotImplementedError),
    ):
        with pytest.raises(error):
            call()


def test_numbers_of_messages():
    assert messages.varint(300) == b"\xac\x02" and len(messages.varint(-1)) == 10 and messages.whole(3, 0) == b""
