"""The processes of a program and their groups: who takes part, and which of them this one is.

A group knows the ranks of its members in the world, this process's place among them, and what carries arrays between them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from gradlab import cuda
from gradlab.distributed.constants import default_pg_timeout
from gradlab.distributed.rendezvous import LOCAL_RANKS, counted
from gradlab.distributed.store import Store
from gradlab.distributed.transport import Alone, Transport
from gradlab.distributed.work import flush


class Backend(str):
    """The name of what carries messages, in small letters: "gloo", "nccl", "mpi", "ucc", or one for each device, "cpu:gloo,cuda:nccl"."""

    GLOO, NCCL, MPI, UCC, UNDEFINED = "gloo", "nccl", "mpi", "ucc", "undefined"
    backend_list = (UNDEFINED, GLOO, NCCL, MPI, UCC)

    def __new__(cls, name: str) -> Backend:
        """ValueError for a name that is none of them."""
        if not isinstance(name, str):
            raise ValueError(f"Backend: a name such as 'gloo', not {name!r}")
        small = name.lower()
        for part in small.split(","):
            if part.rpartition(":")[2] not in cls.backend_list:
                raise ValueError(f"Backend: {', '.join(cls.backend_list[1:])}, or one for each device ('cpu:gloo,cuda:nccl'), not {name!r}")
        return super().__new__(cls, small)


class ProcessGroup:
    """Some of the processes, in an order of their own; made by `init_process_group` and `new_group`."""

    def __init__(self, ranks: Sequence[int], own: int, backend: Backend, group_name: str, transport: Transport) -> None:
        self.ranks, self._own, self.backend, self.group_name, self.transport = tuple(ranks), own, backend, group_name, transport

    def rank(self) -> int:
        """This process's place in the group."""
        return self.ranks.index(self._own)

    def size(self) -> int:
        """How many processes are in it."""
        return len(self.ranks)

    def name(self) -> str:
        """The name of its backend."""
        return str(self.backend)

    def __deepcopy__(self, memo: object) -> ProcessGroup:
        """Itself: a copy of a model is in the same group."""
        return self

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r} of ranks {list(self.ranks)}>"


