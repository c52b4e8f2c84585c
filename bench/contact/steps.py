"""Training steps of the workloads on a GPU: `python bench/contact/steps.py gradlab|torch|jax float32|tf32|bfloat16 [--dry] NAME...`.

gradlab: eager and compiled. torch: eager, and one CUDA graph captured by hand with fused optimizers, its best. jax: jitted, with the device
that it ran on, since JAX without its CUDA plugin takes the CPU; nothing where it is not installed. Times are of the wall, the
median of batches of steps behind one another with one wait at the end, in µs; a line of JSON behind an @ for each as it is measured.
bfloat16 is the weights' dtype and the data's. `--dry` computes nothing: it only asks for the kernels (`gradlab.testing.warm --script`).
"""

import importlib
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import workloads

BATCHES, SECONDS = 7, 0.25


def microseconds(run, wait, most=200):
    """Of one step."""
    run()
    wait()
    begun = time.perf_counter()
    run()
    wait()
    once = max(time.perf_counter() - begun, 1e-6)
    steps = max(1, min(most, int(SECONDS / once)))
    times = []
    for _ in range(BATCHES if steps > 1 else 1):
        begun = time.perf_counter()
        for _ in range(steps):
            run()
        wait()
        times.append((time.perf_counter() - begun) / steps)
    return statistics.median(times) * 1e6


def prepared(m, name, precision, cat):
    """A model on the GPU with the weights that all engines begin with, and its data."""
    model = workloads.network(name, m.nn, m.nn.functional, cat)
    given = workloads.weights({key: tuple(p.shape) for key, p in model.named_parameters()})
    for key, p in model.named_parameters():
        p.data.copy_(m.from_numpy(given[key]))
    model = model.to("cuda")
    x, y = (m.from_numpy(a).to("cuda") for a in workloads.data(name))
    if precision == "bfloat16":
        model = model.to(m.bfloat16)
        x, y = (a.to(m.bfloat16) if a.is_floating_point() else a for a in (x, y))
    return model, x, y


def of_gradlab(names, precision, dry):
    gl = importlib.import_module("gradlab")
    gl.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    for name in names:
        for way in ("eager", "compiled"):
            model, x, y = prepared(gl, name, precision, gl.cat)
            step = workloads.step_of(name, model, gl.nn.functional, gl.optim, x, y)
            if way == "compiled":
                step = gl.compile(step)
            begun = time.perf_counter()
            for _ in range(3):
                step(x, y)
            gl.cuda.synchronize()
            first = time.perf_counter() - begun
            found = {} if dry else {"us": round(microseconds(lambda step=step, x=x, y=y: step(x, y), gl.cuda.synchronize), 1)}
            more = {}
            if way == "compiled":
                executable = step.programs[0].runner.executable
                more = {"launches": executable.launches, "why": executable.why}
            yield {"workload": name, "way": way, "three_first_s": round(first, 2), **found, **more}


def of_torch(names, precision, dry):
    torch = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    for name in names:
        for way in ("eager", "graph"):
            model, x, y = prepared(torch, name, precision, torch.cat)
            kinds = {"capturable": True} if name not in ("mlp", "resnet", "tiny") and way == "graph" else {}
            step = workloads.step_of(name, model, torch.nn.functional, fused(torch.optim, kinds), x, y)
            run = graph_of(torch, step, x, y) if way == "graph" else lambda step=step, x=x, y=y: step(x, y)
            yield {"workload": name, "way": way, "us": round(microseconds(run, torch.cuda.synchronize), 1)}


class fused:
    """`torch.optim`, fused."""

    def __init__(self, optim, more):
        self.optim, self.more = optim, more

    def __getattr__(self, name):
        return lambda parameters, **given: getattr(self.optim, name)(parameters, fused=True, **given, **self.more)


def graph_of(torch, step, x, y):
    """The step as one CUDA graph, captured as PyTorch's documentation says; each replay reads x and y where they lie."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(x, y)
    return graph.replay


def of_jax(names, precision, dry):
    if precision == "bfloat16":
        raise NotImplementedError("the steps of bench/peer_jax.py are of float32: measure float32 or tf32")
    jax = importlib.import_module("jax")
    jax.config.update("jax_default_matmul_precision", {"tf32": "tensorfloat32", "float32": "highest"}[precision])
    peer = importlib.import_module("peer_jax")
    for name in names:
        losses = []
        step = peer.prepared(name, waits=False)
        us = microseconds(lambda step=step, losses=losses: losses.append(step()), lambda losses=losses: jax.block_until_ready(losses[-1:]))
        yield {"workload": name, "way": "jit", "on": jax.default_backend(), "us": round(us, 1)}


def main():
    engine, precision, *names = [a for a in sys.argv[1:] if a != "--dry"]
    failed = 0
    if engine == "jax" and importlib.util.find_spec("jax") is None:
        print("JAX is not installed")
        return 0
    for name in names or workloads.NAMES:  # one that fails costs the others nothing
        try:
            for line in {"gradlab": of_gradlab, "torch": of_torch, "jax": of_jax}[engine]([name], precision, "--dry" in sys.argv):
                print("@" + json.dumps({"engine": engine, "precision": precision, **line}), flush=True)
        except Exception as error:
            failed += 1
            said = f"{type(error).__name__}: {error}"[:300]
            print("@" + json.dumps({"engine": engine, "precision": precision, "workload": name, "error": said}), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
