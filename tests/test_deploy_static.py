"""Programs for machines without an operating system: equal to eager on this machine, and on a Cortex-M3 board of qemu by semihosting."""

import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pytest
from deployed import WARNINGS, compiler, traced

import gradlab as gl
from gradlab import nn
from gradlab.cli.entry import main
from gradlab.cli.options import BARE
from gradlab.deploy import targets
from gradlab.deploy.emitter import RUNTIME
from gradlab.models import DigitsCNN, DigitsMLP

zig = importlib.util.find_spec("ziglang") is not None
HARNESS = """
#include "{name}.h"
static const uint32_t input[] = {{{input}}};
static union {{ float numbers[{outputs}]; uint32_t bits[{outputs}]; }} y;
{start}
void begin(void) {{
  say({name}_message({name}_run((const float *)input, y.numbers)));
  for (int i = 0; i < {outputs}; ++i) {{
    char text[10] = "\\n";
    for (int j = 0; j < 8; ++j) text[1 + j] = "0123456789abcdef"[y.bits[i] >> (28 - 4 * j) & 15];
    say(text);
  }}
  end();
}}
"""
HERE = """
#include <stdio.h>
static void say(const char *text) { fputs(text, stdout); }
static void end(void) {}
void begin(void);
int main(void) { begin(); return 0; }
"""
BOARD = """
static long ask(long what, const void *with) {
  register long r0 __asm__("r0") = what;
  register const void *r1 __asm__("r1") = with;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
static void say(const char *text) { ask(4, text); }
static void end(void) { ask(24, (const void *)0x20026); }
void begin(void);
extern char stack_top[];
__attribute__((section(".vectors"), used)) void *const vectors[2] = {stack_top, (void *)begin};
"""
LAYOUT = """
MEMORY { flash (rx) : ORIGIN = 0, LENGTH = 4M  ram (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > flash
  .ARM.exidx : { *(.ARM.exidx*) } > flash
  .data : { *(.data*) } > ram
  .bss : { *(.bss*) *(COMMON) } > ram
  stack_top = ORIGIN(ram) + LENGTH(ram);
}
ENTRY(begin)
"""


def harness(built, example, outputs, start):
    words = ", ".join(f"{word}u" for word in example.numpy().ravel().view(np.uint32).tolist())
    path = built.source.with_name("harness.c")
    path.write_text(HARNESS.format(name=built.name, input=words, outputs=outputs, start=start))
    return path


def read(text):
    said, *bits = text.split("\n")
    assert said == "no error", text
    return np.array([int(b, 16) for b in bits], np.uint32).view(np.float32)


MODELS = {"mlp": lambda: DigitsMLP(hidden=32), "cnn": DigitsCNN}


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
def test_a_static_program_allocates_nothing_and_gives_what_eager_gives(tmp_path):
    gl.manual_seed(2)
    example = gl.randn(1, 1, 8, 8)
    for name, make in MODELS.items():
        program, expected = traced(make(), example)
        built = gl.deploy.build(program, tmp_path / name, name=name, static=True)
        source = built.source.read_text()
        assert built.weights is None and sorted(p.name for p in built.source.parent.iterdir()) == [f"{name}.c", f"{name}.h"]
        assert "alloc(" not in source and "stdio.h" not in source and "stdlib.h" not in source
        assert 0 < built.ram < 64 * 1024 and f"RAM {built.ram:,}" in str(built)
        out = tmp_path / "program"
        files = [str(harness(built, example, 10, HERE)), str(built.source)]
        command = [*compiler(), "-std=c11", *WARNINGS, "-O1", *files, "-lm", "-o", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = read(subprocess.run([out], capture_output=True, text=True, check=True).stdout)
        assert np.abs(found - expected.numpy()[0]).max() <= 1e-5 * expected.abs().max().item()


def test_static_is_for_machines_without_a_system_alone(tmp_path, capsys):
    program, _ = traced(nn.Linear(3, 2), gl.ones(2, 3))
    assert tuple(targets.BARE) == BARE
    for given in ({"static": True, "target": "wasm32"}, {"target": "cortex-m3"}):
        with pytest.raises(ValueError, match="static=True is for machines without an operating system"):
            gl.deploy.build(program, tmp_path / "out", **given)
    program.save(tmp_path / "net.glp")
    assert main(["build", str(tmp_path / "net.glp"), "--target", "cortex-m3"]) == 2
    assert "--static is for cortex-m3" in capsys.readouterr().err
    assert main(["build", str(tmp_path / "net.glp"), "--static"]) == 0
    assert "flash 256 bytes for weights, code comes on top, RAM 128 besides the stack" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not zig or shutil.which("qemu-system-arm") is None, reason="ziglang or qemu-system-arm is not installed")
@pytest.mark.parametrize("name", MODELS)
def test_a_cortex_m3_board_gives_what_eager_gives(name, tmp_path):
    gl.manual_seed(2)
    example = gl.randn(1, 1, 8, 8)
    program, expected = traced(MODELS[name](), example)
    built = gl.deploy.build(program, tmp_path, name=name, static=True, target="cortex-m3")
    assert built.flash < 256 * 1024 and built.ram < 64 * 1024, (built.flash, built.ram)  # a small board has that
    (tmp_path / "board.ld").write_text(LAYOUT)
    command = [
        sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabi", "-mcpu=cortex_m3", "-O1", "-fno-sanitize=all",
        "-ffreestanding", "-isystem", str(RUNTIME / "freestanding"), "-nostartfiles", "-static", "-Wl,--gc-sections",
        f"-Wl,-T,{tmp_path / 'board.ld'}",
        str(harness(built, example, 10, BOARD)), str(built.program), "-o", str(tmp_path / "board.elf"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kernel = str(tmp_path / "board.elf")
    board = ["qemu-system-arm", "-M", "mps2-an385", "-nographic", "-monitor", "none", "-semihosting", "-kernel", kernel]
    done = subprocess.run(board, capture_output=True, text=True, check=False, timeout=120)
    found = read((done.stdout + done.stderr).strip())
    assert np.abs(found - expected.numpy()[0]).max() <= 1e-5 * expected.abs().max().item()
    print(name, "flash", built.flash, "ram", built.ram)
