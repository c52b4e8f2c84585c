"""Damaged and malicious files for every loader: `python tests/evil_loaders.py KIND,KIND FIRST LAST` reads the files of these seeds.

It prints, as JSON, what became of those of each kind: read, refused by the loader's own error, or wrong: another error, a file opened,
imported or run meanwhile, longer than SLOW seconds, or memory beyond MEMORY bytes more than before, which the process may not have. A
number in the file that the variable EVIL_PLACE names is the seed at work, should the process end.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from evil_files import NUMBERS, WORDS, Watch, archive_of, changed, damaged, records, valid
from jit_files import contents, edited, mutated, places

import gradlab as gl
from gradlab.data import DataError, read_idx, read_image, read_table, read_text
from gradlab.jit.portable import LoadError
from gradlab.onnx import OnnxLoadError
from gradlab.runs.folder import RunError
from gradlab.train import read_checkpoint
from gradlab.utils.serialization import FileFormatError, checksum, hdf5, to_bytes

SLOW, MEMORY = 20, 400 << 20

class Kind(NamedTuple):
    """A loader. wholes: files that it reads; evil: another file of one of them; read: what reads it; refusal: its own errors."""

    wholes: Callable[[], list[bytes]]
    evil: Callable[[random.Random, bytes], bytes]
    read: Callable[[Path], Any]
    refusal: tuple[type[BaseException], ...]
    suffix: str = ""


# ---------------------------------------------------------------- files of tensors


def text_of(header):
    text = json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return text + b" " * (-len(text) % 8)


def retold(choose, whole):
    """A safetensors file whose header, or what is written in it as JSON, says something else, with a checksum that holds."""
    if choose.random() < 0.1:
        return damaged(choose, whole)
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end])
    key = choose.choice([*header["__metadata__"]])
    if choose.random() < 0.6 and header["__metadata__"][key].startswith("{"):
        tree = json.loads(header["__metadata__"][key])
        edited(choose, tree)
        header["__metadata__"][key] = json.dumps(tree)
    else:
        edited(choose, header)
    text = text_of(header)
    content = len(text).to_bytes(8, "little") + text + whole[end:]
    try:
        return checksum.sealed(content)
    except (AttributeError, TypeError, ValueError):
        return content


@cache
def checkpoints():
    gl.manual_seed(0)
    model = gl.nn.Sequential(gl.nn.Linear(3, 5), gl.nn.BatchNorm1d(5), gl.nn.Linear(5, 2))
    optimizer = gl.optim.AdamW(model.parameters())
    model(gl.randn(8, 3)).square().mean().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": gl.get_rng_state(), "counts": {"epoch": 1}}
    return [to_bytes({"run": {**state, "loader": None, "history": [{"epoch": 1.0, "loss": float("nan")}]}})]


@cache
def ggufs():
    """Two tensors and metadata of every kind."""

    def text(word):
        return struct.pack("<Q", len(word)) + word.encode()

    pairs = [text("general.alignment") + struct.pack("<II", 4, 32), text("name") + struct.pack("<I", 8) + text("tiny")]
    pairs += [text("list") + struct.pack("<IIQ", 9, 4, 3) + bytes(12), text("nested") + struct.pack("<IIQIQ", 9, 9, 1, 8, 1) + text("a")]
    described = text("w") + struct.pack("<IQQIQ", 2, 3, 2, 0, 0) + text("b") + struct.pack("<IQIQ", 1, 4, 1, 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, len(pairs)) + b"".join(pairs) + described
    return [head + bytes(-len(head) % 32) + bytes(32 + 8)]


def numbered(choose, whole):
    """Some numbers of 4 or 8 bytes replaced by ones that say too much, beside other damage."""
    if choose.random() < 0.4:
        return damaged(choose, whole)
    found = bytearray(whole)
    for _ in range(choose.choice((1, 1, 2, 3))):
        size = choose.choice((4, 8))
        number = choose.choice(NUMBERS) % (1 << 8 * size)
        at = choose.randrange(max(len(found) - size, 1))
        found[at : at + size] = number.to_bytes(size, choose.choice(("little", "big")))
    return bytes(found)


@cache
def indices():
    gl.save({"a": gl.ones(400), "b": gl.zeros(400)}, SCRATCH / "m.safetensors", max_shard_size="2KB")
    return [(SCRATCH / "m.safetensors.index.json").read_bytes()]


def json_changed(choose, whole):
    """JSON that says something else, deep or broken."""
    pick = choose.random()
    if pick < 0.3:
        return damaged(choose, whole)
    if pick < 0.33:
        return whole[:20] + choose.choice((b"[" * 100_000, b'{"a":' * 50_000, b"9" * 6000, b"1e999", b"NaN"))
    tree = json.loads(whole)
    edited(choose, tree)
    if choose.random() < 0.3:
        at, key = choose.choice(places(tree, []) or [({}, "")])
        at[key] = choose.choice((*WORDS, *NUMBERS))
    return json.dumps(tree).encode()


def rearchived(choose, whole):
    """An archive whose own checksums hold and whose records were changed."""
    if choose.random() < 0.2:
        return damaged(choose, whole)
    parts = dict(records(choose.choice(("archive", "protocol4"))))
    name = choose.choice([*parts])
    parts[name] = changed(choose, parts[name])
    pickled = parts.pop("data.pkl")
    return archive_of(pickled, **parts)


def repacked(choose, whole):
    """An .npz file whose arrays were changed, in an archive that holds."""
    if choose.random() < 0.3:
        return damaged(choose, whole)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = choose.choice([*parts])
    parts[name] = numbered(choose, parts[name])
    if choose.random() < 0.1:
        parts[choose.choice(("../../evil.npy", "/evil.npy", "a/../b.npy"))] = parts[name]
    with zipfile.ZipFile(file := io.BytesIO(), "w", choose.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


# ---------------------------------------------------------------- data


def tables():
    plain = b'name,age,when,score\nAnn,31,2020-01-02,1.5\n"Bob, jr",,2020-02-03,-2e3\nC\xc3\xa9,40,2020-03-04,\n' * 3
    others = [plain.replace(b",", b";"), plain.replace(b"\n", b"\r\n"), gzip.compress(plain), b"1 2 3\n4 5 6\n" * 9]
    return [plain, *others, plain.decode().encode("utf-16")]


def unzipped(choose, whole):
    """Of compressed files the content is changed, too."""
    if whole[:2] == b"\x1f\x8b" and choose.random() < 0.6:
        return gzip.compress(damaged(choose, gzip.decompress(whole)), 1)
    if whole[:2] != b"\x1f\x8b" and choose.random() < 0.2:
        pieces = [b'"', b",", b";", b"\t", b"\n", b"\0", b"9" * 5000, b"1e999", b"=cmd()", b"\xff\xfe", b",,,,,,,,", b'"' * 9, b"#", b"%"]
        at = choose.randrange(len(whole))
        return whole[:at] + choose.choice(pieces) * choose.choice((1, 2, 1000)) + whole[at:]
    return damaged(choose, whole)


@cache
def idx_files():
    plain = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + bytes(range(24))
    floats = b"\0\0\x0d\x01" + struct.pack(">I", 5) + np.arange(5, dtype=">f4").tobytes()
    return [plain, floats, gzip.compress(plain)]


def idx_changed(choose, whole):
    if whole[:2] == b"\x1f\x8b" and choose.random() < 0.6:
        return gzip.compress(numbered(choose, gzip.decompress(whole)), 1)
    return numbered(choose, whole)


@cache
def images():
    from PIL import Image

    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 7, 3), np.uint8))
    files = []
    for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        picture.save(file := io.BytesIO(), form)
        files.append(file.getvalue())
    return files


@cache
def hdf5_files():
    """Groups, text, links and packed pieces, as older and newer versions of the library write them."""
    h5py = import_module("h5py")
    files = []
    for version in ("earliest", "latest"):
        with h5py.File(file := io.BytesIO(), "w", libver=version, userblock_size=512 * (version == "latest")) as tree:
            packed = {"chunks": (5, 7), "compression": "gzip", "shuffle": True, "fletcher32": True}
            tree.create_dataset("layers/w", data=np.arange(600.0).reshape(20, 30), **packed)
            tree.create_dataset("layers/b", data=np.arange(9, dtype=">i2"), maxshape=(None,))
            tree["layers/deep/kind"] = "convolution"
            tree["names"] = np.array([b"one", b"two"])
            tree["texts"], tree["one"], tree["again"] = ["un", "deux"], 1.5, h5py.SoftLink("/layers")
            tree["layers"].attrs["units"] = [3, 4]
        files.append(file.getvalue())
    return files


@cache
def runs():
    """The description of a run, beside which its weights lie."""
    from gradlab.cli import main

    table = SCRATCH / "flowers.csv"
    rows = np.random.default_rng(0).normal(size=(60, 3))
    table.write_text("a,b,c,kind\n" + "".join(f"{a},{b},{c},{'xy'[int(a > 0)]}\n" for a, b, c in rows))
    quiet, sys.stdout = sys.stdout, io.StringIO()
    try:
        command = ["train", "table", str(table), "--target", "kind", "--epochs", "1", "--device", "cpu", "--out", str(SCRATCH / "run")]
        assert main(command) == 0
    finally:
        sys.stdout = quiet
    return [(SCRATCH / "run" / "run.json").read_bytes()]


def evil_onnx():
    """Only where the package onnx is."""
    return import_module("evil_onnx")


SCRATCH = Path(tempfile.gettempdir())  # a folder of its own once the program runs
DATA = (DataError,)
FILE = (FileFormatError,)


def run_of(path):
    """The run whose description was changed."""
    (SCRATCH / "run" / "run.json").write_bytes(path.read_bytes())
    return gl.load_run(SCRATCH / "run")


KINDS = {
    "safetensors": Kind(lambda: [valid()["safetensors"], *checkpoints()], retold, gl.load, FILE, ".safetensors"),
    "checkpoint": Kind(checkpoints, retold, read_checkpoint, (ValueError,), ".safetensors"),
    "index": Kind(indices, json_changed, gl.load, FILE, ".json"),
    "pth": Kind(lambda: [valid()["archive"], valid()["protocol4"]], rearchived, gl.load, FILE, ".pth"),
    "stream": Kind(lambda: [valid()["stream"]], damaged, gl.load, FILE, ".pth"),
    "npz": Kind(lambda: [valid()["npz"], valid()["packed"]], repacked, gl.load, FILE, ".npz"),
    "npy": Kind(lambda: [valid()["npy"]], numbered, gl.load, FILE, ".npy"),
    "gguf": Kind(ggufs, numbered, gl.load, FILE, ".gguf"),
    "glp": Kind(lambda: [*contents().values()], mutated, lambda path: gl.jit.load(path, max_bytes=1 << 28), (LoadError,), ".glp"),
    "onnx": Kind(
        lambda: evil_onnx().onnx_files(SCRATCH), lambda *given: evil_onnx().onnx_changed(*given), gl.onnx.load, (OnnxLoadError,), ".onnx"
    ),
    "csv": Kind(tables, unzipped, read_table, DATA, ".csv"),
    "text": Kind(tables, unzipped, read_text, DATA, ".txt"),
    "idx": Kind(idx_files, idx_changed, read_idx, DATA),
    "image": Kind(images, damaged, read_image, DATA, ".png"),
    "hdf5": Kind(hdf5_files, numbered, gl.load, FILE, ".h5"),
    "run": Kind(runs, json_changed, run_of, (RunError,)),
}  # fmt: skip


class Late(BaseException):
    """A file took too long."""


class WatchOfFiles(Watch):
    """Files in the folder that files lie in may be opened, and the program be run that reads HDF5."""

    def __call__(self, event, arguments):
        if (event == "subprocess.Popen" and str(hdf5._PROGRAM) in arguments[1]) or (event == "open" and isinstance(arguments[0], int)):
            return
        if event == "open" and str(arguments[0]).startswith((str(SCRATCH), sys.prefix, sys.base_prefix)):
            return
        super().__call__(event, arguments)


def main(kind, first, last):
    import resource

    global SCRATCH
    with tempfile.TemporaryDirectory() as folder:
        SCRATCH = Path(folder)
        way = KINDS[kind]
        for room in ("special", "fft", "signal", "linalg"):  # which loaders may import when they need them
            import_module(f"gradlab.{room}")
        for encoding in ("cp437", "cp1252", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "ascii"):
            "x".encode(encoding).decode(encoding)
        wholes, path = way.wholes(), SCRATCH / f"evil{way.suffix}"
        for whole in wholes:  # what reading imports is there before
            path.write_bytes(whole)
            way.read(path)
        pages = Path("/proc/self/statm")
        used = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 1 << 34
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        hdf5.SECONDS = SLOW // 2  # a damaged HDF5 file can be read for ever: its reader is ended, before that is called late
        watch, found = WatchOfFiles(), {"read": 0, "refused": 0, "wrong": [], "slowest": (0.0, 0)}
        place = os.open(os.environ.get("EVIL_PLACE", os.devnull), os.O_WRONLY)

        def late(*_):
            raise Late

        signal.signal(signal.SIGALRM, late)
        warnings.simplefilter("ignore")
        np.seterr(all="ignore")
        for seed in range(first, last):
            os.pwrite(place, str(seed).encode(), 0)
            choose = random.Random(seed)
            try:
                content = way.evil(choose, choose.choice(wholes))
            except RecursionError:  # the maker's, not the reader's
                continue
            path.write_bytes(content)
            begin = time.perf_counter()
            watch.on = True
            signal.alarm(SLOW)
            try:
                way.read(path)
                found["read"] += 1
            except way.refusal as error:
                found["refused"] += 1
                if "MemoryError" in str(error) or "Unable to allocate" in str(error) or len(str(error)) > 5000:
                    found["wrong"].append(f"seed {seed}: {str(error)[:300]}")
            except BaseException as error:
                if isinstance(error, RuntimeError) and "saved from" in str(error):  # a device that is not there
                    found["refused"] += 1
                    continue
                found["wrong"].append(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
            finally:
                signal.alarm(0)
                watch.on = False
            if watch.seen:
                found["wrong"].append(f"seed {seed}: {watch.seen[:3]}")
                watch.seen.clear()
            found["slowest"] = max(found["slowest"], (round(time.perf_counter() - begin, 2), seed))
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # MB on Linux
    return found


if __name__ == "__main__":
    print(json.dumps({kind: main(kind, int(sys.argv[2]), int(sys.argv[3])) for kind in sys.argv[1].split(",")}))
