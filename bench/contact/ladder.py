"""One rung of the ladder: `python bench/contact/ladder.py RUNG`, in a process of its own, so that what loses the GPU loses no more.

Each prints one line of JSON behind an @. All but `libraries` run on the emulated GPU, too.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import workloads

import gradlab as gl
from gradlab import nn, optim
from gradlab.backends.cuda.gemm.binding import Epilogue
from gradlab.backends.cuda.gemm.library import blas_of
from gradlab.backends.cuda.gemm.rows import with_epilogue
from gradlab.backends.cuda.loading import load

RUNGS = {}
TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 3e-3, "bfloat16": 2e-2}


def rung(function):
    RUNGS[function.__name__] = function
    return function


@rung
def libraries():
    """Where CUDA's libraries were found, and how; versions of what is installed."""
    names = ("cupy-cuda13x", "cupy-cuda12x", "cupy", "numpy", "torch", "cuda-pathfinder", "nvidia-cublas", "pytest", "pytest-xdist")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {"versions": versions, "python": sys.version.split()[0], "cores": os.cpu_count()}
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.pathfinder"):
        pathfinder = importlib.import_module("cuda.pathfinder")
        for name in ("cublasLt", "nvrtc", "cudart", "cufft"):
            try:
                made = pathfinder.load_nvidia_dynamic_lib(name)
                found[name] = [str(made.abs_path), str(made.found_via)]
            except RuntimeError as error:
                found[name] = str(error).splitlines()[:1]
        try:
            found["headers"] = str(pathfinder.find_nvidia_header_directory("cudart"))
        except (AttributeError, RuntimeError) as error:
            found["headers"] = str(error)
    return found


@rung
def driver():
    """The device."""
    made = load().driver
    return {"kind": made.name, "name": made.device_name(0), "capability": made.capability(0), "memory": made.memory(0)._asdict()}


@rung
def copies():
    """There and back, of one element up to 64 MiB."""
    for size in (1, 1000, 1 << 20, 1 << 24):
        x = np.arange(size, dtype=np.float32)
        assert (gl.from_numpy(x).cuda().cpu().numpy() == x).all(), size
    return {}


@rung
def kernel():
    """The first kernel: how long from nothing, and the same again."""
    begun = time.perf_counter()
    x = gl.arange(1000, dtype=gl.float32).cuda()
    assert ((x * 2 + 1).cpu().numpy() == np.arange(1000) * 2 + 1).all()
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    assert float((x * 2 + 1)[999]) == 1999
    return {"first_s": round(first, 3), "again_s": round(time.perf_counter() - begun, 4)}


@rung
def thread():
    """A thread whose first act is a launch on pooled memory."""
    x = gl.ones(1000).cuda()
    y = x + x
    del y
    raised = []

    def work():
        try:
            assert float((x + x).sum()) == 2000
        except BaseException as error:
            raised.append(repr(error))

    for _ in range(2):
        one = threading.Thread(target=work)
        one.start()
        one.join()
    assert not raised, raised
    return {}


@rung
def gemm():
    """Products in each dtype, plain and turned, against float64."""
    r, worst = np.random.default_rng(0), {}
    for name, most in TOLERANCE.items():
        dtype, errors = getattr(gl, name), []
        for m, k, n in ((130, 260, 70), (8, 8, 8), (1, 300, 5)):
            a, b = (gl.tensor(r.normal(size=s)).to(dtype) for s in ((m, k), (k, n)))
            want = a.double().numpy() @ b.double().numpy()
            x, y = a.cuda(), b.cuda()
            results = (x @ y, (y.t() @ x.t()).t(), x.t().contiguous().t() @ y)
            errors += [float(np.linalg.norm(got.double().cpu().numpy() - want) / np.linalg.norm(want)) for got in results]
        worst[name] = max(errors)
        assert worst[name] < most, worst
    blas = blas_of(load().driver)
    return {"errors": worst, "cublasLt": None if blas is None else blas.library.cublasLtGetVersion()}


@rung
def epilogues():
    """Which epilogues the library has, by dtype and precision: its status, never an exception of ours."""
    backend, lacking = load(), {}
    for precision in ("highest", "high"):
        gl.set_float32_matmul_precision(precision)
        for name in ("float32", "float16", "bfloat16"):
            a, w = gl.ones(128, 256, device="cuda"), gl.ones(256, 512, device="cuda")
            a, w, c = (x.to(getattr(gl, name)) for x in (a, w, gl.zeros(128, 512, device="cuda")))
            for kind in Epilogue:
                bits = "RELU" in kind.name and ("AUX" in kind.name or kind.name.startswith("D"))
                kept = bits or "AUX" in kind.name or kind.name.startswith("DGELU")
                aux = gl.zeros(128, 64, dtype=gl.uint8, device="cuda") if bits else gl.zeros_like(c)
                extra = gl.ones(128 if kind.name == "BGRADB" else 512, device="cuda").to(c.dtype)
                biased = "BIAS" in kind.name or "BGRAD" in kind.name
                arrays = [a._array, w._array, c._array, extra._array if biased else None, aux._array if kept else None]
                ready = with_epilogue(backend.work, kind, *arrays, 512 if kept else 0)
                if ready is None:
                    lacking.setdefault(f"{precision} {name}", []).append(kind.name)
                else:
                    ready()
                    backend.synchronize()
    return {"lacking": lacking}


@rung
def capture():
    """A graph of a product, an activation and a sum; its replay sees new values."""
    x = gl.ones(64, 64, device="cuda")

    def work():
        return (x @ x).relu().sum(0)

    work()
    graph = gl.cuda.CUDAGraph()
    with gl.cuda.graph(graph):
        y = work()
    x.fill_(2.0)
    graph.replay()
    gl.cuda.synchronize()
    assert float(y[0]) == 64 * 64 * 4, float(y[0])
    return {}


def losses(name, compiled, steps=3):
    """The losses of a workload's first steps, and the executable's `why`."""
    model = workloads.network(name, nn, nn.functional, gl.cat)
    given = workloads.weights({key: tuple(p.shape) for key, p in model.named_parameters()})
    for key, p in model.named_parameters():
        p.data.copy_(gl.from_numpy(given[key]))
    model = model.to("cuda")
    x, y = (gl.from_numpy(a).to("cuda") for a in workloads.data(name))
    step = workloads.step_of(name, model, nn.functional, optim, x, y)
    if compiled:
        step = gl.compile(step)
    found = [float(step(x, y)) for _ in range(steps + 1)]
    return found, step.programs[0].runner.executable.why if compiled else ""


@rung
def step():
    """One workload: captured, and its losses those of eager steps."""
    (name,) = sys.argv[2:]
    eager, _ = losses(name, False)
    captured, why = losses(name, True)
    assert why == "", f"{name} is not captured: {why}"
    worst = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(eager, captured, strict=True))
    assert worst < 2e-3, (eager, captured)
    return {"workload": name, "losses": eager, "worst": worst}


def main():
    name = sys.argv[1]
    begun = time.perf_counter()
    found = RUNGS[name]()
    print("@" + json.dumps({"rung": name, "seconds": round(time.perf_counter() - begun, 2), **found}, default=str), flush=True)


if __name__ == "__main__":
    main()
