"""Saving and reading: tensors and the plain values around them, in the safetensors format or in PyTorch's. Reading a file runs no code of
it, unless that is asked for.
"""

from __future__ import annotations

import os
import pickle as python_pickle
from typing import Any, BinaryIO

from gradlab.tensor.missing_names import absent as _absent
from gradlab.utils.atomic import write_bytes
from gradlab.utils.serialization import shards, torch_reading, torch_writing
from gradlab.utils.serialization.allowed import (
    add_safe_globals as add_safe_globals,
    clear_safe_globals as clear_safe_globals,
    get_safe_globals as get_safe_globals,
    safe_globals as safe_globals,
)
from gradlab.utils.serialization.archive import ZIP
from gradlab.utils.serialization.errors import FileFormatError as FileFormatError, UnsafeFileError as UnsafeFileError
from gradlab.utils.serialization.foreign import NPZ, what_zip_it_is
from gradlab.utils.serialization.gguf import MAGIC as GGUF, from_gguf
from gradlab.utils.serialization.hdf5 import from_hdf5, is_hdf5
from gradlab.utils.serialization.mapped import from_mapped, is_mappable
from gradlab.utils.serialization.numpy_files import MAGIC as NPY, from_npy, from_npz
from gradlab.utils.serialization.plain import from_bytes as from_safetensors, stored_arrays as stored_arrays, to_bytes as to_bytes
from gradlab.utils.serialization.torch_reading import get_unsafe_globals_in_checkpoint as get_unsafe_globals_in_checkpoint

Path = str | os.PathLike[str]
_PYTORCH = (".pt", ".pth", ".tar", ".ckpt", ".bin", ".pkl", ".model")  # how names of PyTorch's files end
_OTHERS = (".npy", ".npz", ".h5", ".hdf5", ".keras", ".onnx", ".gguf", ".joblib", ".mat")  # whose readers would not know what `save` writes
_pickle_by_default = False


def set_default_pickle(allowed: bool) -> None:
    """Say whether `save` writes what only a pickle can hold unasked, with a warning: so in PyTorch's scripts (as_torch)."""
    global _pickle_by_default
    _pickle_by_default = allowed


def save(
    obj: Any, f: Path | BinaryIO, pickle_module: Any = None, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False, *, pickle: bool | None = None, format: str | None = None,
    max_shard_size: int | str | None = None,
) -> None:  # fmt: skip
    """Write `obj` to a path or a binary file: tensors, NumPy arrays, numbers, strings, bytes, None, and dicts, lists and tuples of them.

    format: "safetensors", or "torch" for what PyTorch's `torch.load` reads, which also holds sets, argparse's Namespace and the like. By
    default what the path's ending says (.safetensors; .pt, .pth, .ckpt, .tar, .bin), and otherwise safetensors for all that it can hold;
    ValueError for endings of other formats, such as .npz.
    pickle=True: also write objects of any class, a module itself, in PyTorch's format; a warning says so, since whoever reads such a file
    runs code of it. Without it TypeError: save a module's `state_dict()`.

    max_shard_size: write a dict of tensors to several safetensors files of at most so many bytes ("5GB"), with an index beside them, as
    Hugging Face does: `model-00001-of-00002.safetensors`, …, `model.safetensors.index.json`. `load` reads the index, or the folder.

    A flat dict of tensors is a safetensors file of its own keys, for other programs to read. A path is written whole or not at all: on any
    error what was there stays. A tensor used twice is one tensor again after loading. Gradients and graphs are not saved.
    """
    if pickle_module not in (None, python_pickle):
        name = getattr(pickle_module, "__name__", pickle_module)
        raise NotImplementedError(f"save: files are written by Python's pickle; pickle_module={name} is not offered")
    if format not in (None, "safetensors", "torch"):
        raise ValueError(f"save: format is 'safetensors' or 'torch', not {format!r}")
    name = os.fspath(f) if isinstance(f, (str, os.PathLike)) else ""
    if not name and not hasattr(f, "write"):
        raise TypeError(f"save: expected a path or a file opened for writing bytes, not {type(f).__name__}")
    if name.endswith(_OTHERS) and format is None and not _pickle_by_default:
        raise ValueError(f"save: {name} ends as files of another format do; name it .safetensors or .pt, or say which it is with format=")
    if max_shard_size is not None:
        if not name:
            raise TypeError("save: max_shard_size= needs a path, beside which the files lie")
        shards.save_shards(obj, name, shards.bytes_in(max_shard_size), to_bytes)
        return
    content = _content(obj, format or _meant(name), _pickle_by_default if pickle is None else pickle, pickle_protocol)
    if name:
        write_bytes(name, content)
    else:
        f.write(content)  # type: ignore[union-attr]


