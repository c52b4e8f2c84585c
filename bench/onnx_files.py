"""Real ONNX files: what loads, agrees with ONNX Runtime, compiles, trains, is exported again, runs on a GPU, and how fast.

    python -m bench.onnx_files FOLDER [--only TEXT] [--steps load,agree,compile,jit,session,export,time,tune,gpu] [--json FILE]

Each file runs in a process of its own, on one thread. Sizes that a file leaves open are tried until ONNX Runtime takes them. Times are the
processor's, the least of calls in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

STEPS = ("load", "agree", "compile", "jit", "session", "export", "time", "tune", "gpu")
SIGNAL = re.compile("window|stft|mel|fbank|basis|kernel|dft")  # tensors that are computed once, and not learnt
LENGTHS = (64, 96, 512, 576, 16000, 128, 224, 320)
TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(double)": "float64",
         "tensor(bool)": "bool", "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(float16)": "float16"}  # fmt: skip


def draw(session, batch, length, seed, fixed, kinds=100):
    """Inputs: the first open dimension is the batch's, all others have one length; lengths and rates of sound are given as such. kinds: of
    whole numbers."""
    import numpy as np

    rng = np.random.default_rng(seed)
    found = {}
    names = [i.name for i in session.get_inputs()]
    for i in session.get_inputs():
        open_ = [d for d, s in enumerate(i.shape) if not isinstance(s, int) or s < 0]
        shape = [s if isinstance(s, int) and s >= 0 else length for s in i.shape]
        for d in open_:
            name = str(i.shape[d]).lower()
            if (d == 0 and "seq" not in name) or "batch" in name or (i.name in ("state", "h", "c") and d == 1):
                shape[d] = batch
        dtype = TYPES[i.type]
        if i.name in fixed:
            found[i.name] = np.array(fixed[i.name], dtype)
        elif dtype.startswith("float"):
            found[i.name] = (rng.normal(size=shape) * (0.1 if "wave" in i.name else 1)).astype(dtype)
        elif dtype == "bool":
            found[i.name] = rng.random(shape) > 0.5
        elif "len" in i.name.lower() and len(names) > 1:
            found[i.name] = np.full(shape, length, dtype)
        else:
            found[i.name] = np.full(shape, 16000, dtype) if not shape else rng.integers(0, kinds, shape).astype(dtype)
    return found


def candidates(session, count=3):
    """Inputs that ONNX Runtime takes: a first batch, a second batch, a second length."""
    found = []
    sound = any("wave" in i.name for i in session.get_inputs())  # too short ones end some versions of the runtime
    lengths = (16000, 24000) if sound else LENGTHS
    for kinds, length, batch in (*itertools.product((100, 4), lengths[:2], (1, 3, 2)), *itertools.product((100,), lengths[2:], (1, 3, 2))):
        if len(found) >= count:
            break
        inputs = draw(session, batch, length, len(found), {}, kinds)
        if any(all(inputs[k].shape == f[k].shape for k in inputs) for f, _ in found):
            continue
        try:
            results = session.run(None, inputs)
        except Exception:  # other sizes, then
            continue
        found.append((inputs, results))
    return found


def session_of(path, threads=1, plain=False):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 4
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def listed(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def gap(got, want):
    """The largest difference, as a share of the largest number."""
    import numpy as np

    worst = 0.0
    for g, w in zip(listed(got), listed(want), strict=True):
        w = np.array([list(row.values()) for row in w], np.float32) if isinstance(w, list) else w  # a list of maps from labels to numbers
        g, w = np.asarray(g.detach().cpu().numpy() if hasattr(g, "detach") else g), np.asarray(w)
        if g.shape != w.shape or g.dtype != w.dtype:
            raise AssertionError(f"shape or dtype {g.shape} {g.dtype}, not {w.shape} {w.dtype}")
        if w.size:
            g, w = g.astype(np.float64), w.astype(np.float64)
            if not (np.isnan(g) == np.isnan(w)).all():
                raise AssertionError("NaN in one alone")
            worst = max(worst, float(np.nanmax(np.abs(g - w))) / max(float(np.nanmax(np.abs(w))), 1e-6))
    return worst


def least(run, seconds=0.3):
    """Milliseconds of the processor for one call, the least."""
    best, begin = 1e9, time.process_time()
    while time.process_time() - begin < seconds or best == 1e9:
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best * 1e3


class File:
    """One file's steps. Each gives what stands in the table, or raises."""

    def __init__(self, path):
        self.path = path

    def tensors(self, k):
        import gradlab as gl

        return {n: gl.tensor(v) for n, v in self.cases[k][0].items() if n not in self.fixed}

    def load(self):
        import gradlab as gl

        self.session = session_of(self.path)
        start = time.perf_counter()
        rate = any(i.name == "sr" and not i.shape for i in self.session.get_inputs())
        self.fixed = {"sr": 16000} if rate else {}  # branches by the rate do not take inputs of the same lengths
        self.model = gl.onnx.load(self.path, constants=self.fixed).eval()
        self.model.maps = False  # of scikit-learn's maps the numbers, as export writes them
        seconds = time.perf_counter() - start
        self.cases = candidates(self.session)
        return f"{seconds:.2f} s, {sum(p.numel() for p in self.model.parameters())} parameters, {len(self.cases)} cases"

    def own_noise(self):
        """How far ONNX Runtime's results move where its inputs do by a rounding error: numbers rounded to 8 bits jump."""
        found = []
        for inputs, want in self.cases:
            moved = {n: v * v.dtype.type(1 + 1e-7) if v.dtype.kind == "f" else v for n, v in inputs.items()}
            found.append(gap(self.session.run(None, moved), want))
        return max(found)

    def agree(self):
        import gradlab as gl

        with gl.no_grad():
            worst = [gap(self.model(**self.tensors(k)), want) for k, (_, want) in enumerate(self.cases)]
        if max(worst) > 1e-3 and max(worst) > (own := self.own_noise()):
            raise AssertionError(f"deviates by {max(worst):.2g}, ONNX Runtime by {own:.2g} where an input changes by 1e-7")
        return f"{max(worst):.1e} over {[{n: list(v.shape) for n, v in c.items()} for c, _ in self.cases]}"

    def compile(self):
        import gradlab as gl

        compiled = gl.compile(self.model)
        worst = 0.0
        with gl.no_grad():
            for k, (_, want) in enumerate(self.cases):
                for _ in range(3):
                    worst = max(worst, gap(compiled(**self.tensors(k)), want))
        if worst > 1e-3 and worst > (own := self.own_noise()):
            raise AssertionError(f"deviates by {worst:.2g}, ONNX Runtime by {own:.2g} where an input changes by 1e-7")
        self.compiled = compiled
        return f"{worst:.1e}"

    def jit(self):
        import gradlab as gl

        names = self.model.input_names
        values = tuple(self.tensors(0)[n] for n in names)
        with gl.no_grad():
            traced = gl.jit.trace(self.model, values)
            return f"{gap(traced(*values), self.cases[0][1]):.1e}"

    def session_(self):
        import gradlab as gl

        graph = gl.Graph()
        fed = {n: v.numpy() for n, v in self.tensors(0).items()}
        with graph.as_default():
            places = {n: gl.placeholder(getattr(gl, v.dtype.name), shape=list(v.shape)) for n, v in fed.items()}
            results = listed(self.model(**places))
            with gl.Session(graph) as session:
                session.run(gl.global_variables_initializer())
                return f"{gap(session.run(results, {places[n]: v for n, v in fed.items()}), self.cases[0][1]):.1e}"

    def tune(self):
        import numpy as np

        import gradlab as gl

        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if not parameters:
            return "no parameters"
        kept = {k: v.clone() for k, v in self.model.state_dict().items()}
        values, want = self.tensors(0), self.cases[0][1]
        goals = [gl.tensor(w) * 0.9 + 0.01 for w in map(np.asarray, want) if w.dtype.kind == "f"]
        try:
            def loss_of():
                found = [t for t in listed(self.model(**values)) if t.is_floating_point()]
                return sum(((f - g) ** 2).mean() / ((g * g).mean() + 1e-12) for f, g in zip(found, goals, strict=True))

            rate = 1e-4
            for _ in range(5):  # a smaller rate where the loss grows
                self.model.load_state_dict(kept)
                optimizer = gl.optim.Adam(parameters, lr=rate)
                losses = []
                for _ in range(6):
                    loss = loss_of()
                    losses.append(loss.item())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                if losses[-1] < losses[0]:
                    break
                rate /= 10
            moved = sum(p.grad is not None for p in parameters)
        finally:
            self.model.load_state_dict(kept)
        if not losses[-1] < losses[0] and all(SIGNAL.search(n) for n, _ in self.model.named_parameters()):
            return f"filter banks and windows alone, to be kept by trainable=False: {losses}"
        if not losses[-1] < losses[0]:
            raise AssertionError(f"the loss does not fall: {losses}")
        return f"{losses[0]:.3g} to {losses[-1]:.3g}, {moved} of {len(parameters)} with gradients"

    def export(self):
        import onnx

        import gradlab as gl

        values = self.tensors(1 if len(self.cases) > 1 else 0)
        names = self.model.input_names
        open_ = {}
        if len(self.cases) > 1:
            a, b = self.cases[0][0], self.cases[1][0]
            sizes = {n: list(zip(a[n].shape, b[n].shape, strict=True)) for n in names}
            open_ = {n: {d: f"n{x}_{y}" for d, (x, y) in enumerate(s) if x != y} for n, s in sizes.items()}
            open_ = {n: d for n, d in open_.items() if d}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "again.onnx"
            found = gl.onnx.export(self.model, tuple(values[n] for n in names), file, dynamic=open_ or None)
            graph = onnx.load(str(file)).graph
            session = session_of(file)
            cases = [({n: v for n, v in inputs.items() if n in names}, want) for inputs, want in self.cases]
            worst = max(gap(session.run(None, inputs), want) for inputs, want in cases[: 2 if open_ else 1])
            if worst > 1e-3 and worst > (own := self.own_noise()):
                raise AssertionError(f"deviates by {worst:.2g}, ONNX Runtime by {own:.2g} where an input changes by 1e-7")
            before = onnx.load(str(self.path)).graph
            kept = {i.name for i in before.initializer} & {i.name for i in graph.initializer}
            layers = {k: sum(n.op_type == k for n in graph.node) for k in ("LSTM", "GRU", "RNN")}
            same = [v.name for v in graph.output] == [v.name for v in before.output]
            names_ = f"names kept {len(kept)} of {len(before.initializer)}, outputs {'kept' if same else 'RENAMED'}"
            recurrent = str(layers) if any(layers.values()) else ""
            nodes = f"{len(before.node)} to {len(graph.node)} nodes"
            return f"{worst:.1e}, {nodes}, dynamic {open_}, {names_} {recurrent} by {found.checked_by}"

    def time(self):
        import gradlab as gl

        inputs, values = self.cases[0][0], self.tensors(0)
        with gl.no_grad():
            mine = other = 1e9
            for _ in range(5):
                mine = min(mine, least(lambda: self.compiled(**values)))
                other = min(other, least(lambda: self.session.run(None, inputs)))
            eager = least(lambda: self.model(**values), 0.1)
        return {"compiled_ms": mine, "eager_ms": eager, "runtime_ms": other, "ratio": mine / other}

    def gpu(self):
        import gradlab as gl

        if Path(self.path).stat().st_size > 3_000_000:
            return "too large for the emulated GPU"
        model = gl.onnx.load(self.path, device="cuda", constants=self.fixed).eval()
        with gl.no_grad():
            found = model(**{n: v.cuda() for n, v in self.tensors(0).items()})
        return f"{gap(found, self.cases[0][1]):.1e}"


