"""Kernels compiled before (`gradlab.testing.warm`), and a real GPU's driver that loads them (over a stand-in of CuPy)."""

import importlib
import os
import subprocess
import sys
import threading
import zipfile

import pytest
from fake_cupy import FakeCupy

from gradlab.backends.cuda.compiler import elementwise_program, inlined
from gradlab.backends.cuda.generate import Operand, Signature
from gradlab.backends.cuda.prebuilt_kernels import CUPY_OPTIONS, Prebuilt, key_of
from gradlab.dtype import FLOAT32
from gradlab.ops import ROWS
from gradlab.testing import nvrtc, warm

from repository import ROOT

KERNEL = "\nnamespace gradlab {\n__global__ void %s(float* x) { x[threadIdx.x] = %s; }\n}  // namespace gradlab\n"


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Three programs, of which two differ in their kernels only."""
    try:
        nvrtc.load()
    except nvrtc.NvrtcMissing as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("cubins") / "sm_90.zip"
    programs = {name: "constexpr int two = 2;" + KERNEL % (name, value) for name, value in (("ones", "1"), ("twos", "two"))}
    programs["others"] = "constexpr int three = 3;\ntemplate <class T> __global__ void others(T* x) { x[0] = three; }\n"
    names = {"ones": ("gradlab::ones",), "twos": ("gradlab::twos",), "others": ("others<int>", "others<float>")}
    requests = [warm.Request(programs[name], names[name]) for name in programs]
    assert len(warm.jobs_of(requests)) == 2
    assert warm.warm(requests, 90, path) == (4, 4, [])
    assert warm.warm(requests, 90, path) == (0, 4, []), "what is there is not compiled again"
    return path, programs, names


@pytest.fixture
def made(monkeypatch, archive):
    """What makes a driver over a stand-in of CuPy, and that stand-in."""
    monkeypatch.setenv("GRADLAB_KERNELS", str(archive[0].parent))

    def make():
        cupy = FakeCupy()
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return importlib.import_module("gradlab.backends.cuda.real").RealDriver(), cupy

    return make


def kinds(cupy):
    return [call[0] for call in cupy.log if call[0] in ("RawModule", "moduleLoadData")]


def test_kernels_are_loaded_not_compiled(made, archive):
    driver, cupy = made()
    _, programs, names = archive
    for name, source in programs.items():
        found = driver.compile(source, names[name], name)
        assert set(found) == set(names[name]) and len({f.handle for f in found.values()}) == len(found)
    assert kinds(cupy) == ["moduleLoadData"] * 2  # two of them lie in one cubin
    driver.compile(programs["ones"].replace("1;", "4;"), names["ones"], "changed")
    driver.compile(programs["others"], ["others<double>"], "another instance")
    assert kinds(cupy)[2:] == ["RawModule"] * 2


def test_a_fresh_thread_has_a_context_first(made, archive):
    driver, cupy = made()
    cupy.strict, raised = True, []

    def work():
        try:
            driver.compile(archive[1]["ones"], archive[2]["ones"], "ones")
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not raised and kinds(cupy) == ["moduleLoadData"]


def test_what_the_driver_refuses_is_compiled(made, archive):
    """An archive of a newer compiler, say. It is asked once."""
    driver, cupy = made()
    cupy.refusing = True
    for name in archive[1]:
        driver.compile(archive[1][name], archive[2][name], name)
    assert kinds(cupy) == ["moduleLoadData", "RawModule", "RawModule", "RawModule"]


def test_a_damaged_archive_and_one_of_others_are_not_loaded(made, archive, monkeypatch, tmp_path):
    """What lies there runs on the GPU: a record whose checksum does not hold is compiled anew, and what others may have written."""
    path, programs, names = archive
    copy = tmp_path / "sm_90.zip"
    monkeypatch.setenv("GRADLAB_KERNELS", str(tmp_path))
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as opened:
        places = {info.filename: info.header_offset + 30 + len(info.filename) + 20 for info in opened.infolist()}
    for place in places.values():
        copy.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        driver, cupy = made()
        monkeypatch.setenv("GRADLAB_KERNELS", str(tmp_path))
        for name in programs:
            assert set(driver.compile(programs[name], names[name], name)) == set(names[name])
        assert "RawModule" in kinds(cupy)
    copy.write_bytes(whole)
    assert Prebuilt((9, 0)).archives
    if os.name == "posix":
        copy.chmod(0o666)
        assert not Prebuilt((9, 0)).archives


def test_where_archives_are_looked_for(monkeypatch, tmp_path, archive):
    path, programs, names = archive
    other = tmp_path / "sm_86.zip"
    other.write_bytes(path.read_bytes())
    (tmp_path / "sm_89.zip").write_bytes(b"no archive")
    with zipfile.ZipFile(tmp_path / "sm_88.zip", "w"):
        pass  # an archive without an index
    monkeypatch.setenv("GRADLAB_KERNELS", os.pathsep.join(map(str, (tmp_path / "missing", tmp_path, path))))
    for capability, there in {(9, 0): True, (8, 6): True, (8, 9): True, (8, 0): False, (10, 0): False, (7, 5): False}.items():
        assert (Prebuilt(capability).find(programs["ones"], names["ones"]) is not None) == there, capability
    monkeypatch.setenv("GRADLAB_KERNELS", "")
    assert not Prebuilt((9, 0)).archives
    monkeypatch.delenv("GRADLAB_KERNELS")
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "cubins").mkdir(parents=True, mode=0o700)
    other.rename(tmp_path / "cache" / "cubins" / "sm_90.zip")
    assert Prebuilt((9, 0)).find(programs["others"], names["others"])["others<int>"].archive.path.parent.name == "cubins"


def test_the_key_is_of_the_text_and_the_options(monkeypatch):
    first = key_of("a")
    assert first != key_of("b") and CUPY_OPTIONS[0] == "-std=c++17"
    monkeypatch.setattr("gradlab.backends.cuda.prebuilt_kernels.CUPY_OPTIONS", (*CUPY_OPTIONS, "-G"))
    assert key_of("a") != first


def test_rows_are_asked_for_as_they_will_be():
    """Kernels of rows are compiled many at a time, and found one by one."""
    signature = Signature("exp", (Operand("x", FLOAT32),), FLOAT32, (), True)
    alone = inlined(elementwise_program(ROWS["exp"], signature))
    asked = [r for r in warm.row_requests([ROWS["exp"]]) if r.source == alone]
    assert asked == [warm.Request(alone, (f"gradlab::{signature.kernel}",))]
    other = inlined(elementwise_program(ROWS["log"], signature._replace(row="log")))
    (job,) = warm.jobs_of([*asked, warm.Request(other, ("gradlab::log",))])
    assert set(job.names) == {key_of(alone), key_of(other)} and len(job.source) < len(alone) + len(other)


def test_what_does_not_go_together_is_compiled_apart(archive, tmp_path):
    """Texts with one helper's name: alone they compile."""
    names = ("ones", "twos", "threes")
    texts = {n: f"constexpr int two = 2;\nnamespace gradlab {{\n__device__ int help() {{ return {i}; }}\n" for i, n in enumerate(names)}
    ends = "__global__ void %s(int* x) {{ x[0] = help(); }}\n}}  // namespace gradlab\n"
    requests = [warm.Request(text + ends.format() % name, (f"gradlab::{name}",)) for name, text in texts.items()]
    assert len(warm.jobs_of(requests)) == 1
    broken = warm.Request(requests[0].source.replace("help()", "nonsense"), ("gradlab::ones",))
    compiled, held, (problem,) = warm.warm([*requests, broken], 90, tmp_path / "sm_90.zip")
    assert (compiled, held) == (3, 3) and "nonsense" in problem


SCRIPT = "import sys, gradlab as gl\nassert sys.argv[1:] == ['--epochs', '1']\n(gl.ones(1000, device='cuda') * 2).tanh()\n"


def test_a_script_says_what_it_needs(tmp_path, archive):
    """In a process of its own: its GPU computes nothing."""
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "gradlab.testing.warm", "-j", "1", "--out", str(tmp_path), "--script", "train.py", "--epochs", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "3 kernels compiled, 3 in" in done.stdout, done.stdout + done.stderr
