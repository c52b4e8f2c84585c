"""Folders of images as people have them: every mode of a file, broken ones, what systems leave behind, and what cannot be learned from."""

from __future__ import annotations

import importlib
import io
import pickle

import numpy as np
import pytest

import gradlab as gl
from gradlab.data.images import check_image

Image = pytest.importorskip("PIL.Image")

GREYS = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5


def colours() -> np.ndarray:
    return np.stack([GREYS, 255 - GREYS, GREYS // 2], axis=2)


def picture(mode: str):
    """An image of a mode, and what is to be read of it: uint8 (height, width, channels)."""
    grey, rgb = GREYS[..., None], colours()
    if mode == "1":
        return Image.fromarray(GREYS > 100), np.where(GREYS > 100, 255, 0).astype(np.uint8)[..., None]
    if mode == "L":
        return Image.fromarray(GREYS), grey
    if mode == "I;16":
        return Image.fromarray(GREYS.astype(np.uint16) * 257), grey
    if mode in ("I", "F"):
        return Image.fromarray(GREYS.astype({"I": np.int32, "F": np.float32}[mode])), grey
    if mode in ("LA", "RGBA"):
        solid = np.full((6, 8, 1), 255, np.uint8)
        solid[0, 0] = 0  # one pixel is not there: paper is white
        seen = grey.copy() if mode == "LA" else rgb.copy()
        seen[0, 0] = 255
        return Image.fromarray(np.concatenate([grey if mode == "LA" else rgb, solid], 2), mode), seen
    if mode == "P":
        found = Image.fromarray(GREYS % 4, "P")
        found.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7])
        return found, np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 8, 7]], np.uint8)[GREYS % 4]
    if mode == "CMYK":
        return Image.fromarray(rgb).convert("CMYK"), rgb
    return Image.fromarray(rgb), rgb


