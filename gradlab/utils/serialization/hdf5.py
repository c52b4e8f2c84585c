"""HDF5 files, as Keras, MATLAB (7.3) and many laboratories write them, through h5py where it is installed, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gradlab.utils.serialization.errors import FileFormatError
from gradlab.utils.serialization.numpy_files import from_npy

MAGIC = b"\x89HDF\r\n\x1a\n"
_PLACES = (0, 512, 1024, 2048, 4096)  # a file may begin with a block of the user's
_PROGRAM = Path(__file__).with_name("hdf5_reading.py")
SECONDS = 60  # and one more for each MB: a damaged file can be read for ever


def is_hdf5(content: bytes) -> bool:
    return any(content.startswith(MAGIC, place) for place in _PLACES)


def from_hdf5(content: bytes, name: str, map_location: Any) -> Any:
    """The datasets as tensors, in dictionaries as their groups are. FileFormatError, naming the file; attributes and links are left out."""
    if importlib.util.find_spec("h5py") is None:
        raise FileFormatError(f"load: {name} is an HDF5 file, which h5py reads, and that is not installed: pip install h5py")
    found = _read(content, name)
    end = len(found) - 8
    begin = end - int.from_bytes(found[end:], "little")
    try:
        tree = json.loads(found[begin:end])
        if "refused" in tree:
            raise FileFormatError(f"load: {name} {tree['refused']}")
        return _built(tree, found, name, map_location)
    except (RecursionError, json.JSONDecodeError) as error:
        raise FileFormatError(f"load: {name} is a damaged HDF5 file, or its groups lie too deep: {type(error).__name__}") from None


def _read(content: bytes, name: str) -> bytes:
    """What the program that reads it writes (hdf5_reading.py)."""
    # -P: what lies beside the program are no modules of its own. It finds h5py where this process would.
    command = [sys.executable, "-P", "-W", "ignore", str(_PROGRAM)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    limit = SECONDS + (len(content) >> 20)
    try:
        done = subprocess.run(command, input=content, capture_output=True, env=environment, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise FileFormatError(f"load: {name} is a damaged HDF5 file: reading it had not ended after {limit} s") from None
    except OSError as error:
        raise FileFormatError(f"load: {name} cannot be read: the process that reads HDF5 does not start: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise FileFormatError(f"load: {name} is a damaged HDF5 file: its library ended with {done.returncode}{said and f' ({said})'}")
    return done.stdout


def _built(tree: Any, arrays: bytes, name: str, map_location: Any) -> Any:
    if tree is None:
        return None
    if "group" in tree:
        return {key: _built(child, arrays, name, map_location) for key, child in tree["group"].items()}
    return tree["text"] if "text" in tree else from_npy(arrays[slice(*tree["array"])], name, map_location)
