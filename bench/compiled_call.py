"""What a call of a compiled function costs beside the work itself, in µs: the best of many rounds.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python bench/compiled_call.py [--stub]

--stub: on a GPU that does nothing at once (host_stub.py), so that what the host does for a launch is all there is.

call     the whole of it
guards   the test of everything that the trace read, and how many conditions that is
run      arguments, hyper-parameters, gradients and results, with the machine code
code     the machine code alone: the arithmetic of these small programs, and what lies between their tasks
eager    the same function not compiled
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import workloads

import gradlab as gl
from gradlab import nn, optim
from gradlab.autograd.mode import current

ROUNDS, CALLS = 40, 1000


def best(run: Callable[..., Any], *args: Any, calls: int = CALLS) -> float:
    """Microseconds of one call with these arguments."""
    for _ in range(calls):
        run(*args)
    rounds = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(calls):
            run(*args)
        rounds.append(time.thread_time() - start)
    return min(rounds) / calls * 1e6


def functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What is called, with its arguments."""
    device = "cuda" if "--stub" in sys.argv else "cpu"
    x, y = (gl.from_numpy(a).to(device) for a in workloads.data("tiny"))
    model = workloads.network("tiny", nn, nn.functional, gl.cat).to(device)
    other = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    adam = optim.Adam(other.parameters())

    def step(x: Any, y: Any) -> Any:
        loss = nn.functional.mse_loss(other(x), y)
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss, other[0].weight.norm()

    return {
        "x * 2 + 1": (lambda x: x * 2 + 1, (x,)),
        "two results": (lambda x: {"a": x + 1, "b": x.tanh()}, (x,)),
        "forward of tiny, in the graph": (lambda x: model(x), (x,)),
        "the step of tiny": (workloads.step_of("tiny", model, nn.functional, optim, x, y), (x, y)),
        "an Adam step, two results": (step, (x, y)),
    }


def main() -> None:
    if "--stub" in sys.argv:
        importlib.import_module("host_stub").install()
    print(f"{'':32}{'call':>8}{'guards':>8}{'of':>5}{'run':>8}{'code':>8}{'eager':>9}")
    for name, (function, args) in functions().items():
        eager = best(function, *args, calls=100)
        compiled = gl.compile(function)
        call = best(compiled, *args)
        program, mode = compiled.programs[0], current()
        executable = program.runner.executable
        guards = best(program.guard, args, {}, mode)
        run = best(program.run, args, {})
        whole = getattr(executable, "_whole", None)
        code = f"{best(executable._step, executable._whole_at):8.2f}" if whole is not None else f"{'-':>8}"
        print(f"{name:32}{call:8.2f}{guards:8.2f}{len(program.guards.conditions):5d}{run:8.2f}{code}{eager:9.1f}", flush=True)


if __name__ == "__main__":
    main()
