"""Whole training steps: gradlab eager, gradlab compiled, PyTorch eager, one after the other in one run, each in its own process.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/compiled.py [names] [--rounds 3]

Prints the median milliseconds of a step, the ratio to PyTorch, the time to trace and compile, the largest relative difference of the first
20 losses from PyTorch's (from eager's where PyTorch is not installed), and the memory that steps add at their peak: resident, beyond what
there was before the first; "MB at first" with the first two steps, which run eagerly and trace, "MB" after them. Then the same of gradlab's
tensors alone, in a process of its own: what NumPy reports to tracemalloc, and what the compiled program has taken for intermediate values.
"""

import argparse
import ctypes
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np
import workloads

ENGINES = ("eager", "compiled", "torch")


def resident(key):
    """Megabytes of the process: VmRSS now, VmHWM at the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def prepared(name, engine):
    """The step, its arguments, and the library."""
    x, y = workloads.data(name)
    if engine == "torch":
        import torch as lib
        import torch.nn.functional as F
        from torch import nn, optim

        tensor, cat = lib.from_numpy, lib.cat
    else:
        import gradlab as lib
        from gradlab import nn, optim

        F, tensor, cat = nn.functional, lib.from_numpy, lib.cat
    model = workloads.network(name, nn, F, cat)
    values = workloads.weights({k: tuple(p.shape) for k, p in model.named_parameters()})
    with lib.no_grad():
        for key, p in model.named_parameters():
            p.copy_(tensor(values[key]))
    x, y = tensor(x), tensor(y)
    step = workloads.step_of(name, model, F, optim, x, y)
    return (lib.compile(step) if engine == "compiled" else step), x, y


def tensors(name, engine):
    """Megabytes of tensors that steps add at their peak: gradients, the optimizer's state, intermediate values, results."""
    step, x, y = prepared(name, engine)
    tracemalloc.start()
    for _ in range(3):  # the third is the first that does nothing but run
        step(x, y).item()
    tracemalloc.reset_peak()
    for _ in range(3):
        step(x, y).item()
    peak = tracemalloc.get_traced_memory()[1]
    traces = tracemalloc.take_snapshot().traces
    peak -= sum(trace.size for trace in traces if trace.domain != np.lib.tracemalloc_domain)  # Python's own objects
    if engine == "compiled":
        executable = step.programs[0].runner.executable
        peak += executable._memory.nbytes if hasattr(executable, "_memory") else executable.plan.size
        rows = executable._rows._kept if hasattr(executable, "_rows") else ()
        peak -= sum(table.nbytes for table in rows if isinstance(table, np.ndarray))  # the program, as it were
    return peak / 2**20


def measure(name, engine, seconds):
    step, x, y = prepared(name, engine)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # or memory that the preparation left counts for one engine and not for another
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    losses, times = [], []
    start = time.perf_counter()
    losses += [step(x, y).item(), step(x, y).item()]
    first = time.perf_counter() - start
    at_first = resident("VmHWM") - before
    Path("/proc/self/clear_refs").write_text("5")
    losses += [step(x, y).item() for _ in range(18)]
    while sum(times) < seconds or len(times) < 5:
        start = time.perf_counter()
        step(x, y)
        times.append(time.perf_counter() - start)
    found = {"ms": statistics.median(times) * 1e3, "first": first, "losses": losses}
    found["mb"] = resident("VmHWM") - before
    found["mb_at_first"] = max(at_first, found["mb"])
    if engine == "compiled":
        program = step.programs[0]
        found["steps"] = program.runner.executable.steps if hasattr(program.runner.executable, "steps") else []
    return found


def short(megabytes):
    return f"{megabytes:.1f}" if megabytes < 20 else f"{megabytes:.0f}"


def apart(*arguments):
    """What a process of its own found; None if it failed."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("@")]
    if not lines:
        print(f"{arguments} failed:\n{done.stderr[-1500:]}")
        return None
    return json.loads(lines[0][1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(workloads.NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--steps", action="store_true", help="print what runs where in the compiled program")
    parser.add_argument("--one", nargs=2)
    parser.add_argument("--tensors", nargs=2)
    args = parser.parse_args()
    if args.one:
        print("@" + json.dumps(measure(*args.one, args.seconds)))
        return
    if args.tensors:
        print("@" + json.dumps(tensors(*args.tensors)))
        return
    engines = [e for e in args.engines.split(",") if e != "torch" or importlib.util.find_spec("torch")]
    columns = f"{'ratio':>8}{'set-up s':>10}{'MB at first':>15}{'MB':>15}{'tensors MB':>14}  losses differ by"
    print(f"{'':10}" + "".join(f"{e + ' ms':>13}" for e in engines) + columns)
    for name in args.names:
        rows = {e: [] for e in engines}
        for _ in range(args.rounds):
            for engine in engines:
                found = apart("--one", name, engine, "--seconds", str(args.seconds))
                if found is not None:
                    rows[engine].append(found)
        if not all(rows.values()):
            continue
        ms = {e: statistics.median(r["ms"] for r in found) for e, found in rows.items()}
        reference = rows[engines[-1]][0]["losses"]
        mine = rows.get("compiled", rows[engines[0]])[0]
        worst = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(mine["losses"], reference))
        memory = "".join(f"{'/'.join(short(found[0][key]) for found in rows.values()):>15}" for key in ("mb_at_first", "mb"))
        exact = [apart("--tensors", name, e) for e in engines if e != "torch"]
        memory += f"{'/'.join('?' if mb is None else f'{mb:.3g}' for mb in exact):>14}"
        ratio = ms.get("compiled", ms[engines[0]]) / ms[engines[-1]]
        times = "".join(f"{ms[e]:13.3f}" for e in engines)
        print(f"{name:10}{times}{ratio:8.2f}{mine['first']:10.2f}{memory}  {worst:.1e}", flush=True)
        if args.steps:
            print("\n".join(f"    {s}" for s in mine["steps"]))


if __name__ == "__main__":
    main()
