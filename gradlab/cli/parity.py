"""`gradlab parity module:function`: the device-parity check of anybody's model, from the shell.

The function returns `(model, inputs)` or `(model, inputs, loss)`: an nn.Module or a function of tensors, its arguments, and what makes
a scalar of its result.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from gradlab.cli.arguments import Parser
from gradlab.cli.failure import Failure
from gradlab.testing.parity import parity


def configure(parser: Parser) -> None:
    """The command's options."""
    parser.add_argument("target", metavar="module:function", help="a function that returns (model, inputs) or (model, inputs, loss)")
    parser.add_argument("--device", default="cuda", help="the device to compare with the CPU (default: cuda)")
    parser.add_argument("--steps", type=int, default=3, help="training steps (default: 3)")
    parser.add_argument("--emulated", action="store_true", help="compare with the emulated GPU: no GPU needed, a C++ compiler is")


def target(name: str) -> Any:
    """What the function returned. Failure, in one line, for a name that leads nowhere."""
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise Failure(f"{name!r} is not of the form module:function, for example mymodel:example")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.split(".")[0] == error.name.split(".")[0]:
            raise Failure(f"no module named {module!r} here or installed") from None
        raise
    try:
        return getattr(found, function)()
    except AttributeError:
        if hasattr(found, function):
            raise
        names = ", ".join(n for n, v in vars(found).items() if callable(v) and not n.startswith("_"))
        raise Failure(f"module {module} has no function {function!r}; it has {names or 'none'}") from None


def run(options: argparse.Namespace) -> int:
    """Prints the report; 0 if everything agrees, else 1."""
    if options.emulated:
        os.environ["GRADLAB_CUDA"] = "emulated"
    example = target(options.target)
    if not isinstance(example, tuple) or len(example) not in (2, 3):
        raise Failure(f"{options.target} returned {type(example).__name__}; it has to return (model, inputs) or (model, inputs, loss)")
    try:
        loss = example[2] if len(example) == 3 else None
        report = parity(example[0], example[1], loss, steps=options.steps, device=options.device)
    except RuntimeError as error:
        if "gradlab-engine[cuda" in str(error) or "no device" in str(error):
            raise Failure(str(error)) from None
        raise
    print(report)
    return 0 if report else 1
