"""`gradlab explain module:function`: the graph of anybody's model as text, a picture, or a page, from the shell.

The function returns a tensor that was computed (a loss), or `(model, inputs)` or `(model, inputs, loss)` as `gradlab parity` takes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradlab import Tensor
from gradlab.cli.arguments import Parser
from gradlab.cli.failure import Failure
from gradlab.cli.parity import target
from gradlab.viz import explain, graph

FORMATS = ("svg", "html", "dot", "mermaid")


def configure(parser: Parser) -> None:
    """The command's options."""
    parser.add_argument("target", metavar="module:function", help="a function that gives a loss, (model, inputs) or (model, inputs, loss)")
    parser.add_argument("--svg", metavar="FILE", help="write a picture")
    parser.add_argument("--html", metavar="FILE", help="write a page with search, zoom and folding")
    parser.add_argument("--dot", metavar="FILE", help="write Graphviz's language")
    parser.add_argument("--mermaid", metavar="FILE", help="write a Mermaid flowchart")
    parser.add_argument("--depth", type=int, help="fold module calls deeper than this (default: none)")
    parser.add_argument("--repeats", action="store_true", help="show modules that are built alike in full each time")


def computed(name: str, example: Any) -> tuple[Any, Any]:
    """The tensor to explain, and the model if there is one."""
    if isinstance(example, Tensor):
        return example, None
    if not isinstance(example, tuple) or len(example) not in (2, 3):
        raise Failure(f"{name} returned {type(example).__name__}; it has to return a loss, (model, inputs) or (model, inputs, loss)")
    model, inputs = example[:2]
    result = model(*(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
    if len(example) == 3:
        result = example[2](result)
    if not isinstance(result, Tensor):
        raise Failure(f"{name}: the model returned {type(result).__name__}, not a tensor; give a loss as third value that makes one of it")
    return result, model if hasattr(model, "named_parameters") else None


def run(options: argparse.Namespace) -> int:
    """Prints the tree, or writes the files asked for."""
    if options.depth is not None and options.depth < 0:
        raise Failure(f"--depth is 0 or more, not {options.depth}")
    tensor, model = computed(options.target, target(options.target))
    try:
        picture = graph(tensor, model=model, depth=options.depth, repeats=True if options.repeats else None)
    except RuntimeError as error:
        raise Failure(str(error)) from None
    files = {name: getattr(options, name) for name in FORMATS if getattr(options, name)}
    for name, path in files.items():
        try:
            Path(path).write_text(getattr(picture, f"to_{name}")(), encoding="utf-8")
        except OSError as error:
            raise Failure(f"--{name}: {path} cannot be written: {error.strerror}") from None
        print(f"wrote {path}")
    if not files:
        print(explain(tensor, model=model, depth=options.depth, repeats=options.repeats))
    return 0
