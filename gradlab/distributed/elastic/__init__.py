"""`torch.distributed.elastic`, as far as scripts write it: processes are started, and started again, by `gradlab launch`."""

from __future__ import annotations

from gradlab.distributed.elastic import multiprocessing as multiprocessing
