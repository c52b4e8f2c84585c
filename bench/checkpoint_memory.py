"""What `utils.checkpoint` saves: peak memory and time of a training step with and without, beside PyTorch's.

    python bench/checkpoint_memory.py [--smoke]

Every residual block (ResNet-20, batch 64) or transformer block (12 layers) is checkpointed. Memory as in memory.py; gradients are compared.
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
import time
from pathlib import Path
from typing import Any

import numpy as np
from memory import ROOT, models, resident

TITLES = {"resnet20": "ResNet-20, batch 64", "gpt12": "GPT of 12 layers, width 128, 8 × 128 tokens"}


def network(engine: str, name: str, checkpointed: bool) -> Any:
    """The model, its blocks under checkpoint or not."""
    lib, nn = importlib.import_module(engine), importlib.import_module(f"{engine}.nn")
    checkpoint = importlib.import_module(f"{engine}.utils.checkpoint").checkpoint
    lib.manual_seed(0)

    class Checkpointed(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    if name == "resnet20":
        net = models(engine, "resnet").resnet20()
        if checkpointed:
            for stage in ("layer1", "layer2", "layer3"):
                setattr(net, stage, nn.Sequential(*[Checkpointed(block) for block in getattr(net, stage)]))
    else:
        gpt = models(engine, "gpt")
        net = gpt.GPT(gpt.GPTConfig(n_layer=12))
        if checkpointed:
            net.h = nn.ModuleList([Checkpointed(block) for block in net.h])
    return net


def step(engine: str, net: Any, name: str, small: bool) -> float:
    """Forward and backward; the norm of the gradient."""
    lib, functional = importlib.import_module(engine), importlib.import_module(f"{engine}.nn.functional")
    rng = np.random.default_rng(0)
    if name == "resnet20":
        x = lib.tensor(rng.normal(size=(2 if small else 64, 3, 32, 32)).astype("f4"))
        y = lib.tensor(rng.integers(0, 10, x.shape[0]))
    else:
        tokens = lib.tensor(rng.integers(0, 65, (1 if small else 8, 129)))
        x, y = tokens[:, :-1], tokens[:, 1:].reshape(-1)
    logits = net(x)
    functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y).backward()
    return float(sum((p.grad**2).sum() for p in net.parameters())) ** 0.5


def measure(engine: str, name: str, checkpointed: bool, small: bool) -> dict[str, float]:
    """In this process: the rise of resident memory in a step (gradients made before), seconds, the gradient's norm."""
    if engine == "torch":
        importlib.import_module("torch").set_num_threads(1)
    net = network(engine, name, checkpointed)
    step(engine, net, name, True)  # what is set up at the first step is not the step's
    net.zero_grad(set_to_none=False)
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    start = time.perf_counter()
    norm = step(engine, net, name, small)
    return {"rise": resident("VmHWM") - before, "seconds": time.perf_counter() - start, "norm": norm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny batches: to see that it runs")
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "WORKLOAD", "CHECKPOINTED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        engine, name, checkpointed = options.measure
        print(json.dumps(measure(engine, name, checkpointed == "yes", options.smoke)))
        return
    engines = ["gradlab", *(["torch"] if importlib.util.find_spec("torch") else [])]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    print("| step | engine | plain, MB | checkpointed, MB | saved | time |\n|---|---|---|---|---|---|")
    for name, title in TITLES.items():
        for engine in engines:
            plain, less = (
                json.loads(
                    subprocess.run(
                        [sys.executable, __file__, "--measure", engine, name, chosen, *(["--smoke"] if options.smoke else [])],
                        env=environment, check=True, capture_output=True, text=True,
                    ).stdout
                )
                for chosen in ("no", "yes")
            )  # fmt: skip
            if not np.isclose(plain["norm"], less["norm"], rtol=1e-4):
                raise SystemExit(f"{engine}, {name}: the gradient's norm is {plain['norm']}, and {less['norm']} with checkpoint")
            saved, longer = 1 - less["rise"] / plain["rise"], less["seconds"] / plain["seconds"]
            cells = (title, engine, f"{plain['rise'] / 1e6:.1f}", f"{less['rise'] / 1e6:.1f}", f"**{saved:.0%}**", f"× {longer:.2f}")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
