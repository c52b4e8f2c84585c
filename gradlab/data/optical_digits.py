"""The 1,797 handwritten digits of 8x8 pixels; origin and licence in optical_digits.SOURCE.txt."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gradlab.data.errors import DataError

COUNT = 1797
SIDE = 8
FILE = Path(__file__).with_name("optical_digits.bin.gz")
SHA256 = "d64ddccfe8e7f02b6067073443e8195f125aef554fb827ee64b600179fafce7f"


def verified(path: Path, sha256: str) -> bytes:
    """The bytes of a shipped file, or DataError: a damaged data set must not pass for a bad model."""
    remedy = "install gradlab again: pip install --force-reinstall gradlab-engine"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"the data file {path.name} cannot be read ({error.strerror}); {remedy}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DataError(
            f"the data file {path.name} is damaged: {len(content)} bytes with sha256 {found[:12]}…, "
            f"not {sha256[:12]}…; {remedy}"
        )
    return content


def digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images, uint8 [1797, 8, 8] with grey levels 0 (paper) to 16 (ink), and labels, int64 [1797] with 0 to 9.

    Fresh arrays at every call, in the order of the source. Raises DataError if the file is missing or damaged.
    """
    content = np.frombuffer(gzip.decompress(verified(FILE, SHA256)), np.uint8)
    pixels = COUNT * SIDE * SIDE
    return content[:pixels].reshape(COUNT, SIDE, SIDE).copy(), content[pixels:].astype(np.int64)


def digits_split() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The fixed split: int64 indices of the 1,442 images to train on and of the 355 held out, every fifth of each digit.

    The source lists one writer's digits after another, so both parts hold every writer and every digit. No random
    generator decides it: it is the same for every seed, version and machine.
    """
    _, labels = digits()
    held_out = np.zeros(COUNT, np.bool_)
    for digit in range(10):
        held_out[np.flatnonzero(labels == digit)[4::5]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
