"""Event files with videos, boxes, curves, meshes and layouts, read back; tests/test_tensorboard.py has the rest."""

import struct

import numpy as np
import pytest
from test_tensorboard import fields, values

import gradlab as gl
from gradlab.utils.tensorboard import SummaryWriter
from gradlab.utils.tensorboard.gif import gif


def tensor_of(value):
    told = fields(value[8][0])
    shape = [fields(size).get(1, [0])[0] for size in fields(told[2][0]).get(2, [])]
    return np.frombuffer(told[5][0], "<f4").reshape(shape)


def plugin(value):
    told = fields(fields(value[9][0])[1][0])
    return told[1][0].decode(), fields(told[2][0])


def decoded(content):
    """The indices of each frame of a GIF."""
    width, height = struct.unpack("<HH", content[6:10])
    at, frames = 13 + 768, []
    while content[at] != 0x3B:
        image = content[at] == 0x2C
        at += 11 if image else 2
        blocks = b""
        while content[at]:
            blocks += content[at + 1 : at + 1 + content[at]]
            at += content[at] + 1
        at += 1
        if image:
            frames.append(np.frombuffer(unpacked(blocks), np.uint8).reshape(height, width))
    return frames


def unpacked(content):
    bits, size = int.from_bytes(content, "little"), 9
    table, before, out = {}, b"", b""
    while True:
        code, bits = bits & (1 << size) - 1, bits >> size
        if code == 256:
            table, size, before = {i: bytes([i]) for i in range(256)} | {256: b"", 257: b""}, 9, b""
            continue
        if code == 257:
            return out
        word = table[code] if code in table else before + before[:1]
        out += word
        if before and len(table) < 4096:
            table[len(table)] = before + word[:1]
        if len(table) == 1 << size and size < 12:
            size += 1
        before = word


@pytest.mark.parametrize("shape", [(3, 8, 5), (1, 1, 1), (2, 70, 90)])
def test_greys_come_back(shape):
    frames = np.random.default_rng(0).integers(0, 256, (*shape, 1)).astype(np.uint8)
    found = decoded(gif(frames, 5))
    assert len(found) == shape[0]
    np.testing.assert_array_equal(np.stack(found), frames[..., 0])


def test_videos_and_boxes(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_video("film", gl.rand(2, 3, 3, 4, 5), 1, fps=10)
        image = gl.zeros(3, 6, 8)
        writer.add_image_with_boxes("boxes", image, gl.tensor([[1, 1, 4, 3], [-5, 2, 20, 9]]), 2)
        for wrong, text in (
            (lambda: writer.add_video("film", gl.rand(3, 3, 4, 5)), "shape"),
            (lambda: writer.add_video("film", gl.rand(1, 2, 4, 5, 5)), "shape"),
            (lambda: writer.add_image_with_boxes("boxes", image, gl.zeros(1, 4), labels=["a", "b"]), "2 labels"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=text):
                wrong()
        with pytest.raises(NotImplementedError, match="scale"):
            writer.add_image_with_boxes("boxes", image, gl.zeros(1, 4), rescale=2)
    found = values(tmp_path)
    film = fields(found["film"][1][4][0])
    assert (film[1], film[2], film[3], film[4][0][:6]) == ([4], [10], [3], b"GIF89a")  # two of them beside one another
    assert found["boxes"][0] == 2 and fields(found["boxes"][1][4][0])[4][0].startswith(b"\x89PNG")


def test_curves(tmp_path):
    labels, scores = [0, 1, 1, 0, 1], [0.1, 0.4, 0.8, 0.5, 1.0]
    with SummaryWriter(tmp_path) as writer:
        writer.add_pr_curve("pr", gl.tensor(labels), gl.tensor(scores), 3, num_thresholds=3)
        writer.add_pr_curve("weighted", labels, scores, weights=[1, 2, 1, 1, 1], num_thresholds=3)
        writer.add_tensor("t", gl.arange(6).reshape(2, 3))
        for wrong in ((labels, scores[:-1]), (labels, [2.0] * 5), ([], [])):
            with pytest.raises(ValueError, match="predictions"):
                writer.add_pr_curve("pr", *wrong)
    found = values(tmp_path)
    step, told = found["pr"]
    assert step == 3 and plugin(told) == ("pr_curves", {2: [3]})
    curve = [[3, 2, 1], [2, 1, 0], [0, 1, 2], [0, 1, 2], [3 / 5, 2 / 3, 1], [1, 2 / 3, 1 / 3]]
    np.testing.assert_allclose(tensor_of(told), curve, rtol=1e-6)
    np.testing.assert_allclose(tensor_of(found["weighted"][1])[0], [4, 2, 1])
    np.testing.assert_array_equal(tensor_of(found["t"][1]), [[0, 1, 2], [3, 4, 5]])


def test_meshes_and_layouts(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_mesh("shape", gl.rand(1, 4, 3), colors=gl.full((1, 4, 3), 9), faces=gl.tensor([[[0, 1, 2]]]), config_dict={"a": 1})
        writer.add_custom_scalars({"losses": {"both": ["Multiline", ["a", "b"]], "band": ["Margin", ["m", "lo", "hi"]]}})
        writer.add_custom_scalars_marginchart(["m", "lo", "hi"])
        writer.add_custom_scalars_multilinechart(["x"])
        with pytest.raises(ValueError, match="shape"):
            writer.add_mesh("shape", gl.rand(4, 3))
        with pytest.raises(ValueError, match="Margin"):
            writer.add_custom_scalars({"losses": {"band": ["Margin", ["m"]]}})
    found = values(tmp_path)
    for kind, number, shape in (("VERTEX", 1, (1, 4, 3)), ("FACE", 2, (1, 1, 3)), ("COLOR", 3, (1, 4, 3))):
        name, data = plugin(found[f"shape_{kind}"][1])
        assert name == "mesh" and tensor_of(found[f"shape_{kind}"][1]).shape == shape
        assert data == {2: [b"shape"], 3: [number], 5: [b'{"a": 1}'], 6: [bytes(shape)], 7: [14]}
    layout = fields(fields(found["custom_scalars__config__"][1][8][0])[8][0])  # the last one
    assert fields(layout[2][0])[1] == [b"default"]