FILES = {
    "1": "png", "L": "png", "LA": "png", "RGB": "bmp", "RGBA": "png", "P": "gif", "CMYK": "tif", "I;16": "png", "I": "tif", "F": "tif",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", FILES)
def test_every_mode_is_read(mode, tmp_path):
    image, expected = picture(mode)
    path = tmp_path / f"image.{FILES[mode]}"
    image.save(path)
    found = gl.data.read_image(path)
    assert found.dtype == np.uint8
    assert np.array_equal(found, expected)
    grey, colour = gl.data.read_image(path, 1), gl.data.read_image(path, 3)
    assert grey.shape == (6, 8, 1)
    assert colour.shape == (6, 8, 3)
    if expected.shape[2] == 1:
        assert np.array_equal(grey, expected)
        assert np.array_equal(colour, expected.repeat(3, 2))
    with pytest.raises(ValueError, match="channels is 1, 3 or None, not 2"):
        gl.data.read_image(path, 2)


def test_a_photograph_lies_as_its_exif_data_say(tmp_path):
    path = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the top is at the right
    Image.fromarray(colours()).save(path, exif=exif)
    assert np.array_equal(gl.data.read_image(path), np.rot90(colours(), -1))


@pytest.fixture
def folder(tmp_path):
    """Two classes of three grey images each."""
    for name, shift in (("b cats", 0), ("a dogs", 10)):
        (tmp_path / name).mkdir()
        for i in range(3):
            Image.fromarray(GREYS // 2 + shift + i).save(tmp_path / name / f"{i}.png")
    return tmp_path


class TestFolder:
    def test_classes_and_samples_are_sorted(self, folder):
        found = gl.data.ImageFolder(folder)
        assert found.classes == ["a dogs", "b cats"]
        assert found.class_to_idx == {"a dogs": 0, "b cats": 1}
        assert [(path.rsplit("/", 2)[-2:], number) for path, number in found.samples] == [
            ([name, f"{i}.png"], number) for number, name in enumerate(found.classes) for i in range(3)
        ]
        assert found.imgs == found.samples
        assert found.targets == [0, 0, 0, 1, 1, 1]
        image, number = found[4]
        assert number == 1
        assert np.array_equal(image, (GREYS // 2 + 1)[..., None])
        assert not found.notes
        assert "6 images, 2 classes, 1 channels" in repr(found)
        assert len(pickle.loads(pickle.dumps(found))) == 6  # it goes to worker processes that are started anew

    def test_channels_and_transforms(self, folder):
        found = gl.data.ImageFolder(folder, transform=lambda x: x.shape, target_transform=str, channels=3)
        assert found[5] == ((6, 8, 3), "1")
        Image.fromarray(colours()).save(folder / "a dogs" / "colour.jpg")
        assert gl.data.ImageFolder(folder).channels == 3
        assert gl.data.ImageFolder(folder, channels=1)[0][0].shape == (6, 8, 1)
        assert gl.data.ImageFolder(folder, loader=lambda path: path[-5:])[0] == ("0.png", 0)

    def test_what_systems_leave_behind_is_no_class(self, folder):
        for name in (".DS_Store", "Thumbs.db", "a dogs/.DS_Store", "b cats/Thumbs.db", "b cats/._1.png", "a dogs/desktop.ini"):
            (folder / name).write_bytes(b"\0")
        for name in (".git", "__MACOSX", ".ipynb_checkpoints", "b cats/.ipynb_checkpoints"):
            (folder / name).mkdir()
            Image.fromarray(GREYS).save(folder / name / "x.png")
        (folder / "a dogs" / "loop").symlink_to(folder / "a dogs")
        found = gl.data.ImageFolder(folder)
        assert found.classes == ["a dogs", "b cats"]
        assert len(found) == 6
        assert not found.notes

    def test_broken_files_are_named_and_left_out(self, folder):
        whole = (folder / "a dogs" / "0.png").read_bytes()
        (folder / "a dogs" / "cut.png").write_bytes(whole[: len(whole) // 2])
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(folder / "b cats" / "9.jpg")
        photograph = (folder / "b cats" / "9.jpg").read_bytes()
        (folder / "b cats" / "9.jpg").write_bytes(photograph[: len(photograph) // 2])
        (folder / "b cats" / "text.png").write_text("no image")
        (folder / "b cats" / "none.gif").write_bytes(b"")
        (folder / "b cats" / "readme.txt").write_text("about cats")
        (folder / "labels.csv").write_text("a,b")
        found = gl.data.ImageFolder(folder)
        assert len(found) == 6
        first, second, third = found.notes
        assert first == "1 files are no images by their names (1 .txt) and are passed over"
        assert second == "1 files beside the classes' folders are passed over: labels.csv"
        assert third.startswith("4 of 10 files are left out: ")
        for name in ("cut.png", "9.jpg", "text.png cannot be read: it is no image", "none.gif cannot be read: the file is empty"):
            assert name in third
        unchecked = gl.data.ImageFolder(folder, check=False)
        assert len(unchecked) == 10
        for i, (path, _) in enumerate(unchecked.samples):
            if path.endswith(("cut.png", "9.jpg", "text.png", "none.gif")):
                with pytest.raises(gl.data.ImageError, match=r"(cut\.png|9\.jpg|text\.png|none\.gif) cannot be read: "):
                    unchecked[i]

    def test_a_class_of_which_nothing_can_be_read_is_none(self, folder):
        (folder / "0 birds").mkdir()
        (folder / "0 birds" / "x.png").write_bytes(b"no")
        found = gl.data.ImageFolder(folder)
        assert found.classes == ["a dogs", "b cats"]
        assert found.targets == [0, 0, 0, 1, 1, 1]
        assert "0 birds" in found.notes[-1]
        (folder / "0 birds" / "x.png").unlink()
        assert gl.data.ImageFolder(folder).notes == ["folders without images are no classes: 0 birds"]
        assert gl.data.ImageFolder(folder, allow_empty=True).classes[0] == "0 birds"

    def test_all_in_memory(self, folder):
        Image.fromarray(np.full((30, 10), 200, np.uint8)).save(folder / "a dogs" / "high.png")
        images, classes = gl.data.ImageFolder(folder).arrays(6)
        assert images.shape == (7, 6, 6, 1)
        assert classes.tolist() == [0, 0, 0, 0, 1, 1, 1]
        assert np.array_equal(images[0, ..., 0], (GREYS // 2 + 10)[:, 1:7])  # the middle of 6 x 8
        assert (images[3] == 200).all()
        assert gl.data.ImageFolder(folder).arrays((4, 8), fit="stretch")[0].shape == (7, 4, 8, 1)


def test_damage_is_an_error_of_one_kind(tmp_path):
    """Files with a bit of damage somewhere can be read, or are refused in one line; and the check knows which."""
    random, path, refused = np.random.default_rng(0), tmp_path / "damaged", 0
    for number, (kind, mode) in enumerate([("PNG", "RGB"), ("PNG", "P"), ("JPEG", "RGB"), ("GIF", "P"), ("TIFF", "CMYK"), ("BMP", "RGB")]):
        buffer = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (20, 17, 3), np.uint8)).convert(mode).save(buffer, kind)
        for _ in range(40):
            content = bytearray(buffer.getvalue())
            if random.random() < 0.3:
                del content[random.integers(len(content)) :]
            for place in random.integers(0, max(len(content), 1), 3)[: len(content)]:
                content[place] = random.integers(256)
            path.write_bytes(content)
            results = []
            for read in (gl.data.read_image, check_image):
                try:
                    read(path)
                    results.append(True)
                except gl.data.ImageError as error:
                    assert "\n" not in str(error)
                    results.append(False)
            assert results[0] == results[1], (number, kind)
            refused += not results[0]
    assert 60 < refused < 240


class TestNothingToLearnFrom:
    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ((), "the folder is empty; it should hold a folder of images for each class"),
            (("a/", "b/"), "there are no images in its folders; each class needs a folder with images"),
            (("a/notes.txt", ".DS_Store"), "there are no images in its folders"),
            (("1.png", "2.jpg"), "2 images lie in the folder itself; put those of each class into a folder of its own"),
            (("a/1.png", "b/2.jpg"), "none of 2 files can be read: .*1.png cannot be read: it is no image that Pillow knows"),
        ],
    )  # fmt: skip
    def test_a_line_says_so(self, files, message, tmp_path):
        for name in files:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            if name.endswith("/"):
                (tmp_path / name).mkdir(exist_ok=True)
            else:
                (tmp_path / name).write_text("x")
        with pytest.raises(gl.data.DataError, match=message) as caught:
            gl.data.ImageFolder(tmp_path)
        assert str(caught.value).startswith(f"ImageFolder: {tmp_path}")
        assert "\n" not in str(caught.value)

    def test_no_folder(self, tmp_path):
        with pytest.raises(gl.data.ImageError, match="there is no such folder"):
            gl.data.ImageFolder(tmp_path / "none")
        (tmp_path / "file").write_text("")
        with pytest.raises(gl.data.ImageError, match="file is a file: give a folder"):
            gl.data.ImageFolder(tmp_path / "file")
        with pytest.raises(FileNotFoundError):
            gl.data.read_image(tmp_path / "none.png")


class TestTwoParts:
    def test_training_and_validation(self, folder, tmp_path):
        parts = tmp_path / "both"
        for part in ("train", "Val"):
            for name in ("a dogs", "b cats"):
                (parts / part / name).mkdir(parents=True)
                Image.fromarray(GREYS).save(parts / part / name / "1.png")
        training, validation = gl.data.image_folders(parts)
        assert training.classes == validation.classes == ["a dogs", "b cats"]
        assert training.root.name == "train"
        assert validation.root.name == "Val"
        (parts / "Val" / "birds").mkdir()
        Image.fromarray(GREYS).save(parts / "Val" / "birds" / "1.png")
        with pytest.raises(gl.data.ImageError, match="birds is no class of the training images; those are a dogs, b cats"):
            gl.data.image_folders(parts)

    def test_one_folder(self, folder):
        training, validation = gl.data.image_folders(folder)
        assert len(training) == 6
        assert validation is None

    def test_one_class(self, folder):
        for path in (folder / "a dogs").iterdir():
            path.unlink()
        with pytest.raises(gl.data.ImageError, match=r'there is one class only, "b cats"; .* put the images of each class into a folder'):
            gl.data.image_folders(folder)

    def test_a_folder_in_a_folder(self, folder, tmp_path_factory):
        outer = tmp_path_factory.mktemp("outer")
        folder.rename(outer / "animals")
        with pytest.raises(gl.data.ImageError, match=r'give the folder ".*animals", which holds '):
            gl.data.image_folders(outer)


def test_without_pillow(folder, monkeypatch):
    def nothing(name):
        raise ModuleNotFoundError("No module named 'PIL'", name="PIL")

    monkeypatch.setattr(importlib.import_module("gradlab.utils.pillow"), "import_module", nothing)
    with pytest.raises(gl.data.ImageError, match="pip install 'gradlab-engine\\[images\\]'"):
        gl.data.ImageFolder(folder)
