"""Samples of every row: one file per family of `gradlab/ops`, each with `SAMPLES = {row name: [sample(...), ...]}`."""

from __future__ import annotations

import importlib
import pkgutil

from samples.base import Sample

SAMPLES: dict[str, list[Sample]] = {}
for module in pkgutil.iter_modules(__path__):
    if module.name != "base":
        SAMPLES.update(importlib.import_module(f"samples.{module.name}").SAMPLES)
