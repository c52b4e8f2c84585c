"""`gradlab explain module:function`: the graph of anybody's model as text, a picture, or a page, from the shell.

The function returns a tensor that was computed (a loss), or `(model, inputs)` or `(model, inputs, loss)` as `gradlab parity` takes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradlab import Tensor
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.targets import returned_by, users_code
from gradlab.viz import explain, graph

FORMATS = ("svg", "html", "dot", "mermaid")


def computed(name: str, example: Any) -> tuple[Any, Any]:
    """The tensor to explain, and the model if there is one."""
    if isinstance(example, Tensor):
        return example, None
    if not isinstance(example, tuple) or len(example) not in (2, 3):
        kind = type(example).__name__
        raise Failure(f"{name} returned {kind}; it has to return a loss, (model, inputs) or (model, inputs, loss)", FAILED)
    model, inputs = example[:2]
    if not callable(model) or (len(example) == 3 and not callable(example[2])):
        raise Failure(f"{name} returned a {type(model).__name__} as model{' and a loss' * (len(example) == 3)}; they are called", FAILED)
    with users_code(name):
        result = model(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
        if len(example) == 3:
            result = example[2](result)
    if not isinstance(result, Tensor):
        kind = type(result).__name__
        raise Failure(f"{name}: the model returned {kind}, not a tensor; give a loss as third value that makes one of it", FAILED)
    return result, model if hasattr(model, "named_parameters") else None


def run(options: argparse.Namespace) -> int:
    """Prints the tree, or writes the files asked for."""
    tensor, model = computed(options.target, returned_by(options.target))
    try:
        picture = graph(tensor, model=model, depth=options.depth, repeats=True if options.repeats else None)
    except RuntimeError as error:
        raise Failure(str(error), FAILED) from None
    files = {name: getattr(options, name) for name in FORMATS if getattr(options, name)}
    for name, path in files.items():
        try:
            Path(path).write_text(getattr(picture, f"to_{name}")(), encoding="utf-8")
        except OSError as error:
            raise Failure(f"--{name}: {path} cannot be written: {error.strerror}", FAILED) from None
        print(f"wrote {path}")
    found = explain(tensor, model=model, depth=options.depth, repeats=options.repeats)
    counts = {name: getattr(found, name) for name in ("operations", "parameters", "kept_bytes", "unreached")}
    options.result = {**counts, "text": str(found), "files": files}
    if not files:
        print(found)
    return 0
