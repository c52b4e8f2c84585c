"""The compilers of compiled programs: side by side, in the background, stopped, refused, and in several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gradlab.backends.native import compiler
from gradlab.backends.native.compile_jobs import Job, Works
from gradlab.backends.native.toolchain import CompileError

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C++ compiler")
SLOW = """#!/bin/sh
if [ "$1" = --version ]; then echo slow 1.0; exit; fi
echo $$ >> "$TRACKS"
sleep 60 &
wait
"""
BROKEN = """#!/bin/sh
if [ "$1" = --version ]; then echo broken 1.0; exit; fi
echo 'no room for doubt' >&2
exit 1
"""
STEP = "import gradlab as gl\nf = gl.compile(lambda x: (x * 2 + 1).sum())\nx = gl.ones(3)\nprint(f(x).item(), f(x).item(), f(x).item())"


def job(directory, name, body="return 1;", cost=0.0):
    arguments = ("-shared", "-fPIC")
    return Job(directory / f"{name}.so", arguments, "", f'extern "C" int {name}() {{ {body} }}', cost)


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def alive(process):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def environment(cache, **more):
    return {**os.environ, "PYTHONPATH": str(ROOT), "GRADLAB_CACHE": str(cache), **more}


def python(text, **variables):
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **variables)


def test_several_libraries_are_built_side_by_side_and_nothing_else_stays(tmp_path):
    works = Works()
    jobs = [job(tmp_path, f"f{i}", f"return {i};") for i in range(3)]
    works.begin(jobs[:1])
    works.finish(jobs)
    assert [compiler.loaded(j.target)[f"f{i}"]() for i, j in enumerate(jobs)] == [0, 1, 2]
    assert sorted(os.listdir(tmp_path)) == ["f0.so", "f1.so", "f2.so"]


def test_what_the_compiler_refuses_is_an_error_with_its_words_and_can_be_tried_again(tmp_path):
    works = Works()
    bad = job(tmp_path, "bad", "return nonsense;")
    for _ in range(2):
        with pytest.raises(CompileError, match="nonsense"):
            works.finish([bad])
    works.finish([bad._replace(text='extern "C" int bad() { return 1; }')])
    works.close()
    assert os.listdir(tmp_path) == ["bad.so"]


def test_an_error_in_the_background_shows_where_the_library_is_needed(tmp_path):
    works = Works()
    good, bad = job(tmp_path, "good"), job(tmp_path, "bad", "return nonsense;")
    works.begin([bad, good])
    works.finish([good])
    with pytest.raises(CompileError, match="nonsense"):
        works.finish([good, bad])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_stopped_compilers_are_gone_with_what_they_started_and_leave_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKS", str(tmp_path / "tracks"))
    cache = tmp_path / "cache"
    cache.mkdir()
    slow = compiler.compiler()._replace(command=(script(tmp_path / "slow", SLOW),))
    monkeypatch.setattr("gradlab.backends.native.compile_jobs.compiler", lambda: slow)
    works = Works()
    works.begin([job(cache, f"f{i}") for i in range(5)])
    running = until(lambda: (tmp_path / "tracks").exists() and (tmp_path / "tracks").read_text().split())
    works.close()
    until(lambda: not any(map(alive, running)))
    assert os.listdir(cache) == []
    monkeypatch.undo()
    works.finish([job(cache, "f0")])  # what was stopped begins anew
    assert os.listdir(cache) == ["f0.so"]


def test_one_who_waits_for_what_another_stops_gets_it_all_the_same(tmp_path):
    works = Works()
    jobs = [job(tmp_path, f"f{i}") for i in range(6)]
    waiting = threading.Thread(target=works.finish, args=(jobs,))
    waiting.start()
    for _ in range(3):
        works.stop()
    waiting.join()
    assert len(os.listdir(tmp_path)) == 6


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("leave", ["raise KeyboardInterrupt", "raise ValueError", "sys.exit(3)", "pass"])
def test_a_process_that_ends_takes_its_compilers_along(tmp_path, leave):
    tracks = tmp_path / "tracks"
    text = (
        "import sys, time\nfrom gradlab.backends.native import compiler as build\nfrom gradlab.backends.native.compile_jobs import works\n"
        f"works.begin([build.job('', 'movement.cpp')])\nwhile not __import__('os').path.exists({str(tracks)!r}): time.sleep(0.01)\n{leave}"
    )
    variables = environment(tmp_path / "cache", CXX=script(tmp_path / "slow", SLOW), TRACKS=str(tracks))
    process = python(text, env=variables)
    process.communicate(timeout=60)
    assert process.returncode == {"raise ValueError": 1, "sys.exit(3)": 3, "pass": 0}.get(leave, -2)
    until(lambda: not any(map(alive, tracks.read_text().split())))
    assert os.listdir(tmp_path / "cache" / "programs") == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_leaves_its_parents_compilers_alone_and_builds_itself(tmp_path):
    text = f"""
