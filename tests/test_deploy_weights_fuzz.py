"""Thousands of damaged weights files, opened and run under sanitizers: each ends in a message or in numbers, none in a crash."""

import struct
import subprocess
import zlib

import numpy as np
import pytest
from deployed import SANITIZE, WARNINGS, compiler, sanitizers, traced

import gradlab as gl
from gradlab import nn
from gradlab.ao import quantization
from gradlab.deploy.weights import ENTRY, HEADER

F = nn.functional
pytestmark = pytest.mark.skipif(compiler() is None or not sanitizers(), reason="no C compiler with sanitizers")
FILES = 1200  # of each model

# Reads files, each behind its size, opens each in memory that ends where it ends, and runs what could be opened; prints the codes.
HARNESS = """
#include "fuzzed.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **paths) {
  FILE *file = count > 1 ? fopen(paths[1], "rb") : NULL;
  uint32_t size;
  if (file == NULL) return 2;
  while (fread(&size, sizeof size, 1, file) == 1) {
    char *bytes = malloc(size > 0 ? size : 1);
    if (bytes == NULL || fread(bytes, 1, size, file) != size) return 3;
    fuzzed *context;
    int code = fuzzed_open_memory(&context, bytes, size);
    if (code == FUZZED_OK) {
      @INPUTS
      code = fuzzed_run(context, @ARGUMENTS);
    } else if (context != NULL) return 4;
    fuzzed_close(context);
    free(bytes);
    printf("%d\\n", code);
  }
  return fclose(file);
}
"""


class Tables(nn.Module):
    """Constants that are places: of rows, of elements, of bins."""

    def __init__(self):
        super().__init__()
        self.rows, self.order = nn.Embedding(7, 5), nn.Parameter(gl.tensor([3, 1, 0, 2, 4]), requires_grad=False)

    def forward(self, x):
        y = x + self.rows(self.order)[:, None].sum(0)
        return y[:, self.order], gl.gather(y, 1, self.order.expand(len(y), 5)), y.index_add(1, self.order, x)


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), gl.ones(2, 6)),
    "cnn": lambda: (nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)), gl.ones(1, 8, 6, 6)),
    "int8": lambda: (quantization.quantize_dynamic(nn.Sequential(nn.Linear(40, 9)).eval(), {nn.Linear}), gl.ones(2, 40)),
    "int4": lambda: (quantization.quantize_dynamic(nn.Sequential(nn.Linear(40, 9)).eval(), {nn.Linear}, bits=4), gl.ones(5, 40)),
    "tables": lambda: (Tables(), gl.ones(4, 5)),
}


def mended(content):
    """The file with checksums that fit, where it still has a table."""
    if len(content) < HEADER:
        return content
    content = bytearray(content)
    count = min(struct.unpack_from("<I", content, 24)[0], (len(content) - HEADER) // ENTRY)
    for i in range(count):
        at = HEADER + ENTRY * i
        offset, size = struct.unpack_from("<QQ", content, at + 160)
        struct.pack_into("<I", content, at + 176, zlib.crc32(content[offset : offset + size]))
    struct.pack_into("<I", content, 40, zlib.crc32(content[HEADER : HEADER + ENTRY * count]))
    return bytes(content)


def damaged(whole, random):
    """One damage or several to header, table or arrays; half of the time checksums are made to fit."""
    content = bytearray(whole)
    table = HEADER + ENTRY * struct.unpack_from("<I", whole, 24)[0]
    for _ in range(random.integers(1, 4)):
        low, high = [(0, HEADER), (HEADER, table), (table, len(whole))][random.integers(3)]
        at = int(random.integers(low, high)) if low < len(content) else 0
        width = int(random.choice([1, 1, 4, 8, 64]))
        kind = random.integers(6)
        if kind == 0 and at < len(content):
            content[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            content[at : at + width] = random.bytes(width)
        elif kind == 2:
            content[at : at + width] = (b"\0" if random.integers(2) else b"\xff") * width
        elif kind == 3:
            extreme = random.choice([0, 1, -1, 2**31, 2**32, 2**63 - 1, -(2**63), len(whole) - 1, len(whole) + 1])
            content[at // 8 * 8 : at // 8 * 8 + 8] = struct.pack("<q", int(extreme))
        elif kind == 4 and random.integers(4) == 0:
            del content[at:]
        elif kind == 5 and random.integers(4) == 0:
            content[at:at] = random.bytes(width)
    return mended(content) if random.integers(2) else bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_damaged_files_end_in_codes(name, tmp_path):
    gl.manual_seed(0)
    model, example = MODELS[name]()
    program, expected = traced(model, example)
    built = gl.deploy.build(program, tmp_path, name="fuzzed")
    whole, random = built.weights.read_bytes(), np.random.default_rng(len(name))
    files = [whole, *(damaged(whole, random) for _ in range(FILES))]
    (tmp_path / "files").write_bytes(b"".join(struct.pack("<I", len(file)) + file for file in files))
    outputs = expected if isinstance(expected, (tuple, list)) else [expected]
    given = f"static float x[{example.numel()}]; for (int i = 0; i < {example.numel()}; ++i) x[i] = 1;"
    made = " ".join(f"static float y{i}[{y.numel()}];" for i, y in enumerate(outputs))
    arguments = ", ".join(["x", *(f"y{i}" for i in range(len(outputs)))])
    harness = tmp_path / "harness.c"
    harness.write_text(HARNESS.replace("@INPUTS", f"{given} {made}").replace("@ARGUMENTS", arguments))
    target = tmp_path / "harness"
    flags = ("-std=c11", "-O1", "-march=native", *WARNINGS, *SANITIZE)
    subprocess.run([*compiler(), *flags, str(harness), str(built.source), "-lm", "-o", str(target)], check=True)
    done = subprocess.run([target, tmp_path / "files"], capture_output=True, text=True, check=False)
    codes = [int(line) for line in done.stdout.split()]
    if done.returncode != 0:
        (tmp_path / "culprit").write_bytes(files[min(len(codes), FILES)])
    assert done.returncode == 0, (name, len(codes), done.stderr[-3000:])
    assert len(codes) == len(files) and codes[0] == 0
    assert sum(code != 0 for code in codes) > FILES // 2
    assert sum(code == 0 for code in codes) > FILES // 20  # other numbers of the same program, which run
    for file, code in zip(files, codes, strict=True):
        if code == 0:
            assert len(file) == len(whole) and file[:40] == whole[:40]
