"""`gradlab parity module:function`: the device-parity check of anybody's model, from the shell.

The function returns `(model, inputs)` or `(model, inputs, loss)`: an nn.Module or a function of tensors, its arguments, and what makes
a scalar of its result.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from gradlab.backends.native import ready
from gradlab.cli.devices import usable_device
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.targets import returned_by, users_code
from gradlab.testing.parity import NATIVE, parity


def run(options: argparse.Namespace) -> int:
    """Prints the report; 0 if everything agrees, else 1."""
    if options.emulated:
        os.environ["GRADLAB_CUDA"] = "emulated"
    device = options.device if options.device == NATIVE else usable_device(options.device)
    if device == NATIVE and not ready.state().ready:
        raise Failure(f"the CPU's kernels are not ready: {ready.state().why}", FAILED)
    example = returned_by(options.target)
    if not isinstance(example, tuple) or len(example) not in (2, 3):
        kind = type(example).__name__
        raise Failure(f"{options.target} returned {kind}; it has to return (model, inputs) or (model, inputs, loss)", FAILED)
    with users_code(options.target):
        report = parity(example[0], example[1], example[2] if len(example) == 3 else None, steps=options.steps, device=device)
    options.result = {"agrees": report.ok, **asdict(report)}
    print(report)
    return 0 if report else 1
