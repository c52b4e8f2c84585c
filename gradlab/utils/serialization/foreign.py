"""Files of other kinds, told apart by how they begin, and what to do with each."""

from __future__ import annotations

import io
import re
import zipfile

_UNPACK = "unpack it first"
_PICKLE = "reading a pickle runs code of it. Where you trust it, read it with pickle or joblib, and keep its arrays with gradlab.save"
_CONVERT = "convert its weights to safetensors where they come from"
_PICTURE = "see gradlab.data and Pillow for pictures"
_NOTHING = "gradlab.load reads what gradlab.save and torch.save write, safetensors, .npy, .npz, GGUF and HDF5"

# Where it stands, what stands there, what the file is, the way out.
_BEGINNINGS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"lmgg", "a GGML file of llama.cpp", _CONVERT),
    (0, b"tjgg", "a GGML file of llama.cpp", _CONVERT),
    (0, b"\x80\x02", "a pickle", _PICKLE),
    (0, b"\x80\x03", "a pickle", _PICKLE),
    (0, b"\x80\x04", "a pickle", _PICKLE),
    (0, b"\x80\x05", "a pickle", _PICKLE),
    (0, b"\x1f\x8b", "compressed with gzip", _UNPACK),
    (0, b"BZh", "compressed with bzip2", _UNPACK),
    (0, b"\xfd7zXZ\x00", "compressed with xz", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "compressed with zstandard", _UNPACK),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"Rar!", "a RAR archive", _UNPACK),
    (0, b"ZF", "a pickle that joblib has compressed", _PICKLE),
    (0, b"x\x01", "a pickle that joblib has compressed, or other data packed with zlib", _PICKLE),
    (0, b"x\x5e", "a pickle that joblib has compressed, or other data packed with zlib", _PICKLE),
    (0, b"x\x9c", "a pickle that joblib has compressed, or other data packed with zlib", _PICKLE),
    (0, b"x\xda", "a pickle that joblib has compressed, or other data packed with zlib", _PICKLE),
    (257, b"ustar", "a tar archive, as torch.save wrote in 2016", "unpack it, or read it with PyTorch and save it anew"),
    (4, b"TFL3", "a TensorFlow Lite model", _CONVERT),
    (0, b"PAR1", "a Parquet table", "see gradlab.data.read_table"),
    (0, b"ARROW1", "an Arrow table", "see gradlab.data.read_table"),
    (0, b"FEA1", "a Feather table", "see gradlab.data.read_table"),
    (0, b"MATLAB 5.0", "a MATLAB file", "read it with scipy.io.loadmat"),
    (0, b"SQLite format 3", "an SQLite database", _NOTHING),
    (0, b"\x89PNG", "a PNG picture", _PICTURE),
    (0, b"\xff\xd8\xff", "a JPEG picture", _PICTURE),
    (0, b"GIF8", "a GIF picture", _PICTURE),
    (0, b"RIFF", "a RIFF file, such as WAV or WebP", _NOTHING),
    (0, b"%PDF", "a PDF document", _NOTHING),
    (0, b"\x7fELF", "a program", _NOTHING),
    (0, b"MZ", "a program", _NOTHING),
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file itself", "fetch that, with `git lfs pull`"),
)
NPZ = ("an archive of numpy.savez", "")
_OLD_PICKLE = re.compile(rb"[(\]})cdlIFSVL].*\.\s*", re.DOTALL)
_ZIPPED = (  # a record, what the archive then is, the way out
    ("model.weights.h5", "a Keras model", "take model.weights.h5 out of it, an HDF5 file, which gradlab.load reads"),
    ("config.json", "a Keras model", "take model.weights.h5 out of it, an HDF5 file, which gradlab.load reads"),
    ("constants.pkl", "a TorchScript archive", "save the module's state_dict() with torch.save"),
    ("serialized_exported_program.json", "a program of torch.export", "save the module's state_dict() with torch.save"),
    ("[Content_Types].xml", "an Office document", "see gradlab.data.read_table for tables as text"),
    ("MAR-INF/MANIFEST.json", "a TorchServe archive", "take the .pt file out of it"),
    ("META-INF/MANIFEST.MF", "a Java archive", _NOTHING),
    ("schema.json", "a skops file or another archive", _NOTHING),
)


def what_it_is(content: bytes, name: str) -> tuple[str, str] | None:
    """What a file of another kind is, and what to do with it; None where that cannot be told."""
    if content.startswith(b"PK\x03\x04"):
        found = what_zip_it_is(content)
        return ("a zip archive, as torch.save and numpy.savez write", "gradlab.load reads those") if found in (None, NPZ) else found
    for place, magic, what, way in _BEGINNINGS:
        if content.startswith(magic, place):
            return what, way
    if content.endswith(b"\x57\xfb\x80\x8b\x24\x75\x47\xdb") or re.search(r"\.data-\d+-of-\d+$", name):
        return "a TensorFlow checkpoint", _CONVERT
    if name.endswith(".onnx") or re.match(rb"\x08[\x03-\x20]\x12", content):
        return "an ONNX model", "gradlab.onnx.load reads it"
    if re.match(rb"\x08\x01\x12", content):
        return "a SavedModel of TensorFlow", _CONVERT
    if name.endswith(".mat"):
        return "an old MATLAB file", "read it with scipy.io.loadmat"
    if name.endswith((".msgpack", ".flax")):
        return "a msgpack file, as Flax writes", _CONVERT
    return _text(content)


def _text(content: bytes) -> tuple[str, str] | None:
    begin = content[:4096].lstrip().lower()
    if begin.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, perhaps what a download said in place of the file", "look at it, and fetch the file again"
    if begin.startswith(b"<?xml"):
        return "an XML text", _NOTHING
    if begin.startswith((b"{", b"[")) and b'"weight_map"' in content:
        return "the index of a model that lies in several files", "load each of those, and join the dictionaries"
    if len(content) < 1 << 24 and _OLD_PICKLE.fullmatch(content) and (b"\n" in content or b"q\x00" in content):
        return "a pickle of an old protocol, it seems", _PICKLE
    if b"\x00" not in content[:4096] and content.isascii():
        return "a text", "see gradlab.data.read_table for tables, and Python's json for JSON" if begin[:1] in (b"{", b"[") else _NOTHING
    return None


def what_zip_it_is(content: bytes) -> tuple[str, str] | None:
    """The same of a zip archive; NPZ for NumPy's, None for one of torch.save's or a damaged one, which its reader tells of."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
    except Exception:  # a damaged archive raises whatever its bytes lead to
        return None
    if names and all(each.endswith(".npy") for each in names):
        return NPZ
    for record, what, way in _ZIPPED:
        if any(each == record or each.endswith(f"/{record}") for each in names):
            return what, way
    if any(each.endswith("/data.pkl") for each in names):
        return None
    return "a zip archive, but none that torch.save or numpy.savez writes", _UNPACK
