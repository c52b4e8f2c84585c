"""How many processes a program has: what its arguments, its address, and whoever started it say."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, urlsplit

# What launchers put into the environment: how many there are, and which one this is.
LAUNCHERS = {
    "torchrun": ("WORLD_SIZE", "RANK"),
    "mpiexec (Open MPI)": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "mpiexec (MPICH)": ("PMI_SIZE", "PMI_RANK"),
    "mpirun (MVAPICH)": ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    "srun": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
}
# This process's number on its machine, as the same launchers say it.
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_SCHEMES = ("env", "tcp", "file")


def announce() -> None:
    """Put what scripts for torchrun read (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) into the environment of a process that
    another launcher has started, where it is not there."""
    size, own, _ = counted(None, -1, -1)
    if size < 2:
        return
    local = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), str(own))
    said = {"RANK": str(own), "WORLD_SIZE": str(size), "LOCAL_RANK": local, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in said.items():
        os.environ.setdefault(name, value)


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"init_process_group: {name} is a number, not {text!r}") from None


def counted(init_method: str | None, world_size: int, rank: int) -> tuple[int, int, str]:
    """The size of the world, this process's rank, and who says so: an argument, else the address, else the environment."""
    said, size, own = "world_size", world_size, rank
    if init_method is not None:
        parts = urlsplit(init_method)
        if parts.scheme not in _SCHEMES:
            raise RuntimeError(f"init_process_group: init_method begins with {', '.join(s + '://' for s in _SCHEMES)}; not {init_method!r}")
        given = parse_qs(parts.query)
        if size < 0 and "world_size" in given:
            said, size = "init_method", _number(given["world_size"][0], "world_size")
        if own < 0 and "rank" in given:
            own = _number(given["rank"][0], "rank")
    for launcher, names in LAUNCHERS.items():
        if size < 0 and names[0] in os.environ:
            said, size = f"{launcher}'s {names[0]}", _number(os.environ[names[0]], names[0])
            if own < 0:
                own = _number(os.environ.get(names[1], "0"), names[1])
    size, own = 1 if size < 0 else size, max(own, 0)
    if not 0 <= own < size:
        raise ValueError(f"init_process_group: rank {own} is none of a world of {size}")
    return size, own, said
