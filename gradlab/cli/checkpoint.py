"""Reading a checkpoint back, and telling apart the ways in which a file may be no checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradlab as gl
from gradlab._version import __version__
from gradlab.cli.config import Config, saved_config
from gradlab.cli.failure import FAILED, Failure
from gradlab.cli.trainer import Trainer

FORMAT = "gradlab training checkpoint"
VERSION = 1


def checkpoint_of(trainer: Trainer) -> dict[str, Any]:
    """What is saved: the trainer's state, marked as ours. Raises Diverged if the model is broken."""
    return {"format": FORMAT, "version": VERSION, "gradlab": __version__, **trainer.state()}


def read_checkpoint(path: Path) -> tuple[Config, dict[str, Any]]:
    """The settings and the state in a checkpoint file; a Failure if the file is damaged, or is something else."""
    try:
        content = gl.load(path, map_location="cpu")
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}", FAILED) from error
    except (ValueError, RuntimeError, TypeError, KeyError, EOFError) as error:
        raise Failure(f"{path} is damaged, or not a checkpoint: {error}", FAILED) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Failure(f"{path} is not a training checkpoint (weights alone cannot be resumed)", FAILED)
    if content.get("version") != VERSION:
        raise Failure(f"{path} was written by gradlab {content.get('gradlab')}, in a format this one cannot read", FAILED)
    config = saved_config(content.get("config"))
    if config is None:
        raise Failure(f"{path} holds no settings of a run that this gradlab knows", FAILED)
    return config, content


def restore(trainer: Trainer, path: Path, content: dict[str, Any]) -> None:
    """Puts the trainer where the checkpoint left off; a Failure if the content does not fit."""
    try:
        trainer.load_state(content)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise Failure(f"{path} does not fit the model it names: {error}", FAILED) from error
