"""Modules that wrap a model to train it on several devices, under PyTorch's names. One process uses one device, and so do they."""

from __future__ import annotations

from typing import Any

from gradlab.nn.parallel.data_parallel import DataParallel as DataParallel, data_parallel as data_parallel
from gradlab.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel
from gradlab.tensor.missing_names import absent as _absent


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.nn.parallel", name)
