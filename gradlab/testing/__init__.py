"""Checks that anyone can run on a model, an operation or a kernel of their own."""

from __future__ import annotations

from gradlab.testing.comparing import assert_close, make_tensor
from gradlab.testing.opcheck import OpCheckError, OpReport, opcheck
from gradlab.testing.parity import Report, parity

__all__ = ["OpCheckError", "OpReport", "Report", "assert_close", "make_tensor", "opcheck", "parity"]
