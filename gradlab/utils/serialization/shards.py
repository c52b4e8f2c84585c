"""Models in several files, as Hugging Face writes them: `model-00001-of-00002.safetensors`, …, and `model.safetensors.index.json`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gradlab.tensor import Tensor
from gradlab.utils.atomic import write_bytes
from gradlab.utils.serialization.errors import FileFormatError, shown

INDEX = ".index.json"
_NAMES = ("model.safetensors.index.json", "pytorch_model.bin.index.json", "model.safetensors", "pytorch_model.bin")  # in a folder
_LONGEST = 1 << 26  # bytes of an index
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def bytes_in(size: int | str) -> int:
    """A size as a number, or as text: "5GB", "200 MiB". ValueError for others."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(size).lower())
    if found is None or found[2] not in _UNITS or float(found[1]) <= 0:
        raise ValueError(f"save: max_shard_size is a number of bytes, or a text such as '5GB' or '200MiB', not {size!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def save_shards(obj: Any, path: str, limit: int, content: Callable[[Any], bytes]) -> None:
    """Write a flat dict of tensors to files of at most `limit` bytes of tensors (or one tensor), and their index, which comes last.

    What fits into one file is one, without an index. TypeError for anything but a dict of tensors by name.
    """
    if not isinstance(obj, Mapping) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in obj.items()):
        raise TypeError("save: max_shard_size= is for a dict of tensors by name, such as a module's state_dict()")
    stem, ending = os.path.splitext(path)
    if ending != ".safetensors":
        raise ValueError(f"save: shards are safetensors files; name it .safetensors, not {os.path.basename(path)!r}")
    parts: list[dict[str, Any]] = [{}]
    room = limit
    for key, tensor in obj.items():
        if parts[-1] and tensor.nbytes > room:
            parts.append({})
            room = limit
        parts[-1][key] = tensor
        room -= tensor.nbytes
    if len(parts) == 1:
        write_bytes(path, content(dict(obj)))
        return
    names = [f"{stem}-{i:05d}-of-{len(parts):05d}{ending}" for i in range(1, len(parts) + 1)]
    for name, part in zip(names, parts, strict=True):
        write_bytes(name, content(part))
    where = {key: os.path.basename(name) for name, part in zip(names, parts, strict=True) for key in part}
    index = {"metadata": {"total_size": sum(t.nbytes for t in obj.values())}, "weight_map": where}
    write_bytes(path + INDEX, (json.dumps(index, indent=2) + "\n").encode())


def index_in(folder: str) -> str:
    """The file in a folder that says what lies in it: an index, or the one file of a model. IsADirectoryError where there is none."""
    for name in _NAMES:
        if os.path.isfile(found := os.path.join(folder, name)):
            return found
    raise IsADirectoryError(f"load: {folder} is a folder without a model: none of {', '.join(_NAMES)} is in it; name the file")


def is_index(content: bytes) -> bool:
    """Whether a file is such an index."""
    return content[:64].lstrip()[:1] == b"{" and len(content) <= _LONGEST and b'"weight_map"' in content


def load_shards(content: bytes, path: str, load: Callable[[str], Any]) -> dict[str, Any]:
    """The tensors of all files that an index names, which lie beside it, in its order.

    FileFormatError where it is damaged, where it names files elsewhere, and where a file does not hold what it says.
    """
    try:
        where = json.loads(content.decode("utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"load: {path} is a damaged index: {type(error).__name__}") from None
    if not isinstance(where, dict) or not all(isinstance(name, str) for name in where.values()):
        raise FileFormatError(f"load: {path} is a damaged index: its weight_map does not lead from names of tensors to names of files")
    for name in set(where.values()):
        if not name or name in (".", "..") or len(name.encode("utf-8", "replace")) > 255 or re.search(r"[/\\\x00:]", name):
            raise FileFormatError(f"load: {path} names {shown(name)}, which does not lie beside it; an index names files by name alone")
    found: dict[str, Any] = {}
    for name in dict.fromkeys(where.values()):
        part = Path(path).parent / name
        if not part.is_file():
            raise FileFormatError(
                f"load: {path} is the index of a model that lies in several files, and {shown(name)} is not there; fetch all of them"
            )
        held = load(str(part))
        wanted = [key for key, at in where.items() if at == name]
        lost = [key for key in wanted if key not in held] if isinstance(held, dict) else wanted
        if lost:
            raise FileFormatError(f"load: {part} does not hold {shown(lost[0])}, as its index says")
        found.update({key: held[key] for key in wanted})
    return {key: found[key] for key in where}
