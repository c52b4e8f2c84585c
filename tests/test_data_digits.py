"""The digits inside the package: whole, as described, split the same way everywhere, and refused when damaged."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from gradlab.data import DataError, digits, digits_split, optical_digits


def test_what_they_are():
    images, labels = digits()
    assert (images.shape, images.dtype) == ((1797, 8, 8), np.uint8)
    assert (labels.shape, labels.dtype) == ((1797,), np.int64)
    assert (images.min(), images.max()) == (0, 16)
    # The class counts that the source publishes for its test file.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_they_are_the_source_values():
    """The first row of optdigits.tes, a zero, and the sum over all rows."""
    images, labels = digits()
    assert labels[0] == 0
    assert images[0].tolist()[:2] == [[0, 0, 5, 13, 9, 1, 0, 0], [0, 0, 13, 15, 10, 15, 5, 0]]
    content = images.tobytes() + labels.astype(np.uint8).tobytes()
    assert hashlib.sha256(content).hexdigest() == "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def test_fresh_arrays():
    digits()[0][:] = 0
    assert digits()[0].any()


def test_the_split():
    training, held_out = digits_split()
    assert (len(training), len(held_out)) == (1442, 355)
    assert sorted([*training, *held_out]) == list(range(1797))
    _, labels = digits()
    assert np.bincount(labels[held_out]).tolist() == [35, 36, 35, 36, 36, 36, 36, 35, 34, 36]
    assert held_out.dtype == training.dtype == np.int64
    assert digits_split()[1].tolist() == held_out.tolist()


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"\0" + content[1:], lambda content: b""])
def test_a_damaged_file(damage, tmp_path, monkeypatch):
    broken = tmp_path / optical_digits.FILE.name
    broken.write_bytes(damage(optical_digits.FILE.read_bytes()))
    monkeypatch.setattr(optical_digits, "FILE", broken)
    with pytest.raises(DataError, match=r"optical_digits\.bin\.gz is damaged.*install gradlab again"):
        digits()


def test_a_missing_file(tmp_path, monkeypatch):
    monkeypatch.setattr(optical_digits, "FILE", tmp_path / "gone.gz")
    with pytest.raises(DataError, match=r"gone\.gz cannot be read"):
        digits()


def test_origin_and_licence_travel_with_them():
    text = optical_digits.FILE.with_name("optical_digits.SOURCE.txt").read_text(encoding="utf-8")
    for needed in ("UCI", "Alpaydin", "Kaynak", "10.24432/C50P49", "CC BY 4.0", "What was changed"):
        assert needed in text


def test_not_loaded_with_gradlab():
    program = "import sys, gradlab; print('gradlab.data' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
