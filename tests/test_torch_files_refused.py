"""Files in PyTorch's format that are damaged, or made to run code: reading them is an error, and nothing of them runs."""

import io
import os
import pickle
import random
import re
import zipfile

import numpy as np
import pytest
from evil_files import archive_of

import gradlab as gl
from gradlab.serialization import UnsafeFileError
from gradlab.utils.serialization import FileFormatError, from_bytes

from repository import ROOT

FILES = ROOT / "tests" / "torch_files"
each_file = pytest.mark.parametrize("name", ["archive", "stream", "protocol4"])


class Payload:
    """Makes a folder when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


# ---------------------------------------------------------------- nothing runs


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_code_is_run(tmp_path, protocol):
    mark = tmp_path / "ran"
    content = archive_of(pickle.dumps({"w": Payload(mark)}, protocol))
    with pytest.raises(UnsafeFileError, match=r"(posix|nt)\.mkdir"):
        from_bytes(content, "evil.pt")
    assert not mark.exists()
    with pytest.warns(gl.GradlabWarning, match="mkdir"):
        from_bytes(content, "evil.pt", weights_only=False)
    assert mark.exists()


ATTACKS = {
    "eval": b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
    "getattr": b"cbuiltins\ngetattr\n(cbuiltins\nlist\nX\x05\x00\x00\x00clear\x85R.",
    "attribute of an allowed name": b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
    "a submodule": b"cnumpy.testing._private.utils\nrunstring\n.",
    "calling a value": b"ctorch\nfloat32\n)R.",
    "calling a result": b"ccollections\nOrderedDict\n)R)R.",
    "filling a name": b"ccollections\nOrderedDict\n}X\x01\x00\x00\x00aK\x01sb.",
    "filling an ordered dict": b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00clearK\x01sb.",
    "filling a module": b"ccollections\n__dict__\n}b.",
    "a factory": b"ccollections\ndefaultdict\n(cargparse\nNamespace\ntR.",
    "a large range": b"cbuiltins\nlist\n(cbuiltins\nrange\nJ\xff\xff\xff\x7f\x85RtR.",
    "a large bytearray": b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
    "objects": b"cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.",
    "an extension": b"\x82\x01.",
    "an old object": b"(ios\nsystem\nX\x02\x00\x00\x00lso.",
    "an old instance": b"(X\x02\x00\x00\x00lsios\nsystem\n.",
    "text with escapes": b"S'\\x41'\n.",
    "a persistent name": b"Psomething\n.",
    "a persistent value": b"K\x01Q.",
    "a long number": b"I" + b"9" * 5000 + b"\n.",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(name):
    with pytest.raises(FileFormatError):
        from_bytes(archive_of(ATTACKS[name]), "evil.pt")


def test_tensors_that_reach_out_of_their_memory():
    gl.save({"x": gl.arange(6.0).reshape(2, 3)}, file := io.BytesIO(), format="torch")
    with zipfile.ZipFile(file) as archive:
        pickled, memory = archive.read("archive/data.pkl"), archive.read("archive/data/0")
    records = {"data/0": memory}
    assert from_bytes(archive_of(pickled, **records))["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    sizes = b"K\x02K\x03\x86"
    assert sizes in pickled
    for wrong in (b"K\x03K\x03\x86", b"K\x02K\xff\x86", b"J\xff\xff\xff\xffK\x03\x86", b"G" + bytes(8) + b"K\x03\x86", b"K\x02\x85"):
        with pytest.raises(FileFormatError, match="size"):
            from_bytes(archive_of(pickled.replace(sizes, wrong), **records))
    with pytest.raises(FileFormatError, match="storage 0"):
        from_bytes(archive_of(pickled, **{"data/0": memory[:-1]}))
    with pytest.raises(FileFormatError, match="missing"):
        from_bytes(archive_of(pickled))
    with pytest.raises(FileFormatError, match="QInt8Storage, a type"):
        from_bytes(archive_of(pickled.replace(b"FloatStorage", b"QInt8Storage"), **records))


def test_big_endian_files():
    gl.save({"x": gl.arange(3.0), "n": gl.tensor([1, 2])}, file := io.BytesIO(), format="torch")
    with zipfile.ZipFile(file) as archive:
        read = {name.removeprefix("archive/"): archive.read(name) for name in archive.namelist()}
    read |= {"byteorder": b"big", "data/0": np.arange(3, dtype=">f4").tobytes(), "data/1": np.array([1, 2], ">i8").tobytes()}
    found = from_bytes(archive_of(read.pop("data.pkl"), **read))
    assert found["x"].tolist() == [0, 1, 2] and found["n"].tolist() == [1, 2]


# ---------------------------------------------------------------- damage


def loads(content):
    """Whether it can be read; what else it raises is a clear error."""
    try:
        from_bytes(content, "damaged.pt")
    except FileFormatError as error:
        assert "damaged.pt" in str(error)
        return False
    except RuntimeError as error:
        assert re.search("saved from|only floating point", str(error))
        return False
    return True


@each_file
def test_every_truncation_is_an_error(name):
    whole = (FILES / f"{name}.pt").read_bytes()
    assert loads(whole)
    for length in range(8, len(whole), 97):
        assert not loads(whole[:length])


def test_flipped_bytes_of_an_archive():
    whole = (FILES / "archive.pt").read_bytes()
    for place in range(0, len(whole), 23):
        loads(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])


@pytest.mark.parametrize("name", ["stream", "protocol4"])
def test_flipped_bytes_of_a_pickle(name):
    """Nothing checks these bytes but the machine that runs them."""
    whole, records = (FILES / f"{name}.pt").read_bytes(), {}
    if name != "stream":
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            records = {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}
        whole = records.pop("data.pkl")
    choose = random.Random(0)
    for _ in range(1500):
        content = bytearray(whole)
        for _ in range(choose.choice((1, 1, 2, 8))):
            content[choose.randrange(len(content))] = choose.randrange(256)
        loads(archive_of(bytes(content), **records) if records else bytes(content))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (archive_of(b"N.")[:-30], "damaged zip archive"),
        (archive_of(b"N.").replace(b"data.pkl", b"data.npy"), "none that torch.save or numpy.savez writes"),
        (archive_of(b"N.", **{"constants.pkl": b"N."}), "TorchScript"),
        (archive_of(b""), "cut short"),
        (archive_of(b"\xff"), "instruction 0xff"),
        (archive_of(b"NN."), "middle of an object"),
        (archive_of(b"h\x05."), "value 5"),
        (archive_of(b"}]]s."), "TypeError"),
    ],
)
def test_what_is_damaged_is_said(content, text):
    with pytest.raises(FileFormatError, match=f"x.pt.*{text}"):
        from_bytes(content, "x.pt")
