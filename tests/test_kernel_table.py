"""`python -m gradlab.testing.kernels`: what it takes from a compiler's log, when it fails, and what it says without NVRTC.

Where NVRTC is installed (the extra `kernels`), every program of gradlab is compiled for every architecture on which it runs, but for
those of which `kernel_verdicts.txt` says that this NVRTC has compiled the very same text; a sixtieth of these is compiled again.
"""

import textwrap

import kernel_verdicts
import pytest

from gradlab.backends.cuda.catalogue import Program, programs
from gradlab.dtype import float32
from gradlab.ops import ROWS
from gradlab.testing import generated, kernels, nvrtc

PROGRAMS = {program.label: program for program in programs(ROWS)}

LOG = textwrap.dedent(
    """
    ptxas info    : 0 bytes gmem
    ptxas info    : Compiling entry function '_Z5firstIfEvPT_' for 'sm_90'
    ptxas info    : Function properties for _Z5firstIfEvPT_
        16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
    ptxas info    : Used 22 registers, used 1 barriers, 16 bytes cumulative stack size, 128 bytes smem
    ptxas info    : Compile time = 1.5 ms
    ptxas info    : Compiling entry function 'second' for 'sm_90'
    ptxas info    : Function properties for second
        64 bytes stack frame, 24 bytes spill stores, 40 bytes spill loads
    ptxas info    : Used 255 registers, used 0 barriers
    """
)


class FakeNvrtc:
    """Answers with a fixed log."""

    version = (13, 0)
    include = None

    def __init__(self, log: str, ok: bool = True) -> None:
        self.log, self.ok, self.options = log, ok, ()

    def architectures(self):
        return [75, 80, 90]

    def compile(self, source, label, options, names):
        self.options = options
        return nvrtc.Compiled(self.ok, self.log, dict.fromkeys(names, "_Z5firstIfEvPT_") if self.ok else {})


def test_a_log_is_read():
    assert dict(kernels.usage_in(LOG)) == {
        "_Z5firstIfEvPT_": kernels.Usage(22, 128, 16, 0),
        "second": kernels.Usage(255, 0, 64, 64),
    }


CLEAN = LOG[: LOG.index("ptxas info    : Compiling entry function 'second'")]


@pytest.mark.parametrize(
    ("log", "ok", "problem"),
    [
        (CLEAN, True, None),
        (LOG, True, "second spills 64 bytes of registers"),
        ("a.cu(3): warning #177-D: variable was declared but never referenced\n" + CLEAN, True, "a.cu(3): warning #177-D"),
        ("a.cu(3): error: expected a ;", False, "error: expected a ;"),
        ("", True, "no kernel came out"),
    ],
)
def test_what_fails(log, ok, problem, tmp_path, capsys, monkeypatch):
    compiler = FakeNvrtc(log, ok)
    monkeypatch.setattr(kernels, "load", lambda: compiler)
    outcome = kernels.check(Program("a.cu", "", ["first<float>"], 75), 90, compiler)
    assert {"-std=c++17", "-ftz=true", "--device-as-default-execution-space", "-arch=sm_90"} <= set(compiler.options)
    if problem is None:
        assert outcome.problem is None
        assert "first<float>" in outcome.usage
    else:
        assert problem in outcome.problem
    file = tmp_path / "a.cu"
    file.write_text("", encoding="utf-8")
    assert kernels.main([str(file), "--name", "first<float>", "--jobs", "1"]) == (problem is not None)
    printed = capsys.readouterr().out
    assert "left out, because this NVRTC does not know them: sm_100, sm_120" in printed
    assert ("FAILED a.cu on sm_75" in printed) == (problem is not None)
    assert ("3 compilations" in printed) and ("0 failed" in printed) == (problem is None)


def test_without_nvrtc(monkeypatch, capsys):
    def missing():
        raise nvrtc.NvrtcMissing(nvrtc.MISSING)

    monkeypatch.setattr(kernels, "load", missing)
    assert kernels.main([]) == 0
    assert "skipped: NVRTC" in capsys.readouterr().out
    assert kernels.main(["--require"]) == 1


def test_the_architecture_a_program_needs():
    program = Program("mma", "", ["first<float>"], 80)
    compiler = FakeNvrtc(CLEAN)
    (outcomes,) = kernels.check_all([program], (75, 80, 90), compiler, 1)
    assert [outcome.architecture for outcome in outcomes] == [80, 90]
    ended = program._replace(least_arch=75, most_arch=80)
    assert [[o.architecture for o in one] for one in kernels.check_all([ended], (75, 80, 90), compiler, 1)] == [[75, 80]]
    assert list(kernels.check_all([ended], (90,), compiler, 1)) == []
    rows = list(kernels.table_rows(outcomes, each=False))
    assert rows == [("mma (1)", "  22   22", "128", "16", "0")]
    assert [row[0] for row in kernels.table_rows(outcomes, each=True)] == ["first<float>"]


