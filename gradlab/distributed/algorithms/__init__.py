"""`torch.distributed.algorithms`: communication hooks, and joining of uneven inputs."""

from __future__ import annotations

from gradlab.distributed.algorithms import ddp_comm_hooks as ddp_comm_hooks
from gradlab.distributed.algorithms.join import Join as Join, Joinable as Joinable, JoinHook as JoinHook
