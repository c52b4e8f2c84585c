"""Every workload by gradlab, eager and compiled, and by the peers that are installed: the same data, values and losses, one run.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m bench [names] [--peers torch,jax] [--rounds 3] [--threads 2] [--limit]

Engines take turns, each measurement in a process of its own. Prints the median milliseconds of a step with the spread of the rounds,
compiled gradlab's ratio to the best peer, the seconds until its first replay, and the resident memory, beyond model and data, at the
peak of the steps after the first three. Losses of the first 10 steps have to agree with PyTorch's (where it is missing: eager gradlab's)
within 1e-3, and gradlab's engines have to end; else the exit code is 1.

"No compiler" is compiled gradlab with GRADLAB_COMPILER=none: the prebuilt kernels of a wheel, of the folder that GRADLAB_PREBUILT names,
or NumPy. torch.compile's own compiler takes minutes for some: what has failed, or outlasted --patience, is not tried again. All of it takes
about half an hour on two quiet cores. On a busy machine: --least --threads 1 --rounds 1 --seconds 0.3 --peers torch,jax,numpy. There
the clock says how many others there are, and threads that wait for each other take a hundred times as long.

--device cuda     gradlab and PyTorch on the GPU, steps measured to their end on the device
--limit           also this machine's peak and, for each workload, the share of the least time that arithmetic and traffic need
--least           the least processor time of a step instead of the median of the clock's
--json FILE       all that was measured so far, after each workload; --chart FILE.svg: bars
--steps           what runs where in the compiled programs
"""

import argparse
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import limit
import workloads
from memory_of_process import Peak

OWN = ("eager", "compiled", "no compiler")
PEERS = ("torch", "torch.compile", "jax", "numpy")
NAMES = (*workloads.NAMES, *workloads.FURTHER)
ENVIRONMENT = {"no compiler": {"GRADLAB_COMPILER": "none"}}
COMPARED = 10  # first steps whose losses have to agree


def prepared(name, engine, device):
    """The step of an engine, and what waits for the device."""
    if engine == "jax":
        import peer_jax

        return peer_jax.prepared(name), None, lambda: None
    if engine == "numpy":
        import peer_numpy

        return peer_numpy.prepared(name), None, lambda: None
    if engine in PEERS:
        import torch as lib
    else:
        import gradlab as lib
    if device != "cpu":
        lib.set_default_device(device)
    compiled = {"compiled": getattr(lib, "compile", None), "no compiler": lib.compile, "torch.compile": lib.compile}.get(engine)
    step, whole = workloads.prepared(name, lib, compiled)
    return step, whole, lib.cuda.synchronize if device != "cpu" else lambda: None


def measure(name, engine, device, seconds):
    step, whole, wait = prepared(name, engine, device)
    peak = Peak()
    begun = time.perf_counter()
    losses = [float(step()), float(step()), float(step())]
    first = time.perf_counter() - begun
    peak.again()
    losses += [float(step()) for _ in range(COMPARED - 3)]
    times, processor = [], []
    while sum(times) < seconds or len(times) < 5:
        wait()
        begun, working = time.perf_counter(), time.process_time()
        step()
        wait()
        times.append(time.perf_counter() - begun)
        processor.append(time.process_time() - working)
    found = {"ms": statistics.median(times) * 1e3, "least": min(processor) * 1e3, "first": first, "losses": losses, "mb": peak.megabytes()}
    if whole is not None and engine in OWN:
        found["steps"] = str(whole.stats())
    return found


def apart(name, engine, args):
    """What a process of its own found, or None with its complaint printed."""
    words = [sys.executable, __file__, "--one", name, engine, "--seconds", str(args.seconds), "--device", args.device]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GRADLAB_NUM_THREADS"), str(args.threads))
    threads["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if args.threads > 1 else 'false'}"
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **threads, "PYTHONPATH": path, **ENVIRONMENT.get(engine, {})}
    one_core = ["taskset", "-c", "0"] if args.threads == 1 and engine == "jax" else []
    try:
        done = subprocess.run([*one_core, *words], capture_output=True, text=True, check=False, env=environment, timeout=args.patience)
    except subprocess.TimeoutExpired:
        print(f"{name} by {engine} took longer than {args.patience:.0f} s", flush=True)
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("@")]
    if not lines:
        print(f"{name} by {engine} failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}", flush=True)
        return None
    return json.loads(lines[0][1:])


def offered(name, engine):
    """Whether an engine has this workload, and is here."""
    if engine == "numpy":
        return name in ("tiny", "mlp", "mlp-adam")
    if engine == "jax":
        return name in workloads.NAMES and importlib.util.find_spec("jax") and importlib.util.find_spec("torch")
    return importlib.util.find_spec(engine.partition(".")[0]) is not None if engine.startswith("torch") else True


def rows(args, engines):
    """For each workload what was found, by engine; the engines take turns."""
    for name in args.names:
        here = [e for e in engines if offered(name, e)]
        found = {e: [] for e in here}
        for _ in range(args.rounds):
            for engine in [*here]:
                if (one := apart(name, engine, args)) is not None:
                    found[engine].append(one)
                else:
                    here.remove(engine)
        yield name, {engine: each for engine, each in found.items() if each}


def milliseconds(each, least):
    """Of an engine's rounds the time of a step, and half the spread of the rounds, as a part of it."""
    times = [one["least" if least else "ms"] for one in each]
    middle = min(times) if least else statistics.median(times)
    return middle, (max(times) - min(times)) / 2 / middle


