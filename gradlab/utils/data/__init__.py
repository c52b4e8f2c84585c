"""Loading data: datasets, samplers, batches, worker processes. Names and meanings are PyTorch's `torch.utils.data`."""

from __future__ import annotations

from typing import Any

from gradlab.tensor.missing_names import absent as _absent
from gradlab.utils.data.collate import (
    default_collate as default_collate,
    default_convert as default_convert,
    pad_collate as pad_collate,
)
from gradlab.utils.data.dataset import (
    ChainDataset as ChainDataset,
    ConcatDataset as ConcatDataset,
    Dataset as Dataset,
    IterableDataset as IterableDataset,
    StackDataset as StackDataset,
    Subset as Subset,
    TensorDataset as TensorDataset,
    random_split as random_split,
)
from gradlab.utils.data.distributed import DistributedSampler as DistributedSampler
from gradlab.utils.data.loader import DataLoader as DataLoader
from gradlab.utils.data.prefetch import Prefetcher as Prefetcher
from gradlab.utils.data.sampler import (
    BatchSampler as BatchSampler,
    RandomSampler as RandomSampler,
    Sampler as Sampler,
    SequentialSampler as SequentialSampler,
    SubsetRandomSampler as SubsetRandomSampler,
    WeightedRandomSampler as WeightedRandomSampler,
)
from gradlab.utils.data.workers import WorkerInfo as WorkerInfo, get_worker_info as get_worker_info


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.utils.data", name)