def _meant(name: str) -> str | None:
    return "torch" if name.endswith(_PYTORCH) else "safetensors" if name.endswith(".safetensors") else None


def _content(obj: Any, format: str | None, allow_pickle: bool, protocol: int) -> bytes:
    if format == "torch":
        return torch_writing.to_bytes(obj, allow_pickle, protocol)
    try:
        return to_bytes(obj)
    except TypeError as plain:
        if format is not None:
            raise
        try:
            return torch_writing.to_bytes(obj, allow_pickle, protocol)
        except TypeError as error:  # neither holds it
            raise plain from error


def load(
    f: Path | BinaryIO, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None,
    memory_map: bool | None = None, **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read, from a path or a binary file, what `save` or PyTorch's `torch.save` wrote (archives and older streams), any safetensors file
    (a dict of tensors), an index of several or the folder with it, NumPy's `.npy` (a tensor) and `.npz` (a dict), GGUF (a dict; none of
    quantised tensors), or HDF5 (dicts as its groups are; where h5py is installed).

    Which it is, the content says, not the name. Arrays of types that tensors do not have, such as text, stay NumPy's.
    map_location: the device to put tensors on: a device, a dict from saved to wanted devices, or a function of a tensor and the name of
    the device it was saved from. Default: that device.
    weights_only: False lets a file of PyTorch's make objects of any class, which runs code of it; a warning names them. By default such a
    file is an UnsafeFileError (a `pickle.UnpicklingError`), unless `gradlab.serialization.add_safe_globals` allows the classes.
    `pickle_module` and `pickle_load_args` are for such files.
    memory_map (or mmap, PyTorch's name): tensors of safetensors files are read from the disk where they are used; what is written to them
    stays in this process, and the file's checksum is not looked at. Other files are read whole.

    FileFormatError (a ValueError) for damaged, truncated and foreign files, which it names with what to do. OSError where the file cannot
    be read.
    """
    if isinstance(f, (str, os.PathLike)):
        name = os.fspath(f)
        if os.path.isdir(name):
            name = shards.index_in(name)
        if (memory_map or mmap) and is_mappable(name):
            return from_mapped(name, map_location)
        with open(name, "rb") as file:
            content = file.read()
        if shards.is_index(content):
            options = {"weights_only": weights_only, "mmap": mmap, "memory_map": memory_map, **pickle_load_args}
            return shards.load_shards(content, name, lambda part: load(part, map_location, pickle_module, **options))
    elif hasattr(f, "read"):
        name = str(getattr(f, "name", "the file"))
        content = f.read()
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"load: {name} gives text; open it for reading bytes, with mode 'rb'")
    else:
        raise TypeError(f"load: expected a path or a file opened for reading bytes, not {type(f).__name__}")
    if pickle_module is not None and weights_only:
        raise RuntimeError("load: pickle_module= is for weights_only=False")
    safe = pickle_module is None if weights_only is None else weights_only
    return from_bytes(bytes(content), name, map_location, safe, pickle_module, pickle_load_args)


def from_bytes(
    content: bytes, name: str = "the file", map_location: Any = None, weights_only: bool = True, pickle_module: Any = None,
    options: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """What was saved in `content`. FileFormatError, naming the file, for anything else."""
    if content[8:9] == b"{":  # the length before a safetensors header may be any bytes
        return from_safetensors(content, name, map_location)
    if content.startswith(ZIP):
        other = what_zip_it_is(content)
        if other == NPZ:
            return from_npz(content, name, map_location)
        if other is not None:
            raise FileFormatError(f"load: {name} cannot be read: it is {other[0]}; {other[1]}")
    if content.startswith((ZIP, torch_reading.STREAM)):
        return torch_reading.read(content, name, map_location, weights_only, pickle_module, options)
    if content.startswith(NPY):
        return from_npy(content, name, map_location)
    if content.startswith(GGUF):
        return from_gguf(content, name, map_location)
    if is_hdf5(content):
        return from_hdf5(content, name, map_location)
    return from_safetensors(content, name, map_location)


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.utils.serialization", name)
