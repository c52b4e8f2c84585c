"""Whole trainings in float32, under autocast in bfloat16, and in float16 with a GradScaler, eager and compiled: is the result the same?

    OPENBLAS_NUM_THREADS=1 python bench/mixed_precision.py [names] [--seeds 3] [--device cuda] [--smoke]
    OPENBLAS_NUM_THREADS=1 python bench/mixed_precision.py --steps gpt resnet cnn mlp lstm

The digits' convolutional network, GPT on characters, ResNet-20; recipes are in tests/model_recipes.py. Seeds change the weights that a
training begins with; the spread of float32 over them is the noise. Processor time of a step, with tracing, stands beside.

--steps: of the workloads of `python -m bench`, compiled, a step under bfloat16 beside the step in float32; least processor times, in turns.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import numpy as np
import workloads
from model_recipes import RECIPES, Mixed, Recipe

import gradlab as gl

NAMES = ("digits cnn", "gpt", "resnet20")
DTYPES = ("float32", "bfloat16", "float16")


def trained(recipe: Recipe, dtype: str, compiled: bool, seed: int, steps: int, device: str = "cpu") -> tuple[float, float, float]:
    """The result, the mean of the last ten losses, and milliseconds of a step."""
    with gl.random.fork_rng():
        gl.manual_seed(seed)
        training = Mixed(recipe, gl, recipe.model(gl.models), dtype, device)
        start = time.process_time()
        losses = training.run(steps, gl.compile(training.step) if compiled else None)
        taken = (time.process_time() - start) / steps * 1e3
    last = float(np.mean([loss.item() for loss in losses[-10:]]))
    training.model.to("cpu")
    return training.result(), last, taken


def under_bfloat16(function):
    def lowered(*args):
        with gl.autocast("cpu", gl.bfloat16):
            return function(*args)

    return gl.compile(lowered)


def compared(name: str, rounds: int = 15) -> None:
    """A compiled step in float32 and one under bfloat16."""
    steps = [workloads.prepared(name, gl, wrap)[0] for wrap in (gl.compile, under_bfloat16)]
    times = [float("inf")] * 2
    for number in range(rounds + 3):
        for i, step in enumerate(steps):
            start = time.process_time()
            step()
            times[i] = min(times[i], time.process_time() - start) if number >= 3 else times[i]
    print(f"| {name} | {times[0] * 1e3:.2f} | {times[1] * 1e3:.2f} | {times[1] / times[0]:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--eager-seeds", type=int, default=1, help="of eager trainings, which are slower")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--smoke", action="store_true", help="three steps each: to see that it runs")
    parser.add_argument("--steps", action="store_true", help="compiled steps of workloads alone")
    options = parser.parse_args()
    gl.set_num_threads(1)
    if options.steps:
        print("| workload | float32, ms | bfloat16, ms | ratio |\n|---|---|---|---|")
        for name in options.names:
            compared(name)
        return
    print("| model | | dtype | results | mean | last losses | ms a step |\n|---|---|---|---|---|---|---|")
    for name in options.names:
        recipe = RECIPES[name]
        for compiled in (True, False):
            for dtype in DTYPES:
                seeds = 1 if options.smoke else options.seeds if compiled else options.eager_seeds
                steps = 3 if options.smoke else recipe.steps
                found = [trained(recipe, dtype, compiled, seed, steps, options.device) for seed in range(seeds)]
                results = ", ".join(f"{result:.4f}" for result, _, _ in found)
                last, ms = (np.mean([f[i] for f in found]) for i in (1, 2))
                way, mean = "compiled" if compiled else "eager", np.mean([f[0] for f in found])
                print(f"| {name} | {way} | {dtype} | {results} | {mean:.4f} | {last:.4f} | {ms:.1f} |", flush=True)


if __name__ == "__main__":
    main()
