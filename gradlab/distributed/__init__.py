"""Many-process programs, with PyTorch's names: groups of processes, and what they do together.

One process, started without a launcher, is rank 0 of a world of size 1, in which every operation does what it does among one. Several are
started by `gradlab launch`, mpiexec or srun, and speak by MPI (mpi4py, the extra `mpi`).
"""

from __future__ import annotations

from typing import Any

from gradlab.distributed import (
    algorithms as algorithms,
    checkpoint as checkpoint,
    constants as constants,
    elastic as elastic,
    fsdp as fsdp,
    nn as nn,
    optim as optim,
)
from gradlab.distributed.collectives import (
    all_gather as all_gather,
    all_gather_coalesced as all_gather_coalesced,
    all_gather_into_tensor as all_gather_into_tensor,
    all_reduce as all_reduce,
    all_reduce_coalesced as all_reduce_coalesced,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    barrier as barrier,
    broadcast as broadcast,
    gather as gather,
    monitored_barrier as monitored_barrier,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter,
)
from gradlab.distributed.constants import default_pg_timeout as default_pg_timeout
from gradlab.distributed.failure import (
    DistBackendError as DistBackendError,
    DistError as DistError,
    DistNetworkError as DistNetworkError,
    DistStoreError as DistStoreError,
)
from gradlab.distributed.grad_bucket import BuiltinCommHookType as BuiltinCommHookType, GradBucket as GradBucket
from gradlab.distributed.groups import (
    Backend as Backend,
    GroupMember as GroupMember,
    ProcessGroup as ProcessGroup,
    _rank_not_in_group as _rank_not_in_group,
    destroy_process_group as destroy_process_group,
    get_backend as get_backend,
    get_backend_config as get_backend_config,
    get_default_backend_for_device as get_default_backend_for_device,
    get_global_rank as get_global_rank,
    get_group_rank as get_group_rank,
    get_node_local_rank as get_node_local_rank,
    get_pg_count as get_pg_count,
    get_process_group_ranks as get_process_group_ranks,
    get_rank as get_rank,
    get_world_size as get_world_size,
    group as group,
    init as init,
    init_process_group as init_process_group,
    is_available as is_available,
    is_backend_available as is_backend_available,
    is_gloo_available as is_gloo_available,
    is_initialized as is_initialized,
    is_mpi_available as is_mpi_available,
    is_nccl_available as is_nccl_available,
    is_torchelastic_launched as is_torchelastic_launched,
    is_ucc_available as is_ucc_available,
    is_xccl_available as is_xccl_available,
    new_group as new_group,
    new_subgroups as new_subgroups,
    new_subgroups_by_enumeration as new_subgroups_by_enumeration,
)
from gradlab.distributed.messages import (
    P2POp as P2POp,
    batch_isend_irecv as batch_isend_irecv,
    irecv as irecv,
    isend as isend,
    recv as recv,
    send as send,
)
from gradlab.distributed.objects import (
    all_gather_object as all_gather_object,
    broadcast_object_list as broadcast_object_list,
    gather_object as gather_object,
    recv_object_list as recv_object_list,
    scatter_object_list as scatter_object_list,
    send_object_list as send_object_list,
)
from gradlab.distributed.reduce_op import ReduceOp as ReduceOp, reduce_op as reduce_op
from gradlab.distributed.store import (
    FileStore as FileStore,
    HashStore as HashStore,
    PrefixStore as PrefixStore,
    Store as Store,
    TCPStore as TCPStore,
)
from gradlab.distributed.work import Work as Work
from gradlab.tensor.missing_names import absent as _absent


def __getattr__(name: str) -> Any:
    raise _absent("gradlab.distributed", name)
