"""Programs as C: one C file and a weights file that run a traced forward with no Python at all (docs/deploy.md)."""

from __future__ import annotations

from gradlab.deploy.build import Built, build
from gradlab.deploy.program import Refused
from gradlab.deploy.targets import TARGETS, TargetError

__all__ = ["TARGETS", "Built", "Refused", "TargetError", "build"]