def apart_by(a, b):
    """The relative difference of two losses."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b) / max(abs(b), 1e-6)
    return 0.0 if repr(a) == repr(b) else math.inf


def plain(found):
    """The same without what JSON does not have: None for what is not finite."""
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    if isinstance(found, list):
        return [plain(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


def difference(found):
    """The largest relative difference of a loss from PyTorch's, eager gradlab's, or those of the first that there are; and whose it is.
    What is not finite differs by infinity from all else."""
    reference = next(found[engine] for engine in ("torch", *found) if engine in found)[0]["losses"]
    gaps = {}
    for engine, each in found.items():
        pairs = [(a, b) for one in each for a, b in zip(one["losses"], reference, strict=True)]
        gaps[engine] = max(apart_by(a, b) for a, b in pairs)
    worst = max(gaps, key=gaps.get)
    return gaps[worst], worst


def machine():
    """The processor's name, and what it has to do already."""
    cpus = Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in cpus.read_text().splitlines() if line.startswith("model name")] if cpus.exists() else []
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {"processor": names[0] if names else platform.processor() or platform.machine(), "load": load}


def chart(table, file, least):
    """Bars of milliseconds of each workload's engines and peers, as an SVG picture: shorter is faster."""
    colours = {"eager": "#9aa5b1", "compiled": "#d9480f", "no compiler": "#f08c00"}
    lines, y = [], 20
    for name, found in table.items():
        ms = {e: milliseconds(each, least)[0] for e, each in found.items()}
        longest = max(ms.values(), default=1)
        lines.append(f'<text x="4" y="{y + 11}" font-weight="bold">{name}</text>')
        for engine, value in ms.items():
            width = max(1, 420 * value / longest)
            lines.append(f'<text x="200" y="{y + 11}" text-anchor="end">{engine}</text>')
            lines.append(f'<rect x="208" y="{y}" width="{width:.0f}" height="13" fill="{colours.get(engine, "#4c6ef5")}"/>')
            lines.append(f'<text x="{214 + width:.0f}" y="{y + 11}">{value:.3g} ms</text>')
            y += 17
        y += 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y + 10}" font-family="sans-serif" font-size="11">'
    Path(file).write_text("\n".join([head, *lines, "</svg>\n"]), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES), metavar="name", help=", ".join(NAMES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engines", default=",".join(OWN), help="of gradlab")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds that a measurement may take with all its compiling")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--chart")
    parser.add_argument("--smoke", action="store_true", help="in seconds, to see that it runs")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print("@" + json.dumps(measure(*args.one, args.device, args.seconds)))
        return 0
    if unknown := [name for name in args.names if name not in NAMES]:
        parser.error(f"there is no workload {unknown[0]}: {', '.join(NAMES)}")
    for given, offer in ((args.engines, OWN), (args.peers, PEERS)):
        if unknown := [e for e in given.split(",") if e and e not in offer]:
            parser.error(f"there is no {unknown[0]!r}: {', '.join(offer)}")
    if args.rounds < 1:
        parser.error("--rounds is at least 1")
    if args.smoke:
        args.names, args.rounds, args.seconds = ["tiny"], 1, 0.1
    engines = [e for e in (*args.engines.split(","), *args.peers.split(",")) if e and (args.device == "cpu" or e not in ("jax", "numpy"))]
    flops, bandwidth = limit.machine(args.threads) if args.limit else (0, 0)
    about = {**machine(), "threads": args.threads, "date": time.strftime("%Y-%m-%d")}
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    if args.limit:
        print(f"this machine on {args.threads} threads: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s")
    print(f"{'':11}" + "".join(f"{e:>15}" for e in engines) + f"{'ratio':>8}{'first s':>9}{'MB':>12}  losses differ by", flush=True)
    table, agreed = {}, True
    for name, found in rows(args, engines):
        table[name] = found
        taken = {e: milliseconds(each, args.least) for e, each in found.items()}
        ms = {e: middle for e, (middle, _) in taken.items()}
        times = "".join(f"{'{:.3f} ±{:3.0%}'.format(*taken[e]) if e in ms else '-':>15}" for e in engines)
        peers = [ms[e] for e in ms if e not in OWN]
        ratio = f"{ms['compiled'] / min(peers):.2f}" if peers and "compiled" in ms else "-"
        first = f"{found['compiled'][0]['first']:.2f}" if "compiled" in found else "-"
        memory = "/".join(f"{found[e][0]['mb'] or math.nan:.0f}" for e in OWN[:2] if e in found)
        gap, worst = difference(found) if found else (math.nan, "nothing ran")
        agreed = agreed and gap <= 1e-3 and all(e in found for e in engines if e in OWN)
        print(f"{name:11}{times}{ratio:>8}{first:>9}{memory:>12}  {gap:.1e} ({worst})", flush=True)
        if args.limit and "compiled" in ms:
            least = limit.least_seconds(name, flops, bandwidth) * 1e3
            print(f"{'':11}at least {least:.3f} ms; compiled reaches {least / ms['compiled']:.0%} of it")
        if args.steps and "compiled" in found:
            print(found["compiled"][0]["steps"])
        if args.json:
            rest = {"flops": flops, "bandwidth": bandwidth, "workloads": table}
            Path(args.json).write_text(json.dumps(plain({**about, **rest}), indent=1, allow_nan=False), "utf-8")
        if args.chart:
            chart(table, args.chart, args.least)
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
