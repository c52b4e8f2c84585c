"""Files that nobody should read without care: valid ones changed at random, pickles of instructions drawn by chance, and bombs.

As a program, `python tests/evil_files.py FIRST LAST`: reads the files of these seeds and tells, as JSON, what became of them. It allows
itself 400 MB more memory, and notes whatever is run, imported or opened meanwhile.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import sys
import time
import unicodedata  # noqa: F401 - which the parser of a header imports
import zipfile
from functools import cache
from pathlib import Path

import numpy as np

import gradlab as gl
from gradlab.utils.serialization import FileFormatError, from_bytes, to_bytes

FILES = Path(__file__).with_name("torch_files")
NUMBERS = (0, 1, -1, 2, 3, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40)
WORDS = ("", "../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "\0", "x" * 70_000, "é", "__class__", "Relu", "Loop", "If", "float32")


def archive_of(pickled, **records):
    """An archive of torch.save's with this pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in {"data.pkl": pickled, "version": b"3\n", **records}.items():
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


@cache
def valid():
    """Files that are whole, by kind, and of archives the records."""
    found = {name: (FILES / f"{name}.pt").read_bytes() for name in ("archive", "stream", "protocol4")}
    arrays = {"x": np.arange(6.0).reshape(2, 3), "names": np.array(["a", "bc"]), "n": np.array(3)}
    for name, write in (("npz", np.savez), ("packed", np.savez_compressed)):
        write(file := io.BytesIO(), **arrays)
        found[name] = file.getvalue()
    np.save(file := io.BytesIO(), arrays["x"])
    found["npy"] = file.getvalue()
    found["safetensors"] = to_bytes({"x": gl.ones(2, 3), "more": [1, {"a": gl.zeros(2)}, "text", float("nan")]})
    return found


@cache
def records(name):
    with zipfile.ZipFile(io.BytesIO(valid()[name])) as archive:
        return {each.partition("/")[2]: archive.read(each) for each in archive.namelist()}


def changed(choose, content):
    """A few bytes changed, put in, taken away, or moved."""
    found = bytearray(content)
    for _ in range(choose.choice((1, 1, 2, 4, 16))):
        at, size = choose.randrange(len(found) + 1), choose.choice((1, 1, 2, 4, 40))
        way = choose.randrange(6)
        if way < 3 and at < len(found):
            found[at] = choose.choice((choose.randrange(256), 0, 255, found[at] ^ 1 << choose.randrange(8)))
        elif way == 3:
            found[at:at] = choose.randbytes(size)
        elif way == 4:
            del found[at : at + size]
        else:
            other = choose.randrange(len(found) + 1)
            found[at : at + size] = found[other : other + size]
    return bytes(found)


def damaged(choose, whole):
    """Cut short, or with bytes changed."""
    return whole[: choose.randrange(len(whole))] if choose.random() < 0.1 else changed(choose, whole)


def _text(text):
    return b"X" + struct.pack("<I", len(text)) + text.encode()


NAMES = """
torch._utils _rebuild_tensor_v2|torch._utils _rebuild_tensor|torch._utils _rebuild_tensor_v3|torch._utils _rebuild_parameter
torch._tensor _rebuild_from_type_v2|torch._utils _rebuild_meta_tensor_no_storage|torch._utils _rebuild_sparse_tensor
torch.serialization _get_layout|torch Size|torch device|torch Tensor|torch FloatStorage|torch float32|torch.storage UntypedStorage
builtins list|builtins dict|builtins tuple|builtins int|builtins str|builtins float|builtins set|builtins frozenset|builtins complex
builtins slice|builtins range|builtins bytearray|builtins bytes|builtins object|builtins eval|builtins getattr|os system|posix system
_codecs encode|collections OrderedDict|collections Counter|collections deque|collections defaultdict|datetime datetime|datetime timedelta
pathlib PurePosixPath|argparse Namespace|types SimpleNamespace|copyreg _reconstructor|numpy dtype|numpy ndarray
numpy._core.multiarray _reconstruct|numpy._core.multiarray scalar|numpy._core.numeric _frombuffer|subprocess Popen|numpy load
""".replace("\n", "|").strip("|").split("|")  # fmt: skip
PARTS = [
    *(f"c{module}\n{name}\n".encode() for module, name in (each.split(" ") for each in NAMES)),
    *(b"h" + bytes([i]) for i in range(6)), *(b"q" + bytes([i]) for i in range(6)), *[b"0", b"1", b"2", b"(", b"(", b"("],
    *[b"N", b"K\x01", b"K\x02", b"K\x03", b"M\xff\xff", b"J\xff\xff\xff\xff", b"\x8a\x09" + b"\xff" * 8 + b"\x7f"],
    *[b"G" + bytes(8), b"\x88", b"I01\n"],
    *map(_text, ("storage", "0", "cpu", "f4", "i8", "<", "torch.sparse_coo", "latin1", "x", "U9999999")), b"C\x04abcd", b"U\x03abc",
    *[b"]", b")", b"}", b"\x8f", b"l", b"t", b"d", b"\x85", b"\x86", b"\x87", b"\x91", b"a", b"e", b"s", b"u", b"\x90"] * 2,
    *[b"R", b"\x81", b"b", b"Q", b"\x93", b"\x92"] * 4,
    b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x06tQ",
    b"(h\x00K\x00K\x02K\x03\x86K\x03K\x01\x86\x89Ntctorch._utils\n_rebuild_tensor_v2\n",
]  # fmt: skip