import os, pathlib
from gradlab.backends.native import compiler as build
from gradlab.backends.native.compile_jobs import works
job = build.job("", "movement.cpp")
works.begin([job])
child = os.fork()
works.finish([job])
build.loaded(job.target)
if child == 0:
    works.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
works.close()
assert os.listdir({str(tmp_path / "programs")!r}) == [job.target.name]
"""
    process = python(text, env=environment(tmp_path))
    assert process.communicate(timeout=120)[1] == ""
    assert process.returncode == 0


@pytest.mark.slow
def test_two_processes_that_compile_the_same_at_once_get_the_same(tmp_path):
    both = [python(STEP, env=environment(tmp_path)) for _ in range(2)]
    said = [process.communicate(timeout=600) for process in both]
    assert said == [("9.0 9.0 9.0\n", "")] * 2
    assert all(name.endswith(".so") for name in os.listdir(tmp_path / "programs"))


def test_a_compiler_that_fails_says_why_and_numpy_runs(tmp_path):
    process = python(STEP, env=environment(tmp_path, CXX=script(tmp_path / "broken", BROKEN)))
    found, said = process.communicate(timeout=120)
    assert process.returncode == 0 and found == "9.0 9.0 9.0\n"
    assert "no room for doubt" in said
    assert "GRADLAB_COMPILER=none" in said
    assert os.listdir(tmp_path / "programs") == []


def test_every_file_has_its_functions_for_itself():
    names = [name for path in compiler.KERNELS.glob("*.cpp") for name in compiler._DEFINED.findall(path.read_text())]
    assert len(names) == len(set(names))
    chosen = set(compiler.TUNING) | set(compiler.DEAREST) | compiler.SOONER | set(compiler.ALWAYS)
    assert chosen <= {path.name for path in compiler.KERNELS.glob("*.cpp")}


PROGRAM = """
import warnings
import gradlab as gl
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    f = gl.compile(lambda x: (x * 2 + 1).tanh().sum())
    x = gl.linspace(-1, 1, 5000, requires_grad=True)
    found = [f(x).item() for _ in range(3)]
    assert abs(found[-1] - (x * 2 + 1).tanh().sum().item()) < 1e-2
print(len(said), *[str(w.message) for w in said])
"""


def said(cache, **environment):
    """What a process of its own warns of, with a cache."""
    environment = {**os.environ, "GRADLAB_CACHE": str(cache), **environment}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_damaged_libraries_are_built_again(damage, tmp_path):
    """Opened as they are, they end the process: SIGBUS, SIGSEGV, or wrong code that runs."""
    assert said(tmp_path).startswith("0")
    whole = {path: path.read_bytes() for path in (tmp_path / "programs").glob("*.so")}
    assert whole
    for path, content in whole.items():
        at = len(content) // 2
        flipped = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        path.write_bytes({"cut": content[:5000], "empty": b"", "flipped": flipped}[damage])
    assert said(tmp_path).startswith("0")
    damaged = [path for path, content in whole.items() if path.exists() and len(path.read_bytes()) != len(content)]
    assert not damaged


@pytest.mark.parametrize("makes", ["nothing", "garbage"])
def test_a_compiler_that_makes_no_library_is_said_once(makes, tmp_path):
    garbage = 'while [ $# -gt 0 ]; do if [ "$1" = "-o" ]; then echo garbage > "$2"; fi; shift; done' if makes == "garbage" else ""
    fake = script(tmp_path / "fake", f'#!/bin/sh\ncase "$*" in *--version*) echo fake 1.0; exit 0;; esac\n{garbage}\nexit 0\n')
    found = said(tmp_path / "cache", CXX=fake)
    assert found.startswith("1 compile: programs run by NumPy from here on, without machine code of their own: the C++ compiler")
    assert ("has made nothing" if makes == "nothing" else "8 bytes that are no library") in found


@pytest.mark.parametrize(("cache", "why"), [
    ("here", "GRADLAB_CACHE is 'here', which is another folder from each place"), ("/proc/nothing", "cannot make the cache directory"),
])  # fmt: skip
def test_a_cache_that_cannot_be_had_is_said_once(cache, why):
    found = said(cache)
    assert found.startswith("1 compile: programs run by NumPy") and why in found


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_a_cache_that_others_may_write_to_is_not_run(tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs").chmod(0o777)
    assert "may be written by others (chmod go-w " in said(tmp_path)
