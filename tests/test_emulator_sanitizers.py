"""What the sanitizers find in kernels that the emulated GPU runs, and that they find nothing in correct ones.

A sanitizer has to be in a process from its start. So the kernels of a test run in one child process, which prints a heading before each;
what is reported under a heading belongs to that kernel.
"""

import textwrap
from pathlib import Path

import pytest
from emulated import FAULTS

from gradlab.backends.cuda.emulator import CompilerMissing, compile_kernels
from gradlab.backends.cuda.emulator.__main__ import main
from gradlab.backends.cuda.emulator.sanitizer import Report, reports_in, run_sanitized, sanitized_environment

PREAMBLE = f"""
import sys
sys.path[:0] = {[str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]!r}
import numpy as np
from emulated import guarded, planted
INT = np.int32

def case(heading, function, *arguments, **options):
    print("==", heading, flush=True)
    function.run(*arguments, **options)
"""


@pytest.fixture(autouse=True)
def compiler():
    try:
        sanitized_environment("address,undefined")
    except (CompilerMissing, RuntimeError) as error:
        pytest.skip(str(error))


def line_of(file: str, text: str) -> int:
    lines = (FAULTS / file).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


def reports_by_case(code: str, sanitize: str) -> dict[str, list[Report]]:
    """Run code in a child process; the reports under each heading."""
    done = run_sanitized(["-c", PREAMBLE + textwrap.dedent(code)], sanitize=sanitize, keep_going=True)
    assert "== end" in done.output, done.output[-3000:]
    sections = [part.partition("\n") for part in done.output.split("== ")[1:]]
    return {heading: reports_in(text) for heading, _, text in sections}


def test_address_and_undefined_behaviour():
    found = reports_by_case(
        """
        names = ["write_after_global", "write_before_global", "read_after_global", "write_after_static", "read_after_static",
                 "write_after_dynamic", "misaligned_load"]
        kernels = dict(zip(names, planted("bounds.cu", *names)))
        tiles, total, clean = planted("barriers.cu", "tiles<false>", "cleared_late<false>", "write_too_early<false>")
        y = guarded((40,), "float32", 0)
        a = guarded((32, 32), "float32", 1)
        for order in ("forward", "random"):
            case(f"correct {order}", tiles, (2, 2), (16, 16), a, a, guarded((32, 32), "float32"), INT(32), order=order)
            case(f"correct too {order}", clean, (1,), (128,), guarded((128,), "float32", 1), guarded((128,), "float32"), order=order)
        case("write_after_global", kernels["write_after_global"], (2,), (32,), y, INT(40))
        case("write_before_global", kernels["write_before_global"], (2,), (32,), y, INT(40))
        case("read_after_global", kernels["read_after_global"], (1,), (64,), y, guarded((40,), "float32"), INT(40))
        case("write_after_static", kernels["write_after_static"], (1,), (32,), y)
        case("read_after_static", kernels["read_after_static"], (1,), (32,), y)
        case("write_after_dynamic", kernels["write_after_dynamic"], (1,), (32,), y, shared=120)
        print("== end")  # the processor stops what comes now
        case("misaligned_load", kernels["misaligned_load"], (1,), (4,), guarded((64,), "float32"), guarded((64,), "float32"))
        """,
        "address,undefined",
    )
    assert not any(reports for heading, reports in found.items() if heading.startswith("correct"))
    places = {
        "write_after_global": ("use-after-poison", "if (i <= n)"),
        "write_before_global": ("use-after-poison", "y[i - 1]"),
        "read_after_global": ("use-after-poison", "x[i + 1]"),
        "write_after_static": ("index 30 out of bounds", "a block of 32"),
        "read_after_static": ("index 30 out of bounds", "= tile[threadIdx.x];  // planted"),
        "write_after_dynamic": ("use-after-poison", "planted by a launch"),
        "misaligned_load": ("misaligned address", "(x + 1)["),
    }
    for heading, (kind, text) in places.items():
        assert any(kind in report.kind and report[1:] == ("bounds.cu", line_of("bounds.cu", text)) for report in found[heading]), heading


def test_races():
    found = reports_by_case(
        """
        keys, counts = np.zeros(64, np.int32), np.zeros(4, np.int32)
        ones, y, a = np.ones(128, np.float32), np.zeros(128, np.float32), np.ones((32, 32), np.float32)
        for value in ("true", "false"):
            histogram, shared_sum, overlapping = planted("races.cu", *(f"{n}<{value}>" for n in ("histogram", "shared_sum", "overlapping")))
            names = ["read_too_early", "write_too_early", "tiles", "no_syncwarp", "cleared_late"]
            early, late, tiles, syncwarp, cleared = planted("barriers.cu", *(f"{n}<{value}>" for n in names))
            case(f"histogram {value}", histogram, (2,), (32,), keys, counts, INT(64))
            case(f"shared_sum {value}", shared_sum, (2,), (32,), ones, y)
            case(f"overlapping {value}", overlapping, (2,), (32,), y, INT(128))
            case(f"read_too_early {value}", early, (1,), (128,), ones, y)
            case(f"write_too_early {value}", late, (1,), (128,), ones, y)
            case(f"tiles {value}", tiles, (2, 2), (16, 16), a, a, a.copy(), INT(32))
            case(f"no_syncwarp {value}", syncwarp, (1,), (32,), ones, y)
            case(f"cleared_late {value}", cleared, (1,), (64,), np.ones(128, np.int32), counts)
        case("between blocks", planted("races.cu", "histogram<true>")[0], (4,), (1,), keys, counts, INT(4))
        print("== end")
        """,
        "thread",
    )
    for heading, reports in found.items():
        if heading.endswith("true"):
            assert any(report.kind == "data race" for report in reports), heading
        elif heading.endswith("false"):
            assert not reports, heading
    assert found["histogram true"][0][1:] == ("races.cu", line_of("races.cu", "counts[keys[i]] += 1"))
    assert found["cleared_late true"][0].file == "barriers.cu"


