"""`gradlab sample RUN`: a trained language model writes on."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.use import loaded


def run(options: argparse.Namespace) -> int:
    """The prompt and what comes after it, as it is written."""
    trained = loaded(options.run)
    task: Any = trained.task
    if task.kind != "text":
        raise Failure(f"{options.run} is a run of kind {task.kind}; only runs of texts write", FAILED)
    for note in task.begun(options.prompt)[1]:
        print(f"note: {note}", file=sys.stderr)
    print(options.prompt, end="", flush=True)
    options.result = {"prompt": options.prompt, "text": options.prompt}
    how = {"temperature": options.temperature, "top_k": options.top_k, "seed": options.seed}
    for piece in task.sample(trained.model, options.prompt, options.length, **how):
        options.result["text"] += piece
        print(piece, end="", flush=True)
    print()
    return 0
