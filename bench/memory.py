"""Peak memory of one training step beside PyTorch's: ResNet-20 and a GPT block stack, forward, backward and optimizer.

    python bench/memory.py [--smoke]

Each measurement is a process of its own. Reported is how far the process's resident memory rose above what it held with model, batch and
optimizer made (and after a step of another, tiny one), at its highest during three steps (VmHWM, reset by /proc/self/clear_refs: Linux
only). PyTorch runs the same model files
with `gradlab` replaced by `torch`; without it, gradlab is measured alone.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import in_pytorch
import numpy as np

from repository import ROOT

WORKLOADS = {
    "resnet20": "ResNet-20, batch 64, SGD with momentum",
    "gpt": "GPT of 4 layers, width 128, 16 × 128 tokens, AdamW",
    "gpt12": "GPT of 12 layers, width 128, 8 × 128 tokens, AdamW",
}


def models(engine: str, name: str) -> ModuleType:
    """A model file of gradlab, for gradlab or for PyTorch: the names are the same."""
    return importlib.import_module(f"gradlab.models.{name}") if engine == "gradlab" else in_pytorch.family(name)


def resident(key: str) -> int:
    """VmRSS or VmHWM in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def workload(engine: str, name: str, small: bool) -> Any:
    """A function that makes one step and returns the loss."""
    lib = importlib.import_module(engine)
    optim, functional = importlib.import_module(f"{engine}.optim"), importlib.import_module(f"{engine}.nn.functional")
    rng = np.random.default_rng(0)
    if name == "resnet20":
        net = models(engine, "resnet").resnet20()
        x = lib.tensor(rng.normal(size=(4 if small else 64, 3, 32, 32)).astype("f4"))
        y = lib.tensor(rng.integers(0, 10, x.shape[0]))
        optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    else:
        gpt = models(engine, "gpt")
        net = gpt.GPT(gpt.GPTConfig(n_layer=12 if name == "gpt12" else 4))
        tokens = lib.tensor(rng.integers(0, 65, (2 if small else 8 if name == "gpt12" else 16, 129)))
        x, y = tokens[:, :-1], tokens[:, 1:].reshape(-1)
        optimizer = optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> float:
        optimizer.zero_grad()
        logits = net(x)
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def measure(engine: str, name: str, small: bool) -> dict[str, float]:
    """In this process: the rise of resident memory in three steps, in bytes, and the first and last loss."""
    if engine == "torch":
        importlib.import_module("torch").set_num_threads(1)
    workload(engine, name, True)()  # what a library sets up at its first step is not the step's
    step = workload(engine, name, small)
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    losses = [step() for _ in range(1 if small else 3)]
    return {"rise": resident("VmHWM") - before, "whole": resident("VmHWM"), "first": losses[0], "last": losses[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny batches, one step: to see that it runs")
    parser.add_argument("--measure", nargs=2, metavar=("ENGINE", "WORKLOAD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure, options.smoke)))
        return
    engines = ["gradlab", *(["torch"] if importlib.util.find_spec("torch") else [])]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    print("| step | " + " | ".join(f"{e}, MB" for e in engines) + (" | ratio |" if len(engines) > 1 else " |"))
    print("|---|" + "---|" * (len(engines) + (len(engines) > 1)))
    for name, title in WORKLOADS.items():
        found = []
        for engine in engines:
            command = [sys.executable, __file__, "--measure", engine, name, *(["--smoke"] if options.smoke else [])]
            found.append(json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout))
        cells = [f"{f['rise'] / 1e6:.1f}" for f in found]
        ratio = f" | **{found[0]['rise'] / found[1]['rise']:.2f}** |" if len(found) > 1 else " |"
        print(f"| {title} | " + " | ".join(cells) + ratio, flush=True)


if __name__ == "__main__":
    main()
