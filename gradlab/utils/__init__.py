"""Around training: loading data, saving and reading tensors, files that are written whole."""

from __future__ import annotations

from gradlab.utils import checkpoint as checkpoint, data as data, dlpack as dlpack, hooks as hooks