def test_a_program_through_nvrtc(tmp_path, capsys):
    try:
        nvrtc.load()
    except nvrtc.NvrtcMissing as error:
        pytest.skip(str(error))
    file = tmp_path / "scale.cu"
    file.write_text(
        '#include "common.cuh"\ntemplate <class T> __global__ void scale(T* x, int n) { if (n) x[0] = x[n]; }', encoding="utf-8"
    )
    assert kernels.main([str(file), "--name", "scale<__half>", "--name", "scale<float>", "--each", "--arch", "75", "--arch", "90"]) == 0
    assert "scale<__half>" in capsys.readouterr().out
    file.write_text("__global__ void unused(int* x) { int never; x[0] = 1; }", encoding="utf-8")
    assert kernels.main([str(file), "--name", "unused", "--arch", "90"]) == 1
    assert "warning" in capsys.readouterr().out


@pytest.fixture(scope="session")
def compiler():
    try:
        return nvrtc.load()
    except nvrtc.NvrtcMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def checked_out():
    return kernel_verdicts.commit()


@pytest.mark.long
@pytest.mark.parametrize(
    ("label", "architecture"),
    [(label, a) for a in kernels.ARCHITECTURES for label, program in PROGRAMS.items() if program.runs_on([a])],
)
def test_no_warnings_and_no_spills(compiler, checked_out, label, architecture):
    problem = kernel_verdicts.problem(PROGRAMS[label], architecture, compiler, checked_out)
    assert problem is None, problem


@pytest.fixture(scope="session")
def compiled_programs():
    return list(generated.generated_programs())


@pytest.mark.long
@pytest.mark.parametrize("architecture", kernels.ARCHITECTURES)
def test_kernels_of_compiled_programs(compiler, checked_out, compiled_programs, architecture):
    problems = [kernel_verdicts.problem(program, architecture, compiler, checked_out) for program in compiled_programs]
    assert not any(problems), problems


def test_compiled_programs_have_loops_and_stages():
    found = {case.name: [label for label, _, _ in generated.kernels_of(generated.line_of(case, float32))] for case in generated.CASES}
    assert len(found["MLP SGD"]) == 1
    assert len(found["classifier AdamW"]) == 1
    assert "loop" in found["transformer block"]
    assert "loop" in found["images"]


def test_what_was_found_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    fake = FakeNvrtc(CLEAN)
    fake.path = tmp_path / "libnvrtc.so"
    fake.path.write_bytes(b"")
    program = Program("a.cu", "text", ["first<float>"], 75)
    first = kernels.checked(program, 90, fake)
    fake.log = "a.cu(3): warning: unused"
    assert kernels.checked(program, 90, fake) == first
    assert "unused" in kernels.checked(program._replace(source="another text"), 90, fake).problem
    assert "unused" in kernels.checked(program, 80, fake).problem
    next((tmp_path / "kernels").iterdir()).write_text("broken", encoding="utf-8")
    kernels.checked(program, 90, fake)


def test_what_is_known_is_compiled_again_in_turns(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path))
    compiler = FakeNvrtc("a.cu(3): warning: unused")
    compiler.path = tmp_path / "libnvrtc.so"
    compiler.path.write_bytes(b"")
    program = Program("a.cu", "text", ["first<float>"], 75)
    key = kernels.key_of(program, 90, compiler)
    monkeypatch.setattr(kernel_verdicts, "known", lambda: frozenset({key}))
    commits = [f"{n:040x}" for n in range(1500)]
    again = [c for c in commits if kernel_verdicts.problem(program, 90, compiler, c)]
    assert again == [c for c in commits if kernel_verdicts.due(key, c)] and 5 < len(again) < 60
    others = (program._replace(source="another text"), 90), (program._replace(names=["second"]), 90), (program, 80)
    assert all(kernel_verdicts.problem(one, a, compiler, commits[0]) for one, a in others)
    compiler.version = (13, 1)
    assert kernel_verdicts.problem(program, 90, compiler, commits[0])


def test_the_file_of_verdicts_is_read_and_says_what_kernels_take():
    text = kernel_verdicts.FILE.read_text(encoding="utf-8")
    assert len(kernel_verdicts.known()) == len({line[-32:] for line in text.splitlines()[2:]}) > 380
    fake = FakeNvrtc(CLEAN)
    fake.path = kernel_verdicts.FILE
    program = Program("a.cu", "text", ["first<float>"], 75)
    outcome = kernels.check(program, 90, fake)
    written = kernel_verdicts.text([[outcome]], fake)
    assert f"a.cu{' ' * 52} sm_90  |     22    128     16      0 | {kernels.key_of(program, 90, fake)}" in written
    with pytest.raises(RuntimeError, match=r"a\.cu on sm_90: too much"):
        kernel_verdicts.text([[outcome._replace(problem="too much")]], fake)