# What the runtime keeps for all threads of a block, used by many of them: wide blocks, because what has to grow grows then.
SHARED_STATE = """
#include "mma.cuh"
using namespace gradlab;
__global__ void copies(const float* x, float* y, int rounds) {
    __shared__ float stage[40][256];
    for (int i = 0; i < rounds; ++i) {
        for (int j = 0; j <= (threadIdx.x + i) % 40; ++j) copy_ahead<4>(&stage[j][threadIdx.x], x + (i + j) % 7 * 256 + threadIdx.x, true);
        end_of_group();
        if (threadIdx.x % 3) await_copies();
        else await_groups<0>();
        y[i * 256 + threadIdx.x] = stage[0][threadIdx.x];
    }
}
__global__ void votes(const float* x, float* y) {
    __shared__ float first[32], total;
    float sum = x[threadIdx.x];
    for (int away = 16; away; away /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, away);
    const unsigned even = __ballot_sync(0xffffffffu, threadIdx.x % 2 == 0), same = __match_any_sync(0xffffffffu, threadIdx.x % 4);
    if (threadIdx.x % 32 == 0) first[threadIdx.x / 32] = sum;
    if (threadIdx.x == 0) total = 0;
    const int held = __syncthreads_count(even != 0 && same != 0);
    if (threadIdx.x % 32 == 0) atomicAdd(&total, first[threadIdx.x / 32]);
    __threadfence();
    __syncthreads();
    y[threadIdx.x] = total + held;
}
__global__ void fails(float* y, int thread) {
    __shared__ float room[64];
    if (threadIdx.x % 16 == 0) room[threadIdx.x / 16] = 1;
    if (threadIdx.x == thread) __trap();
    y[threadIdx.x] = 1;
}
__global__ void leaves_copies(const float* x, float* y) {
    __shared__ float room[1024];
    copy_ahead<4>(&room[threadIdx.x], x + threadIdx.x, true);
    y[threadIdx.x] = 1;
}
"""


def test_the_runtime_itself_is_no_race():
    """Its own state belongs to the scheduler: threads take turns with it, whatever functions of the library it calls."""
    code = f"""
        from emulated import compiled
        from gradlab.backends.cuda.emulator import KernelFault
        copies, votes, fails, leaves = compiled({SHARED_STATE!r}, "copies", "votes", "fails", "leaves_copies")
        x, y = np.ones(7 * 256, np.float32), np.zeros(3 * 256, np.float32)
        for order in ("forward", "reverse", "random", "warps"):  # each a first launch of this width: the later ones find room
            for width in (64, 512, 1024):
                case(f"votes {{order}} {{width}}", votes, (1,), (width,), x, np.zeros(1024, np.float32), order=order)
            for heading, kernel, arguments in (("fails", fails, (np.zeros(1024, np.float32), INT(700))), ("leaves", leaves, (x, x.copy()))):
                try:
                    case(f"{{heading}} {{order}}", kernel, (1,), (1024,), *arguments, order=order)
                except KernelFault as fault:
                    print(str(fault).partition(":")[0])
                else:
                    raise AssertionError(heading)
            case(f"copies {{order}}", copies, (1,), (256,), x, y, INT(3), order=order)
            assert (y == 1).all()
        print("== end")
        """
    found = reports_by_case(code, "thread")
    assert len(found) == 4 * 6 + 1
    assert not any(found.values()), {heading: reports for heading, reports in found.items() if reports}


def test_the_first_error_ends_the_process():
    code = PREAMBLE + textwrap.dedent(
        """
        (kernel,) = planted("bounds.cu", "read_after_global")
        case("first", kernel, (1,), (64,), np.zeros(40, np.float32), guarded((40,), "float32"), INT(40))
        print("never reached")
        """
    )
    done = run_sanitized(["-c", code])
    assert done.returncode != 0
    assert "never reached" not in done.output
    assert done.reports == (Report("heap-buffer-overflow", "bounds.cu", line_of("bounds.cu", "x[i + 1]")),)


def test_a_process_without_the_sanitizer():
    with pytest.raises(RuntimeError, match=r"python -m gradlab.backends.cuda.emulator thread script.py"):
        compile_kernels("", [], label="empty.cu", sanitize="thread")
    with pytest.raises(ValueError, match="sanitize is 'memory'"):
        compile_kernels("", [], label="empty.cu", sanitize="memory")
    with pytest.raises(ValueError, match="sanitize is ''"):
        sanitized_environment("")


def test_reading_reports():
    text = textwrap.dedent(
        """
        ==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1
            #0 0x7f in __interceptor_memset ../../../src/libsanitizer/asan.cpp:10
            #1 0x7f in kernel ./a/softmax.cu:31
        softmax.cu:5:12: runtime error: load of null pointer
        WARNING: ThreadSanitizer: data race (pid=1)
          Read of size 4
            #0 void f<true>(int*) races.cu:7 (program-0.so+0x130d)
        """
    )
    assert reports_in(text) == [
        Report("heap-buffer-overflow", "a/softmax.cu", 31),
        Report("load of null pointer", "softmax.cu", 5),
        Report("data race", "races.cu", 7),
    ]


def test_the_command(capsys):
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
    assert main(["undefined", "-c", "import os; print(os.environ['GRADLAB_SANITIZE'])"]) == 0
    assert capsys.readouterr().out.endswith("undefined\n")
