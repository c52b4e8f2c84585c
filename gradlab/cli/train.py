"""`gradlab train KIND …`: trains a model of one's own data, in a run folder of its own, from the start or from where a run was stopped."""

from __future__ import annotations

import argparse
import os
import shutil
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from gradlab import data as data_room
from gradlab.backends.threads import set_blas_threads
from gradlab.cli import processes
from gradlab.cli.arguments import is_address
from gradlab.cli.devices import best_device, usable_device
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.kinds import kind_named, plain
from gradlab.cli.run_folder import new_folder
from gradlab.cli.targets import REFUSALS, users_code
from gradlab.data import DataError
from gradlab.runs import RunError, Settings, TrainedRun, find_rate, resume, search, start
from gradlab.runs.folder import Files, beaten
from gradlab.runs.searching import PLAN, go_on
from gradlab.runs.task import literal
from gradlab.runs.training import saved_settings
from gradlab.train import Diverged

BEST = Path("checkpoints", "best.safetensors")
say = partial(print, flush=True)  # also into a pipe or a file as it comes


def run(options: argparse.Namespace) -> int:
    """Train, say what was reached; an exit code."""
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        set_blas_threads(1)  # the models are small; see gradlab/utils/blas.py
    own = options.kind is not None and plain(options.kind) == "function"
    with users_code(options.kind or str(options.resume), REFUSALS if own else ()), processes.joined(options):
        found = _found(options)
        if isinstance(found, int):
            return found
        said = found.description
        options.result = {"folder": found.folder, "score": said["score"], **said["result"], "baselines": said["baselines"],
                          "report": found.folder / "report.html"}  # fmt: skip
        return _report(found)


def _found(options: argparse.Namespace) -> TrainedRun | int:
    """The run, started or gone on with, or an exit code; a Failure for what is wrong with it."""
    try:
        if options.find_lr:
            return _rate_found(options)
        return _resumed(options) if options.resume is not None else _started(options)
    except (DataError, RunError) as error:
        raise Failure(str(error), FAILED) from error
    except Diverged as error:
        raise Failure(f"{error} (--lr){_before(options)}", FAILED) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{error.filename or 'cannot write'}: {error.strerror or error}{_kept(options)}", FAILED) from error


def _kept(options: argparse.Namespace) -> str:
    """Where a run was left that can be gone on with."""
    folder = options.resume or options.out
    return f"; go on with: gradlab train --resume {quote(str(folder))}" if folder is not None and _begun(folder) else ""


def _before(options: argparse.Namespace) -> str:
    """Where the epochs were left that were whole before the loss was no number."""
    folder = options.resume or options.out
    return f"; the best weights before that are in {folder / BEST}" if folder is not None and _begun(folder) else ""


def _begun(folder: Path, least: int = 0) -> bool:
    """Whether there is something to go on from: a search, or a checkpoint after so many epochs at least."""
    saved = [path.name.split("-")[1] for path in (folder / "checkpoints").glob("checkpoint-*.safetensors")]
    return (folder / PLAN).exists() or any(int(epoch) >= least for epoch in saved if epoch.isdecimal())


def _asked(options: argparse.Namespace) -> tuple[Any, Settings]:
    """The data, and the settings as far as they were given."""
    kind = kind_named(options.kind)
    source, data = _here(kind.source(options), options), kind.data(options)
    return source, Settings(
        epochs=options.epochs, batch_size=options.batch_size, learning_rate=options.lr, seed=options.seed or 0,
        device=usable_device(options.device or best_device()), compile=options.compile, amp=options.amp, early_stop=options.early_stop,
        data=data,
    )  # fmt: skip


def _rate_found(options: argparse.Namespace) -> int:
    """The range test, of which a picture and the numbers are left."""
    source, settings = _asked(options)
    folder = new_folder(options.out, f"{plain(options.kind)}-rate")
    try:
        found = find_rate(source, folder, settings, say, plain(options.kind))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    options.result = {"suggestion": found.suggestion, "rates": found.rates, "picture": folder / "learning-rate.svg"}
    print(f"tried {len(found.rates)} rates from {found.rates[0]:.3g} to {found.rates[-1]:.3g}; picture: {folder / 'learning-rate.svg'}")
    if found.suggestion is None:
        print("the loss did not fall at any of them: look at the data, or give the model more")
    else:
        print(f"train with: --lr {found.suggestion:.2g}")
    return 0


def _started(options: argparse.Namespace) -> TrainedRun:
    source, settings = _asked(options)
    folder = new_folder(options.out, plain(options.kind))
    processes.tell(folder)
    try:
        if options.search is not None:
            return search(source, folder, settings, options.search, say, plain(options.kind))
        return start(source, folder, settings, say, plain(options.kind), profile=options.profile)
    except BaseException as error:
        if not _begun(folder, isinstance(error, Diverged)):
            shutil.rmtree(folder, ignore_errors=True)  # it was made for this run, and holds nothing to go on from
        elif options.out is None and isinstance(error, (OSError, Diverged)):
            options.out = folder  # for the message
        raise


def _here(source: Any, options: argparse.Namespace) -> Any:
    """The data; of an address the file that is fetched from there."""
    if not isinstance(source, str) or not is_address(source):
        return source
    path = data_room.download(source, options.data_dir)
    say(f"{source} is kept as {path}")
    return str(path)


def _resumed(options: argparse.Namespace) -> TrainedRun:
    if (options.resume / PLAN).exists():
        if options.epochs is not None or options.device is not None or options.profile:
            raise Failure("--resume: a search that was interrupted goes on as it was begun; leave other options out")
        return go_on(options.resume, say)
    description = Files(options.resume).read()
    if options.kind is not None and plain(options.kind) != description["kind"]:
        kinds = f"a run of {description['kind']}, not of {options.kind}"
        raise Failure(f"--resume: {options.resume} is {kinds}; leave the kind out: the folder says it")
    device = usable_device(options.device or saved_settings(Files(options.resume), description).device)
    return resume(options.resume, options.epochs, device, say, profile=options.profile)


def _report(trained: TrainedRun) -> int:
    description = trained.description
    score, result = description["score"], description["result"]
    if result["stopped"].startswith("signal"):
        print(f"\nstopped after {result['epochs']} epochs; resume with: gradlab train --resume {quote(str(trained.folder))}")
        return 128 + int(result["stopped"].split()[1])
    others = ", ".join(f"{name} {values[score]:.4g}" for name, values in description["baselines"].items() if score in values)
    beside = f" ({others})" if others else ""
    part = "validation" if trained.task.validated else "training"
    print(f"{score.replace('_', ' ')} {result['best']:.4g} on the {part} part{beside} in {result['seconds']:g} s")
    if not beaten(description):
        print("this does not beat the simpler models: use one of those, or find more or better data")
    usage = trained.task.usage(str(trained.folder))[0].splitlines()[0]
    usage = usage if usage.startswith("gradlab ") else f"gl.load_run({literal(str(trained.folder))}).model"
    print(f"report: {trained.folder / 'report.html'}; use it: {usage}")
    return 0
