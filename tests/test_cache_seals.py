"""The cache of machine code is never trusted blindly: libraries, tables and what a wheel carries are looked at before they are opened."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gradlab.backends.native import compiler, prebuilt, ready, seals, toolchain
from gradlab.backends.native.toolchain import CompileError, Workshop, cache_directory

BEGINNINGS = {"Linux": b"\x7fELF", "macOS": b"\xcf\xfa\xed\xfe"}
each_system = pytest.mark.parametrize("system", BEGINNINGS)
posix = pytest.mark.skipif(os.name != "posix", reason="permissions and owners")


@pytest.fixture
def library(tmp_path, system):
    """A library in the cache, sealed; nothing of it was looked at yet."""
    made, target = tmp_path / "made", tmp_path / "library.so"
    made.write_bytes(BEGINNINGS[system] + random.Random(0).randbytes(5000))
    seals.seal(made, "a compiler")
    seals.deliver(made, target)
    seals._intact.clear()
    yield target
    seals._intact.clear()


def damages(whole):
    """Every kind of damage, with a name."""
    choose = random.Random(1)
    for at in (0, 1, 4, 39, 40, 41, len(whole) // 2, len(whole) - 1):
        yield f"cut to {at}", whole[:at]
    for _ in range(300):
        at, change = choose.randrange(len(whole)), choose.randrange(1, 256)
        yield f"byte {at} changed by {change}", whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :]
    yield "longer", whole + b"\0"
    yield "another", b"#!/bin/sh\n"
    yield "zeros", bytes(len(whole))


@each_system
def test_a_whole_one_is_opened_and_a_damaged_one_taken_away(library):
    whole = library.read_bytes()
    assert seals.intact(library) and seals.intact(library)
    for name, content in damages(whole):
        seals._intact.clear()
        library.write_bytes(content)
        assert not seals.intact(library), name
        assert not library.exists(), name
        assert not seals.intact(library), name


@posix
@each_system
def test_what_others_may_have_written_is_not_opened(library, tmp_path):
    for mode in (0o720, 0o702, 0o777):
        library.chmod(mode)
        elsewhere = library.read_bytes()
        assert not seals.intact(library) and not library.exists()
        library.write_bytes(elsewhere)
        library.chmod(0o700)
    assert seals.intact(library)
    seals._intact.clear()
    moved = library.rename(tmp_path / "elsewhere.so")
    library.symlink_to(moved)
    assert not seals.intact(library) and not library.is_symlink()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
@each_system
def test_a_file_of_another_user_is_not_opened(library):
    os.chown(library, 12345, 12345)
    assert not seals.intact(library)


def test_what_this_system_cannot_load_is_taken_away(tmp_path):
    made = tmp_path / "made"
    made.write_bytes(b"\x7fELF" + bytes(100))
    seals.seal(made, "a compiler")
    seals.deliver(made, target := tmp_path / "library.so")
    with pytest.raises(CompileError, match=r"library\.so was built whole and cannot be loaded here"):
        seals.opened(target)
    assert not target.exists()
    with pytest.raises(CompileError, match="damaged or gone"):
        seals.opened(target)


def test_one_that_cannot_be_loaded_is_built_anew(tmp_path, monkeypatch):
    """Built beside a newer C library, say, in a home folder that several machines share."""
    if not compiler.compiles():
        pytest.skip("needs a C++ compiler")
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    text = '#include "runtime.h"\nGRADLAB_KERNEL gradlab_test_nothing(Kernel*) {}\n'
    wanted = compiler.job(text, "")
    made = tmp_path / "made"
    made.write_bytes(b"\x7fELF" + bytes(100))
    seals.seal(made, "a compiler")
    seals.deliver(made, wanted.target)
    found = compiler._loaded_or_built_anew(wanted._replace(text='extern "C" int gradlab_test_seven() { return 7; }\n'))
    assert found.gradlab_test_seven() == 7


def test_a_full_disk_and_a_folder_that_cannot_be_written_are_said(tmp_path, monkeypatch):
    target, made = tmp_path / "library.so", b"\x7fELF" + bytes(100)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(seals.os, "fsync", full)
        with Workshop(target) as shop, pytest.raises(CompileError, match=r"cannot write .*library\.so .*No space left.*GRADLAB_CACHE"):
            (shop.directory / "program.so").write_bytes(made)
            shop.deliver(shop.directory / "program.so")
        with pytest.raises(OSError, match="No space"):
            seals.write(tmp_path / "table.json", {})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CompileError, match=r"cannot write to the cache directory .*GRADLAB_CACHE"):
        Workshop(tmp_path / "absent" / "library.so")


def test_a_disk_that_gives_back_something_else_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(seals, "_sealed", lambda library: False)
    with Workshop(tmp_path / "library.so") as shop, pytest.raises(CompileError, match="not what was written there a moment ago"):
        (shop.directory / "program.so").write_bytes(b"\x7fELF" + bytes(100))
        shop.deliver(shop.directory / "program.so")


@posix
def test_a_cache_in_a_folder_of_everybodys(tmp_path, monkeypatch):
    """Who may write to the folder around it could put another in its place; not in one such as /tmp."""
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(CompileError, match="everybody may write"):
        cache_directory("programs")
    tmp_path.chmod(0o1777)
    assert cache_directory("programs") == tmp_path / "programs"
    assert (tmp_path / "programs").stat().st_mode & 0o777 == 0o700


def test_tables_have_a_checksum(tmp_path):
    path = tmp_path / "table.json"
    content = {"libraries": {"a": "b.so"}, "error": "ä"}
    seals.write(path, content)
    assert seals.read(path) == content and list(tmp_path.iterdir()) == [path]
    whole = path.read_bytes()
    for name, changed in damages(whole):
        path.write_bytes(changed)
        assert seals.read(path) in (None, content), name  # blanks between the parts decide nothing
    for other in (b"", b"[]", b"null", b"[" * 100_000, b"3", json.dumps(content).encode(), b'{"content": 3, "sha256": ""}'):
        path.write_bytes(other)
        assert seals.read(path) is None
    assert seals.read(tmp_path / "absent") is None


def test_the_list_of_kernels_for_eager_code_is_not_believed(tmp_path, monkeypatch):
    """Libraries that it names are looked at, and lie beside it."""
    if not compiler.compiles():
        pytest.skip("needs a C++ compiler")
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("GRADLAB_NATIVE", "1")
    library = cache_directory("programs") / "pool.so"
    library.write_bytes(compiler.built("", "thread_pool.cpp").read_bytes())
    library.chmod(0o700)
    seals.write(ready.list_file(), {"libraries": {"gradlab_row": library.name}})
    assert ready.looked_up().libraries == {"gradlab_row": str(library)}
    seals._intact.discard(library)
    library.write_bytes(library.read_bytes()[:3000])
    assert not ready.looked_up().libraries and "missing or damaged" in ready.looked_up().why and ready.looked_up().begin
    whole = ready.list_file().read_text()
    ready.list_file().write_text(whole.replace("pool.so", "gone.so"))
    assert ready.looked_up().why.startswith("not compiled yet")


def test_prebuilt_libraries_have_checksums(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADLAB_PREBUILT", str(tmp_path))
    suffix = prebuilt.SUFFIXES["Linux" if sys.platform == "linux" else "Darwin" if sys.platform == "darwin" else "Windows"]
    library = tmp_path / f"runtime{suffix}"
    library.write_bytes(b"\x7fELF" + bytes(1000))
    sums = tmp_path / prebuilt.SUMS
    try:
        for listed in (None, "", "0" * 64 + f"  {library.name}\n"):
            prebuilt.forget()
            if listed is not None:
                sums.write_text(listed)
            with pytest.warns(UserWarning, match=r"runtime.* are damaged .* install gradlab again"):
                assert prebuilt.path("runtime") is None and prebuilt.level() is None
        prebuilt.forget()
        sums.write_text(prebuilt.sum_of(library) + "\n")
        assert prebuilt.path("runtime") == library
        prebuilt.forget()
        library.write_bytes(library.read_bytes()[:-1])
        with pytest.warns(UserWarning, match="damaged"):
            assert prebuilt.path("runtime") is None
    finally:
        monkeypatch.undo()
        prebuilt.forget()


EMULATED = """
import gradlab as gl
x = gl.arange(6.0, device="cuda")
print((x * 2 + 1).tolist())
"""


@pytest.mark.slow
def test_damaged_libraries_of_the_emulated_gpu_are_built_again(tmp_path):
    try:
        toolchain.compiler()
    except toolchain.CompilerMissing:
        pytest.skip("needs a C++ compiler")

    def said():
        environment = {**os.environ, "GRADLAB_CACHE": str(tmp_path), "GRADLAB_CUDA": "emulated"}
        ended = subprocess.run([sys.executable, "-c", EMULATED], env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    first = said()
    assert first == f"{[2.0 * i + 1 for i in range(6)]}\n"
    for damage in (lambda content: content[:5000], lambda content: b"", lambda content: content[:-1000] + bytes(1000)):
        for path in Path(tmp_path, "emulator").glob("*.so"):
            path.write_bytes(damage(path.read_bytes()))
        assert said() == first
        assert all(seals.intact(path) for path in Path(tmp_path, "emulator").glob("*.so"))
