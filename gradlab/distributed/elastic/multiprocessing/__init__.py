"""`torch.distributed.elastic.multiprocessing`: its `errors`."""

from __future__ import annotations

from gradlab.distributed.elastic.multiprocessing import errors as errors
