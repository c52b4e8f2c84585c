"""Prebuilt kernels and the interpreter of loops: the same bits as generated loops; and what a binary wheel carries."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from test_wheel import make_environment, output

from gradlab.backends.native import compiler, prebuilt
from gradlab.graph.executables.native.prebuilt_texts import all_functions, all_texts

from repository import ROOT

PROGRAMS = """
import hashlib, json, sys
import numpy as np
import gradlab as gl
from gradlab.backends.native import compiler, prebuilt

rng = np.random.default_rng(3)
def given(*shape, dtype="float32"):
    return gl.from_numpy((rng.standard_normal(shape) * 3).astype(dtype))

a, b, row, column = given(70, 90), given(70, 90), given(90), given(70, 1)
images, scale = given(3, 5, 6, 7), given(5, 1, 1)
halves = given(40, 50).to(gl.float16), given(40, 50).to(gl.bfloat16)
whole, wide = gl.from_numpy(rng.integers(-50, 50, (30, 41))), given(33, 44, dtype="float64")
mask, tall, fewer = a > 0, given(70000, 3), given(5000, 16)
f = {
    "chain": lambda: ((a * 2.5 + b).tanh().exp() - b.sigmoid() / (a.abs() + 1)).clamp(-3, 4),
    "rows and columns": lambda: (a + row) * column + row.exp(),
    "channels": lambda: (images * scale + 0.5).relu() * images.transpose(2, 3).contiguous().transpose(2, 3),
    "several results": lambda: [a * 2, (a * 2).sin(), (a * 2).sin() + b],
    "transposed": lambda: a.T + b.T * 2,
    "every second": lambda: a[:, ::2] * 3 - b[:, 1::2],
    "reversed": lambda: a.flip(0) + 1,
    "halves": lambda: [halves[0] * 1.3 + halves[0].exp(), halves[1] / 3 - halves[1].cos(), halves[0].float() * 2],
    "integers": lambda: [(whole * 3 - 7) % 5, whole // 4, whole.to(gl.int32) * 2, (whole > 3).to(gl.uint8), whole.clamp(-3)],
    "doubles": lambda: [wide.exp() * wide.sin(), wide.to(gl.float32) + 1, wide.to(gl.float16)],
    "masks": lambda: [gl.where(mask, a, b), mask & (b > 0), a.masked_fill(mask, 2.0)],
    "sums": lambda: [a.sum(), a.sum(0), a.sum(1), images.sum((0, 2, 3)), images.mean((1, 3)), wide.prod(1), whole.sum(0), a.amax(1),
                     a.amin(0), whole.amax(0), mask.any(1), mask.all(0), tall.sum(0), fewer.mean(0)],
    "lines": lambda: [a.max(1)[1], a.cumsum(0), whole.cumprod(1), a.sort(1)[0], a.topk(3)[1], a.tril(), whole.triu(1), halves[0].argmax(1)],
    "indices": lambda: [a[gl.tensor([3, 1, 2])], a.gather(1, whole.abs() % 90),
                gl.zeros(70, 90).scatter_add(1, whole.abs() % 90, a)],
    "copies": lambda: [gl.cat([a, b], 1) * 1, a.T.reshape(-1), images.permute(3, 1, 0, 2).contiguous(), gl.full((3, 4), 2.5) + 0],
    "windows": lambda: [gl.nn.functional.interpolate(images, scale_factor=2, mode="bilinear"), gl.nn.functional.unfold(images, 3)],
}
found = {}
for name, function in f.items():
    step = gl.compile(function)
    for _ in range(3):
        results = step()
    results = results if isinstance(results, (list, tuple)) else [results]
    executable = step.programs[0].runner.executable
    steps = [s for s in getattr(executable, "steps", ["numpy: all"]) if s.startswith("numpy")]
    results = [r.view(gl.int16) if r.dtype == gl.bfloat16 else r for r in results]
    bits = [hashlib.sha256(np.ascontiguousarray(r.numpy()).tobytes()).hexdigest() for r in results]
    found[name] = {"bits": bits, "numpy": steps}
print(json.dumps([compiler.compiles(), str(prebuilt.level()), found]))
"""


def run(program, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_and_texts_have_names_of_their_own_and_are_many():
    """Every elementwise row that the GPU describes has functions; every template has texts."""
    functions = list(all_functions())
    assert len({f.name for f in functions}) == len(functions) > 700
    text = "\n".join(f.text for f in functions)
    for name in ("erf(", "lgamma(", "igamma(", "rounded<Float16>", "cast<Bfloat16>", "where("):
        assert name in text, name
    texts = "\n".join(all_texts().values())
    templates = ("extremes<", "running<", "sorted<", "pick(", "put_sum(", "scatter<", "dropout(", "reduce_rows<", "unrolled(")
    for name in templates:
        assert name in texts, name


def test_a_folder_without_libraries_is_none(monkeypatch, tmp_path):
    for given in ("none", str(tmp_path / "absent"), str(tmp_path)):
        monkeypatch.setenv("GRADLAB_PREBUILT", given)
        prebuilt.forget()
        assert prebuilt.level() is None
        assert prebuilt.libraries() == ()
        assert prebuilt.address("gradlab_run") == 0
    monkeypatch.undo()
    prebuilt.forget()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The libraries for this machine: those that GRADLAB_TEST_PREBUILT names, or built now."""
    named = os.environ.get("GRADLAB_TEST_PREBUILT")
    if named:
        return Path(named)
    pytest.importorskip("ziglang")
    folder = tmp_path_factory.mktemp("prebuilt") / "x86_64-linux"
    level = {16: "avx512", 8: "avx2"}.get(compiler.lanes(), "sse42")
    command = [sys.executable, "-m", "gradlab.testing.prebuilt", "x86_64-linux", "--levels", level, "--out", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return folder


on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 libraries")


@on_x86
@pytest.mark.slow
def test_interpreted_loops_have_the_bits_of_generated_ones(libraries):
    compiles, _, wanted = json.loads(run(PROGRAMS))
    none, level, found = json.loads(run(PROGRAMS, GRADLAB_COMPILER="none", GRADLAB_PREBUILT=str(libraries)))
    assert not none and level != "None"
    assert {name: entry["numpy"] for name, entry in found.items()} == {name: entry["numpy"] for name, entry in wanted.items()}
    if compiles and "avx" in level:  # as -march=native: with fused multiplication and addition
        assert {name: entry["bits"] for name, entry in found.items()} == {name: entry["bits"] for name, entry in wanted.items()}


@on_x86
@pytest.mark.slow
def test_libraries_need_no_newer_c_library_than_their_wheel_says(libraries):
    """manylinux_2_28: symbols of glibc up to 2.28, and no C++ library."""
    for path in sorted(libraries.glob("*.so")):
        content = path.read_bytes().decode("latin1")
        versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+\.\d+)", content)}
        assert versions and max(versions) <= (2, 28), path
        assert not re.search(r"libstdc\+\+|libc\+\+\.so|GLIBCXX", content), path


TRAINS = """
import shutil
import gradlab as gl
from gradlab import nn
from gradlab.backends.native import compiler, prebuilt

assert shutil.which("g++") is None and shutil.which("c++") is None and not compiler.compiles()
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 3))
optimizer = gl.optim.Adam(model.parameters(), lr=0.01)
x = gl.randn(64, 8)
y = x[:, :3].argmax(1)

@gl.compile
def step(x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss

losses = [step(x, y).item() for _ in range(60)]
assert losses[-1] < losses[0] / 2, losses
assert type(step.programs[0].runner.executable).__name__ == "NativeExecutable"
print(step.stats().tasks, prebuilt.folder(), prebuilt.level().name)
"""


@on_x86
@pytest.mark.slow
def test_a_binary_wheel_trains_without_a_compiler(libraries, tmp_path, monkeypatch):
    """Tag and contents; in a fresh environment, with nothing but Python on the PATH, steps run in the package's machine code."""
    monkeypatch.setenv("GRADLAB_WHEEL", "x86_64-linux")
    monkeypatch.setenv("GRADLAB_PREBUILT", str(libraries))
    output(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert {f"gradlab/kernels/prebuilt/{path.name}" for path in libraries.iterdir()} <= names
        assert "gradlab/kernels/cpu/gemm.h" in names  # with a compiler its own machine code is made
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/WHEEL"))).decode()
    assert "Root-Is-Purelib: false" in metadata
    python = make_environment(tmp_path / "environment", wheel)
    monkeypatch.delenv("GRADLAB_PREBUILT")
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.setenv("GRADLAB_COMPILER", "none")
    monkeypatch.setenv("GRADLAB_CACHE", str(tmp_path / "cache"))
    tasks, folder, level = output(python, "-c", TRAINS, cwd=tmp_path).split()
    assert int(tasks) > 5 and Path(folder).is_relative_to(tmp_path.resolve())
    assert f"prebuilt kernels ({level})" in output(python, "-m", "gradlab", "info", cwd=tmp_path)
    said = output(python, "-m", "gradlab", "train", "digits", "--compile", "--epochs", "2", cwd=tmp_path)
    assert "accuracy" in said


EAGER = """
import hashlib, json
import numpy as np
import gradlab as gl
from gradlab.backends.native import eager, ready
F = gl.nn.functional
found = {}
for n in (31, 257, 3000, 70001):
    for name, f in {
        "gelu": F.gelu, "silu": F.silu, "cube": lambda x: x**3, "hardswish": F.hardswish, "clamp": lambda x: x.clamp(-0.5, 0.5),
        "sum": lambda x: x.sum(),
        "softmax": lambda x: F.softmax(x, 0), "cumsum": lambda x: x.cumsum(0), "norm": lambda x: x.norm(), "add": lambda x: x + x.flip(0),
        "layer_norm": lambda x: F.layer_norm(x, x.shape), "gather": lambda x: x.gather(0, gl.arange(n - 1, -1, -1)),
    }.items():
        x = gl.tensor(np.random.default_rng(n).standard_normal(n).astype("f"), requires_grad=True)
        y = f(x)
        y.sum().backward()
        found[f"{name} {n}"] = [hashlib.sha256(a.detach().numpy().tobytes()).hexdigest() for a in (y, x.grad)]
keys = [k[0] if isinstance(k[0], tuple) else k for k, plan in eager.plans.items() if plan]
rows = {(k[1] if isinstance(k[0], str) else k[0]).name for k in keys}
print(json.dumps([ready.in_use(), sorted(rows), found]))
"""


@on_x86
@pytest.mark.slow
def test_eager_code_runs_prebuilt_kernels_without_a_compiler(libraries):
    given = {"GRADLAB_NATIVE": "1", "GRADLAB_COMPILER": "none", "GRADLAB_PREBUILT": str(libraries)}
    word, rows, found = json.loads(run(EAGER, **given))
    assert word.startswith("prebuilt-")
    wanted = ("gelu", "gelu_backward", "silu", "pow", "hardswish", "clamp", "sum", "softmax", "cumsum", "euclidean", "layer_norm", "gather")
    assert set(wanted) <= set(rows)
    again = json.loads(run(EAGER, **given, GRADLAB_NUM_THREADS="3"))[2]
    assert again == found
    assert json.loads(run(EAGER, **{**given, "GRADLAB_PREBUILT": "none"}))[:2] == ["numpy", []]
