"""From a cold cache to the first trained step of `gradlab train digits --device cuda`: what compiling the kernels of that step takes.

    python bench/cold_start.py [--smoke] [--arch 90] [--model cnn]

No GPU is needed. The step runs on the emulated GPU, which notes the programs that it asks for; NVRTC then compiles them, one after the
other, as CuPy would before the first step with an empty cache of its own. Every later run finds them there. Needs a C++ compiler and the
extra `kernels`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np

os.environ["GRADLAB_CUDA"] = "emulated"

import gradlab as gl
from gradlab.backends.cuda.catalogue import Program
from gradlab.backends.cuda.loading import load
from gradlab.data import digits
from gradlab.models.digits import DigitsCNN, DigitsMLP
from gradlab.testing import kernels, nvrtc

MODELS = {"cnn": DigitsCNN, "mlp": DigitsMLP}


def programs_of_a_step(model: str) -> list[Program]:
    """The programs that one training step of the digits compiles, in its order."""
    driver = load().driver
    compile_for_emulator, found = driver.compile, []

    def noting(source, names, label):
        found.append(Program(label, source, list(names), 0))
        return compile_for_emulator(source, names, label)

    driver.compile = noting
    pixels, classes = (x[:64] for x in digits())
    network = MODELS[model]().to("cuda")
    optimizer = gl.optim.AdamW(network.parameters())
    images, labels = (gl.from_numpy(x).to("cuda") for x in ((pixels[:, np.newaxis] / 16).astype(np.float32), classes))
    optimizer.zero_grad()
    loss = gl.nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    loss.item()
    driver.compile = compile_for_emulator
    return found


def main() -> int:
    """Prints a line for each program, slowest first, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, default=90, help="the GPU's architecture: 90 is sm_90")
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--smoke", action="store_true", help="three programs only; says nothing")
    options = parser.parse_args()
    try:
        compiler = nvrtc.load()
    except nvrtc.NvrtcMissing as error:
        print(f"skipped: {error}")
        return 0
    found = programs_of_a_step(options.model)
    if options.smoke:
        found = found[:3]
    outcomes = []
    for program in found:
        before = time.process_time()
        outcomes.append((kernels.check(program, options.arch, compiler), time.process_time() - before))
    print(f"first step of digits ({options.model}) on sm_{options.arch}, NVRTC {compiler.version[0]}.{compiler.version[1]}")
    print(f"{'program':60}{'kernels':>8}{'seconds':>9}{'CPU':>7}")
    for outcome, cpu in sorted(outcomes, key=lambda pair: -pair[1]):
        print(f"{outcome.program.names[0].removeprefix('gradlab::')[:58]:60}{len(outcome.usage):8d}{outcome.seconds:9.2f}{cpu:7.2f}")
    wall, cpu = sum(outcome.seconds for outcome, _ in outcomes), sum(cpu for _, cpu in outcomes)
    print(f"{len(found)} programs, {sum(len(o.usage) for o, _ in outcomes)} kernels: {wall:.1f} s, {cpu:.1f} s of CPU time")
    return int(any(outcome.problem for outcome, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
