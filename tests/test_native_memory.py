"""Native kernels without memory for their own use end in MemoryError or in a right result, never in a crash; and they go on afterwards."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from native_eager import needs_compiler

from gradlab.backends.native import compiler
from gradlab.backends.native.toolchain import compiler as toolchain

OWN = r"std::vector|\bnew\b(?! \(room\)|>)|\b(?:m|c|re)alloc\(|std::string|std::stable_sort"
HERE = Path(__file__).parent
SHIM = r"""
#include <dlfcn.h>
#include <stddef.h>
static long left = -1, refusals = 0;
extern "C" void let(int calls) { __atomic_store_n(&left, calls, __ATOMIC_SEQ_CST); __atomic_store_n(&refusals, 0, __ATOMIC_SEQ_CST); }
extern "C" int refused() { return int(__atomic_load_n(&refusals, __ATOMIC_SEQ_CST)); }
extern "C" int posix_memalign(void** to, size_t by, size_t size) noexcept {
  static int (*real)(void**, size_t, size_t) = (int (*)(void**, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  if (__atomic_load_n(&left, __ATOMIC_SEQ_CST) >= 0 && __atomic_fetch_sub(&left, 1, __ATOMIC_SEQ_CST) <= 0) {
    __atomic_store_n(&left, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&refusals, 1, __ATOMIC_SEQ_CST);
    return 12;
  }
  return real(to, by, size);
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.cpp").write_text(SHIM)
    subprocess.run([*toolchain().command, "-O1", "-fPIC", "-shared", "-w", "shim.cpp", "-o", "shim.so", "-ldl"], cwd=folder, check=True)
    return folder / "shim.so"


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
@pytest.mark.parametrize(
    ("what", "threads"),
    [("rows", "1"), *(pytest.param(*x, marks=pytest.mark.slow) for x in (("rows", "2"), ("programs", "1"), ("programs", "2")))],
)
def test_without_memory(what, threads, shim):
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    program = [sys.executable, str(HERE / "native_without_memory.py"), what]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, timeout=550)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found = json.loads(done.stdout)
    wrong = [line for line in found if line[2] not in ("right", "MemoryError") and not (what == "rows" and line[2] == "nothing")]
    assert not wrong, wrong
    refused = [line for line in found if line[1]]
    assert len(refused) > 10 and any(line[2] in ("nothing", "MemoryError") for line in refused)
    assert all(line[2] != "right" or not line[1] for line in found if what == "rows"), found


def test_all_memory_is_asked_for_in_one_place_and_looked_at():
    """No kernel allocates by itself, and none uses work space without having looked whether there is any."""
    for file in sorted(compiler.KERNELS.iterdir()):
        if file.suffix not in (".cpp", ".h") or file.name in ("support.cpp", "aligned.h"):
            continue
        code = [line.partition("//")[0] for line in file.read_text().splitlines()]
        own = [line for line in code if re.search(OWN, line)]
        assert not own or (file.name == "thread_pool.cpp" and all("Worker" in line for line in own)), (file.name, own)
        for i, line in enumerate(code):
            if re.search(r"\w+ ?= ?\(\w+ ?\*\)\w+\.of\(", line) or re.search(r"\bRoom<\w+> \w+", line):
                assert any("nullptr" in following for following in code[i : i + 3]), (file.name, line)