class _Worlds(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all processes; None before `init_process_group`."""
        return _world


class GroupMember(metaclass=_Worlds):
    """The group of all, `GroupMember.WORLD`, and what stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100


class group(metaclass=_Worlds):
    """The group of all as scripts name it: `group.WORLD`."""


_world: ProcessGroup | None = None
_groups: dict[str, ProcessGroup] = {}
_made = 0


# ---------------------------------------------------------------- beginning and end


def is_available() -> bool:
    """True: these functions are there."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called, and `destroy_process_group` not since."""
    return _world is not None


def is_nccl_available() -> bool:
    """Whether there is a GPU."""
    return cuda.is_available()


def is_gloo_available() -> bool:
    """True: tensors on the CPU take part."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed, with which there may be more than one process."""
    return find_spec("mpi4py") is not None


def is_ucc_available() -> bool:
    """False."""
    return False


def is_xccl_available() -> bool:
    """False."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether a backend of that name would be there."""
    found = {"gloo": True, "nccl": cuda.is_available(), "mpi": is_mpi_available()}
    return found.get(str(backend).lower(), False)


def is_torchelastic_launched() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None, world_size: int = -1, rank: int = -1,
    store: Store | None = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Make this process a member of the world, from then on all of `gradlab.distributed` answers.

    How many processes there are, arguments say, or `init_method` ("env://", "tcp://host:port", "file:///path"), or what mpiexec, srun,
    `gradlab launch` or torchrun's variables put into the environment; with nothing of that there is one, which needs no MPI. `backend` is
    taken by name, default "gloo" and, with a GPU, "nccl" too: several processes speak by MPI whatever its name is, and find each other
    by it, not by an address. timeout: how long a collective waits for the others before it raises and names them, default 10 minutes.

    ValueError for a second call before `destroy_process_group`, an unknown backend, or a rank that is none of the world's; RuntimeError
    where there are several processes and no mpi4py, DistNetworkError (one too) where MPI has not started them.
    """
    global _world
    if _world is not None:
        raise ValueError("init_process_group: called twice; call destroy_process_group() before the second time")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"init_process_group: timeout is a datetime.timedelta, not {type(timeout).__name__}")
    if store is not None and init_method is not None:
        raise ValueError("init_process_group: init_method and store exclude each other")
    chosen = Backend(backend or ("cpu:gloo,cuda:nccl" if cuda.is_available() else "gloo"))
    size, own, said = counted(init_method, world_size, rank)
    carrier = _carrier(size, own, (timeout or default_pg_timeout).total_seconds(), said)
    _world = _groups["0"] = ProcessGroup(range(size), own, chosen, group_name or "0", carrier)


def _carrier(size: int, own: int, seconds: float, said: str) -> Transport:
    if size == 1:
        return Alone(own)
    if not is_mpi_available():
        raise RuntimeError(
            f"init_process_group: {said} says that there are {size} processes, which speak by MPI, and mpi4py is not installed: "
            f"pip install 'gradlab-engine[mpi]' brings it and Open MPI. Or start the script once, without a launcher"
        )
    found: Transport = import_module("gradlab.distributed.mpi_world").world(size, own, seconds, said)
    return found


def init(backend: str | None = None, timeout: timedelta | None = None) -> ProcessGroup:
    """`init_process_group`, unless that was called; returns the group of all processes. Each takes the GPU of its number on its machine.

    >>> import gradlab as gl
    >>> gl.distributed.init()
    <ProcessGroup '0' of ranks [0]>
    >>> gl.distributed.destroy_process_group()
    """
    if _world is None:
        init_process_group(backend, timeout=timeout)
        if cuda.is_available() and cuda.device_count() > 1:
            cuda.set_device(get_node_local_rank(0) % cuda.device_count())
    assert _world is not None
    return _world


def destroy_process_group(group: Any = None) -> None:
    """End a group; the world, and with it all groups, where none is given. ValueError for what is no group, or is ended already."""
    global _world
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    found = member(group, "destroy_process_group")
    assert found is not None
    flush()
    if found is _world:
        _world = None
        for each in _groups.values():
            each.transport.close()
        _groups.clear()
    else:
        found.transport.close()
        del _groups[next(name for name, known in _groups.items() if known is found)]


# ---------------------------------------------------------------- groups


def member(group: Any, name: str) -> ProcessGroup | None:
    """The group that an argument means, the world for None; None for one that this process is not in. ValueError where there is none."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    found = _world if group is None else group
    if found is None:
        raise ValueError(f"{name}: the default process group has not been initialized; call gl.distributed.init_process_group() first")
    if not isinstance(found, ProcessGroup):
        raise TypeError(f"{name}: group is what new_group() gives, or None, not {type(found).__name__}")
    if not any(known is found for known in _groups.values()):
        raise ValueError(f"{name}: this process group was destroyed")
    return found


def _get_default_group() -> ProcessGroup:
    found = member(None, "_get_default_group")
    assert found is not None
    return found


def new_group(
    ranks: Sequence[int] | None = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None,
) -> Any:  # fmt: skip
    """A group of the processes of these ranks, default all; `GroupMember.NON_GROUP_MEMBER` where this one is not among them.

    ValueError for ranks that the world has not, or that are there twice.
    """
    global _made
    world = member(None, "new_group")
    assert world is not None
    chosen = list(world.ranks) if ranks is None else sorted(int(r) for r in ranks)
    if len(set(chosen)) != len(chosen) or not set(chosen) <= set(world.ranks):
        raise ValueError(f"new_group: ranks are different ones of the world's {list(world.ranks)}, not {list(ranks or ())}")
    _made += 1
    carrier = world.transport.split(chosen, _made, world.transport.seconds if timeout is None else timeout.total_seconds())
    if carrier is None:
        return GroupMember.NON_GROUP_MEMBER
    made = ProcessGroup(chosen, world._own, Backend(backend) if backend else world.backend, group_desc or str(_made), carrier)
    _groups[str(_made)] = made
    return made


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """A group for each list of ranks. Returns the one that this process is in, and all. ValueError where a rank is in two of them."""
    if not ranks_per_subgroup_list:
        raise ValueError("new_subgroups_by_enumeration: give at least one list of ranks")
    all_ranks = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(all_ranks)) != len(all_ranks):
        raise ValueError(f"new_subgroups_by_enumeration: a rank is in one list, but they are {[list(r) for r in ranks_per_subgroup_list]}")
    made = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    return next((g for g in made if isinstance(g, ProcessGroup)), None), made


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: timedelta | None = None, backend: str | None = None, pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Groups of `group_size` neighbouring ranks, default all. ValueError where the world's size is no multiple of it."""
    size = get_world_size(group)
    wanted = size if group_size is None else group_size
    if wanted <= 0 or size % wanted:
        raise ValueError(f"new_subgroups: the world's size, {size}, is no multiple of group_size, {wanted}")
    lists = [list(range(start, start + wanted)) for start in range(0, size, wanted)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def _rank_not_in_group(group: Any) -> bool:
    return group is GroupMember.NON_GROUP_MEMBER


def get_rank(group: Any = None) -> int:
    """This process's place in the group, -1 where it is not in it. ValueError before `init_process_group`."""
    found = member(group, "get_rank")
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many processes are in the group, -1 where this one is not. ValueError before `init_process_group`."""
    found = member(group, "get_world_size")
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """The name of the group's backend: of that for the CPU where there are two. ValueError where this process is not in it."""
    return _inside(group, "get_backend").backend.split(",")[0].rpartition(":")[2]


def get_backend_config(group: Any = None) -> str:
    """The name of a backend for each device, such as "cpu:gloo,cuda:nccl"."""
    found = _inside(group, "get_backend_config").backend
    return str(found) if ":" in found else f"cpu:{found},cuda:{found}"


def get_default_backend_for_device(device: Any) -> str:
    """ "nccl" for a GPU, "gloo" for the CPU. ValueError for another device."""
    kind = str(device).partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"get_default_backend_for_device: cpu or cuda, not {device}")
    return "nccl" if kind == "cuda" else "gloo"


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_groups)


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks in the world of a group's members."""
    return list(_inside(group, "get_process_group_ranks").ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The place in a group of the process of that rank in the world. ValueError where it is not in it."""
    found = _inside(group, "get_group_rank")
    if global_rank not in found.ranks:
        raise ValueError(f"get_group_rank: rank {global_rank} is not in {found}")
    return found.ranks.index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the world of a group's member. ValueError for a place that the group has not."""
    found = _inside(group, "get_global_rank")
    if not 0 <= group_rank < found.size():
        raise ValueError(f"get_global_rank: {found} has no member {group_rank}")
    return found.ranks[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its machine: what LOCAL_RANK or a launcher says, else `fallback_rank`. RuntimeError without either."""
    for name in LOCAL_RANKS:
        if name in os.environ:
            return int(os.environ[name])
    if fallback_rank is None:
        raise RuntimeError("get_node_local_rank: LOCAL_RANK is not in the environment; give fallback_rank")
    return int(fallback_rank)


def _inside(group: Any, name: str) -> ProcessGroup:
    found = member(group, name)
    if found is None:
        raise ValueError(f"{name}: this process is not in the group")
    return found