def drawn(choose):
    """A pickle of instructions by chance, most of which fit together somehow."""
    body = [choose.choice(PARTS) for _ in range(choose.choice((3, 8, 20, 60)))]
    return b"\x80\x02" + b"".join(body) + choose.choice((b".", b"t.", b"\x85.", b"R."))


def made(seed):
    """The file of a seed, and its kind."""
    choose = random.Random(seed)
    kind = choose.choice(("drawn", "drawn", "drawn", "pickle", "pickle", *valid()))
    if kind == "drawn":
        return kind, archive_of(drawn(choose), **{"data/0": bytes(24)})
    if kind == "pickle":
        parts = dict(records(choose.choice(("archive", "protocol4"))))
        return kind, archive_of(changed(choose, parts.pop("data.pkl")), **parts)
    whole = valid()[kind]
    return kind, damaged(choose, whole)


def bombs():
    """Pickles of some bytes that would keep a careless reader busy for years, or take all memory."""
    text, twice = _text("a" * 10_000) + b"q\x01", b"\x85q\x00h\x00\x86" * 60
    number = b"\x8b" + struct.pack("<i", 100_000) + b"\x01" * 100_000
    dtype = b"cnumpy\ndtype\n" + _text("f4") + b"\x85Rq\x01(K\x03" + _text("<") + b"NNNNNK\x00tb"
    return {
        "a key": b"\x80\x02}K\x01" + twice + b"K\x01s.",
        "a member": b"\x80\x02\x8f(K\x01" + twice + b"\x90.",
        "a frozen set": b"\x80\x02(K\x01" + twice + b"\x91.",
        "a list of tuples": b"\x80\x02]K\x01" + twice + b"a.",
        "a result": b"\x80\x02K\x01" + twice + b".",
        "a text of lists": b"\x80\x02cbuiltins\nstr\nK\x01" + twice + b"\x85R.",
        "a reference": b"\x80\x02K\x01" + twice + b"Q.",
        "a dtype": b"\x80\x02cnumpy\ndtype\nK\x01" + twice + b"\x85R.",
        "a device": b"\x80\x02ctorch\ndevice\nK\x01" + twice + b"\x85R.",
        "a tensor's size": b"\x80\x02" + PARTS[-2] + b"q\x05ctorch._utils\n_rebuild_tensor_v2\n(h\x05K\x00K\x01" + twice
        + b"K\x01\x85\x89Nt" + b"R.",
        "copies of a text": b"\x80\x02(" + text + b"0" + b"c_codecs\nencode\nh\x01\x85R" * 50_000 + b"l.",
        "copies of a list": b"\x80\x02](" + b"K\x01" * 30_000 + b"eq\x010(" + b"cbuiltins\nlist\nh\x01\x85R" * 10_000 + b"l.",
        "attributes": b"\x80\x02}(" + b"".join(_text(f"a{i}") + b"N" for i in range(6_000)) + b"uq\x010("
        + b"cargparse\nNamespace\n)\x81h\x01b" * 6_000 + b"l.",
        "a large number as keys": b"\x80\x02" + number + b"q\x010}(" + b"h\x01N" * 100_000 + b"u.",
        "deep": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
        "deep tuples": b"\x80\x02)" + b"\x85" * 100_000 + b".",
        "many dtypes": b"\x80\x02(" + dtype * 20_000 + b"l.",
    }  # fmt: skip


class Watch:
    """Notes what is run, imported or opened."""

    events = frozenset((
        "exec", "import", "open", "os.system", "os.exec", "os.posix_spawn", "os.mkdir", "os.remove", "os.rename", "subprocess.Popen",
        "socket.connect", "ctypes.dlopen", "pickle.find_class", "shutil.rmtree", "marshal.loads", "code.__new__",
    ))  # fmt: skip

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.on and event in self.events:
            self.seen.append(f"{event} {arguments!r:.80}")


def main(first, last):
    import resource

    valid()
    for name in valid():  # what reading imports is there before
        from_bytes(valid()[name], name)
    from_bytes(archive_of(pickle.dumps({}, 2)), "x")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if Path("/proc/self/statm").exists() else 1 << 34
    resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
    watch, found = Watch(), {"read": 0, "refused": 0, "wrong": [], "slowest": (0.0, "")}
    files = [(f"seed {seed}", *made(seed)) for seed in range(first, last)]
    files += [(name, "bomb", archive_of(pickled, **{"data/0": bytes(24)})) for name, pickled in bombs().items()] if first == 0 else []
    for name, kind, content in files:
        begin = time.perf_counter()
        watch.on = True
        try:
            from_bytes(content, "evil.pt")
            found["read"] += 1
        except FileFormatError as error:
            found["refused"] += 1
            if "evil.pt" not in str(error) or "MemoryError" in str(error) or len(str(error)) > 600:
                found["wrong"].append(f"{name} ({kind}): {str(error)[:300]}")
        except BaseException as error:
            if isinstance(error, RuntimeError) and "saved from" in str(error):  # a device that is not there
                found["refused"] += 1
            else:
                found["wrong"].append(f"{name} ({kind}): {type(error).__name__}: {str(error)[:300]}")
        finally:
            watch.on = False
        if watch.seen:
            found["wrong"].append(f"{name} ({kind}): {watch.seen[:3]}")
            watch.seen.clear()
        found["slowest"] = max(found["slowest"], (round(time.perf_counter() - begin, 2), name))
    return found


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
