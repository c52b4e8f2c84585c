"""`gradlab export RUN --onnx|--glp|--c|--web`: a run's model as a file for elsewhere, checked, with what its numbers mean beside it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.use import asked, loaded
from gradlab.progress import waiting
from gradlab.runs.exporting import FORMS, ExportedRun, ExportError, export_run


def run(options: argparse.Namespace) -> int:
    """Write it; say what it takes and gives, and how it was checked."""
    trained = loaded(options.run)
    path = options.out or Path(options.run, f"model{FORMS[options.form]}")
    try:
        with waiting(f"writing and checking {path.name}"):
            done = asked(lambda: export_run(trained, path, options.form))
    except (ExportError, ImportError) as error:
        raise Failure(f"{options.run} cannot be exported: {error}", FAILED) from error
    options.result = asdict(done)
    _say(done)
    return 0


def _say(done: ExportedRun) -> None:
    for file in done.files:
        print(f"{file}  {file.stat().st_size:,} bytes")
    for letter, tensors in (("takes", done.inputs), ("gives", done.outputs)):
        for name, shape in tensors.items():
            print(f"{letter} {name} [{', '.join(map(str, shape))}]: {done.meaning[name]}")
    print(f"checked by {done.checked}")
    if done.command:
        print(done.command)
