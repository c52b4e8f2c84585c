"""The C runner: error against eager, sizes, and milliseconds of a call beside ONNX Runtime, gradlab eager and compiled, in one run.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/c_runner.py [names] [--seconds 1] [--one]

Each engine runs for that long at a time, in turn, three rounds; the least time of a call counts. "1" is one thread, and time of the
processor, as the machine may do other work; "all" as many threads as there are cores. The runner's times are those of its own process; it
has OpenMP where the compiler has. --one: the C program and ONNX Runtime on one thread alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import gradlab as gl
from gradlab import nn
from gradlab.models import GPT, DigitsCNN, DigitsMLP, GPTConfig, MobileNet, ViT, resnet20
from gradlab.models.mobilenet import SMALL

FLAGS = ("-std=c11", "-O3", "-march=native", "-fno-math-errno")
CODE = """
import sys, time, numpy as np, onnxruntime as ort
path, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
options = ort.SessionOptions()
if threads:
    options.intra_op_num_threads = threads
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
feed = {i.name: np.load(f) for i, f in zip(session.get_inputs(), sys.argv[4:])}
clock = time.process_time if threads == 1 else time.perf_counter
least, end = 1e9, clock() + seconds
while clock() < end:
    start = clock()
    session.run(None, feed)
    least = min(least, clock() - start)
print(least * 1e3)
"""


class Recurrent(nn.Module):
    """Two layers over 50 steps, and a classifier of the last one."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, num_layers=2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def mobilenet():
    """Five pairs of depthwise and pointwise convolutions, with numbers that neither grow nor vanish."""
    model = MobileNet(10, layers=SMALL, stride=1)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
    return model


MODELS = {
    "mlp": lambda: (DigitsMLP(hidden=512), gl.randn(32, 1, 8, 8)),
    "cnn": lambda: (DigitsCNN(), gl.randn(32, 1, 8, 8)),
    "lstm": lambda: (Recurrent(), gl.randn(8, 50, 64)),
    "gpt": lambda: (GPT(GPTConfig()), gl.randint(0, 65, (1, 128))),
    "resnet": lambda: (resnet20(), gl.randn(1, 3, 32, 32)),
    "mobilenet": lambda: (mobilenet(), gl.randn(1, 3, 32, 32)),
    "vit": lambda: (ViT(image_size=32, patch_size=4, num_classes=10, depth=6), gl.randn(1, 3, 32, 32)),
}


def least(function, seconds):
    best, end = 1e9, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def compiled(built, name, *flags):
    program = built.source.with_name(name)
    command = ["gcc", *FLAGS, *flags, f"-D{built.name.upper()}_MAIN", str(built.source), "-lm", "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def runner(program, built, source, runs):
    out = built.source.with_name("out.npy")
    done = subprocess.run([program, built.weights, source, out, "--time", str(runs)], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[0]), np.load(out)


def session(path, threads, seconds, source):
    command = [sys.executable, "-c", CODE, path, str(threads), str(seconds), source]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(name, seconds, folder, one_thread=False):
    gl.manual_seed(0)
    model, example = MODELS[name]()
    model.eval()
    source = folder / f"{name}.npy"
    np.save(source, example.numpy())
    with gl.no_grad():
        expected = model(example).numpy()
        built = gl.deploy.build(gl.jit.trace(model, (example,)), folder, name=name)
        one, many = compiled(built, f"{name}_one", "-DGL_PROCESSOR_TIME"), compiled(built, f"{name}_all", "-fopenmp")
        onnx = folder / f"{name}.onnx"
        try:
            gl.onnx.export(model, (example,), onnx)
        except Exception as error:  # whatever stops the export, the rest is measured
            print(f"  {name}: no ONNX file: {error}", file=sys.stderr)
        fast = gl.compile(model)
        for _ in range(0 if one_thread else 2):
            fast(example)
        first, found = runner(one, built, source, 3)
        runs = max(int(1e3 * seconds / first), 3)
        engines = {
            "C, 1": lambda: runner(one, built, source, runs)[0], "C, all": lambda: runner(many, built, source, runs)[0],
            "eager": lambda: least(lambda: model(example), seconds), "compile": lambda: least(lambda: fast(example), seconds),
        }  # fmt: skip
        if onnx.exists():
            engines["ORT, 1"] = lambda: session(onnx, 1, seconds, source)
            engines["ORT, all"] = lambda: session(onnx, 0, seconds, source)
        if one_thread:
            engines = {engine: run for engine, run in engines.items() if engine.endswith(", 1")}
        times = dict.fromkeys(engines, 1e9)
        for _ in range(3):
            for engine, run in engines.items():
                times[engine] = min(times[engine], run())
    subprocess.run(["strip", str(one)], check=False)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    sizes = [path.stat().st_size / 1024 for path in (built.source, built.weights, one)]
    return error, sizes, times, built


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    columns = ("C, 1", "ORT, 1", "C, all", "ORT, all", "compile", "eager")
    print(f"{os.cpu_count()} cores; ms of a call (the least), relative error, KiB of .c, weights and stripped binary, KiB of arena")
    print("| model | " + " | ".join(columns) + " | error | .c | weights | binary | arena |")
    print("|" + "---|" * (len(columns) + 6))
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            error, sizes, times, built = measure(name, options.seconds, Path(folder), options.one)
            shown = " | ".join(f"{times[c]:.3f}" if c in times else "" for c in columns)
            kib = " | ".join(f"{size:.0f}" for size in (*sizes, built.arena / 1024))
            print(f"| {name} | {shown} | {error:.0e} | {kib} |", flush=True)


if __name__ == "__main__":
    main()
