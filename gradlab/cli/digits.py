"""`gradlab train DATASET`: trains a model, in a run folder of its own, from the start or from where a run was stopped."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path

from gradlab._version import __version__
from gradlab.cli.checkpoint import checkpoint_of, read_checkpoint, restore
from gradlab.cli.config import Config, requested_config, resumed_config, saved_config
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.run_folder import EpochResult, RunFolder, existing_folder, new_folder
from gradlab.cli.trainer import WEIGHT_DECAY, Trainer
from gradlab.data import DataError
from gradlab.train.divergence import Diverged
from gradlab.train.interruption import interruption


def run(options: argparse.Namespace) -> int:
    options.dataset = options.kind
    trainer, folder = resumed(options) if options.resume is not None else started(options)
    return train(trainer, folder)


def started(options: argparse.Namespace) -> tuple[Trainer, RunFolder]:
    """A new run. Its folder is made last, so that nothing is left behind when something is wrong before."""
    config = requested_config(options)
    trainer = make_trainer(config)
    folder = new_folder(options.out, f"{config.dataset}-{config.model}")
    try:
        folder.write_config(description(trainer))
        # The first checkpoint holds the model as it was made: it shows now, not after an epoch, that saving works.
        folder.save(folder.checkpoint, checkpoint_of(trainer))
    except Failure:
        folder.discard()
        raise
    return trainer, folder


def resumed(options: argparse.Namespace) -> tuple[Trainer, RunFolder]:
    if options.out is not None:
        raise Failure("--out: a resumed run goes on in its own folder; leave --out or --resume away")
    folder, checkpoint = existing_folder(options.resume)
    config, content = read_checkpoint(checkpoint)
    noted = saved_config(folder.read_config())
    if noted is not None and {**noted.saved(), "device": ""} != {**config.saved(), "device": ""}:
        raise Failure(
            f"{folder.config} was changed since the run was started: it says {json.dumps(noted.saved())}, the "
            f"checkpoint {json.dumps(config.saved())}; put it back, or start a new run"
        )
    if config.device != (options.device or config.device):
        print(f"note: the run was started on {config.device}; on another device the last bits may differ")
    trainer = make_trainer(resumed_config(config, options))
    restore(trainer, checkpoint, content)
    folder.write_config(description(trainer))
    return trainer, folder


def make_trainer(config: Config) -> Trainer:
    try:
        training, held_out = config.task.load()
    except DataError as error:
        raise Failure(str(error), FAILED) from error
    return Trainer(config, training, held_out)


def description(trainer: Trainer) -> dict[str, str | int | float]:
    """What config.json says: the settings, and what else someone would need to know to repeat the run."""
    return {
        **trainer.config.saved(),
        "optimizer": "AdamW",
        "weight_decay": WEIGHT_DECAY,
        "parameters": trainer.parameter_count,
        "training_images": len(trainer.training.labels),
        "held_out_images": len(trainer.held_out.labels),
        "gradlab": __version__,
    }


def train(trainer: Trainer, folder: RunFolder) -> int:
    """Runs the epochs that are left, saving after each; 0 when done, or the exit code of the signal that stopped it."""
    config, progress = trainer.config, trainer.progress
    print(
        f"{config.dataset}: {len(trainer.training.labels):,} images to train on, {len(trainer.held_out.labels):,} held "
        f"out; {config.model} with {trainer.parameter_count:,} parameters on {config.device}, seed {config.seed}"
    )
    if progress.epoch or progress.batch:
        print(f"resuming after epoch {progress.epoch}, batch {progress.batch} of {len(trainer.loader)}")
    begin = time.perf_counter()
    try:
        with interruption() as request:
            while not trainer.finished and not request.requested():
                if trainer.run_epoch(request.requested):
                    print(line(trainer.history[-1], config), flush=True)
                save(trainer, folder)
    except Diverged as error:
        raise Failure(f"{error}; the last good checkpoint is {folder.checkpoint}", FAILED) from error
    if not trainer.finished:
        print(f"\nstopped; resume with: {resume_command(config, folder)}", file=sys.stderr)
        return request.exit_code()
    save(trainer, folder)
    print(
        f"held-out accuracy {trainer.history[-1].held_out_accuracy:.2%} after {config.epochs} epochs "
        f"({time.perf_counter() - begin:.1f} s); everything is in {folder.path}"
    )
    return 0


def save(trainer: Trainer, folder: RunFolder) -> None:
    """The checkpoint first: the other files follow from it, and a resumed run writes them anew."""
    config = trainer.config
    folder.save(folder.checkpoint, checkpoint_of(trainer))
    folder.save(folder.weights, trainer.model.state_dict())
    folder.write_history(
        trainer.history,
        f"{config.dataset} · {config.model}",
        f"{trainer.parameter_count:,} parameters · AdamW, peak rate {config.learning_rate:g} · "
        f"batch {config.batch_size} · seed {config.seed} · {config.device}",
    )


def line(result: EpochResult, config: Config) -> str:
    epoch = f"{result.epoch:>{len(str(config.epochs))}}/{config.epochs}"
    return (
        f"epoch {epoch}  loss {result.loss:.4f}  accuracy {result.accuracy:.2%}  held-out loss "
        f"{result.held_out_loss:.4f}  accuracy {result.held_out_accuracy:.2%}  {result.samples_per_second:,.0f} samples/s"
    )


def resume_command(config: Config, folder: RunFolder) -> str:
    """What to type to go on, as the program was called."""
    as_module = Path(sys.argv[0]).parts[-2:] == ("gradlab", "__main__.py")
    program = ["python", "-m", "gradlab"] if as_module else ["gradlab"]
    return shlex.join([*program, "train", config.dataset, "--resume", str(folder.path)])