def one(path, steps):
    """All steps of one file; a line of JSON."""
    file, found = File(path), {"file": Path(path).name}
    for step in STEPS:
        if step not in steps and step not in ("load",):
            continue
        try:
            found[step] = getattr(file, "session_" if step == "session" else step)()
        except Exception as error:
            found[step] = f"FAILS {type(error).__name__}: {str(error)[:300]}"
            if os.environ.get("TRACE"):
                traceback.print_exc()
            if step == "load":
                break
        print(json.dumps(found), flush=True)
    print(json.dumps(found), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.folder, options.steps.split(","))
        return
    table = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GRADLAB_NUM_THREADS": "1"}
    if "gpu" in options.steps.split(","):
        environment.setdefault("GRADLAB_CUDA", "emulated")
    for path in sorted(options.folder.glob("*.onnx")):
        if options.only not in path.name:
            continue
        command = [sys.executable, "-m", "bench.onnx_files", str(path), "--one", "--steps", options.steps]
        late = False
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=options.seconds, env=environment)
            out, err = done.stdout, done.stderr
        except subprocess.TimeoutExpired as error:
            out, err, late = (error.stdout or b"").decode(), "", True
        lines = [x for x in out.splitlines() if x.startswith("{")]
        row = json.loads(lines[-1]) if lines else {"file": path.name, "load": f"FAILS {err[-300:]}"}
        if late or (lines and done.returncode):
            missing = next((s for s in STEPS if s in options.steps.split(",") and s not in row), "?")
            row[missing] = f"FAILS {'took longer than ' + str(options.seconds) + ' s' if late else err[-300:]}"
        table.append(row)
        bad = {k: v for k, v in row.items() if isinstance(v, str) and v.startswith("FAILS")}
        ratio = f"{row['time']['ratio']:.2f}" if isinstance(row.get("time"), dict) else "-"
        print(f"{path.name:58} {'ok' if not bad else ''} {ratio} {bad or ''}"[:700], flush=True)
        if options.json:
            options.json.write_text(json.dumps(table, indent=1))
    for step in options.steps.split(","):
        rows = [r for r in table if step in r]
        good = [r for r in rows if not (isinstance(r[step], str) and r[step].startswith("FAILS"))]
        print(f"{step}: {len(good)} of {len(table)}")
    ratios = [r["time"]["ratio"] for r in table if isinstance(r.get("time"), dict)]
    if ratios:
        good = sum(r <= 1.2 for r in ratios)
        print(f"compiled beside ONNX Runtime, one thread: median {statistics.median(ratios):.2f}, at most 1.2 for {good} of {len(ratios)}")


if __name__ == "__main__":
    main()
