"""The models of gradlab.models, each trained as its test trains it: the result, and the time of a step beside PyTorch's.

    OPENBLAS_NUM_THREADS=1 python bench/models.py [names] [--smoke]

One thread, processor time, medians; eager, PyTorch and compiled one after the other, on the same batches from the same weights. The
result is that of the whole training, compiled. "In NumPy" is what no machine code does. Recipes are in tests/model_recipes.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import in_pytorch
from model_recipes import RECIPES, Recipe, Training

import gradlab as gl

TIMED = 40  # steps, the first four left out


def timed(training: Training, steps: int, compiled: bool = False) -> tuple[float, object]:
    """Milliseconds of a step, and the compiled step."""
    step = gl.compile(training.step) if compiled else training.step
    taken = []

    def one(*batch: object) -> object:
        start = time.process_time()
        loss = step(*batch)
        taken.append(time.process_time() - start)
        return loss

    training.run(steps, one)
    return statistics.median(taken[min(4, steps - 1) :]) * 1e3, step


def row(name: str, recipe: Recipe, smoke: bool) -> str:
    def made() -> object:
        gl.manual_seed(0)
        return recipe.model(gl.models)

    few = 5 if smoke else TIMED
    eager, _ = timed(Training(recipe, gl, made()), few)
    theirs = None
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        twin = recipe.model(in_pytorch.models())
        in_pytorch.load(twin, made())
        theirs, _ = timed(Training(recipe, torch, twin), few)
    training = Training(recipe, gl, made())
    compiled, step = timed(training, few if smoke else recipe.steps, True)
    left = ", ".join(step.stats().numpy) or "–"
    times = [eager, compiled, *([theirs] if theirs else [])]
    ratio = f" | {compiled / theirs:.2f}" if theirs else ""
    seconds = recipe.steps * compiled / 1e3
    cells = " | ".join(f"{t:.2f}" for t in times) + ratio
    return f"| {name} | {recipe.data} | {recipe.what} {training.result():.3f} | {recipe.steps} | {seconds:.1f} | {cells} | {left} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(RECIPES))
    parser.add_argument("--smoke", action="store_true", help="five steps each: to see that it runs")
    options = parser.parse_args()
    gl.set_num_threads(1)
    theirs = " | PyTorch ms | compiled / PyTorch" if importlib.util.find_spec("torch") else ""
    print(f"| model | data | result | steps | seconds compiled | eager ms | compiled ms{theirs} | in NumPy |")
    print("|---" * (10 if theirs else 8) + "|")
    for name in options.names:
        print(row(name, RECIPES[name], options.smoke), flush=True)


if __name__ == "__main__":
    main()
