"""Processes: Python's `multiprocessing`, name by name, and tensors whose memory they share.

Whatever sends objects to other processes (a Queue, a Pipe, a Pool, the arguments of a process that is spawned) sends a CPU tensor's memory
with it: both sides then see what either writes in place. The memory has no name in the file system; it is gone with its last user.
"""

from __future__ import annotations

import importlib
import multiprocessing
from multiprocessing import (
    Array as Array,
    AuthenticationError as AuthenticationError,
    Barrier as Barrier,
    BoundedSemaphore as BoundedSemaphore,
    BufferTooShort as BufferTooShort,
    Condition as Condition,
    Event as Event,
    JoinableQueue as JoinableQueue,
    Lock as Lock,
    Manager as Manager,
    Pipe as Pipe,
    Pool as Pool,
    Process as Process,
    ProcessError as ProcessError,
    Queue as Queue,
    RawArray as RawArray,
    RawValue as RawValue,
    RLock as RLock,
    Semaphore as Semaphore,
    SimpleQueue as SimpleQueue,
    TimeoutError as TimeoutError,
    Value as Value,
    active_children as active_children,
    allow_connection_pickling as allow_connection_pickling,
    cpu_count as cpu_count,
    current_process as current_process,
    freeze_support as freeze_support,
    get_all_start_methods as get_all_start_methods,
    get_context as get_context,
    get_logger as get_logger,
    get_start_method as get_start_method,
    log_to_stderr as log_to_stderr,
    parent_process as parent_process,
    set_executable as set_executable,
    set_forkserver_preload as set_forkserver_preload,
    set_start_method as set_start_method,
)
from typing import Any

from gradlab.multiprocessing import memory as memory
from gradlab.multiprocessing.spawn import (
    ProcessContext as ProcessContext,
    ProcessException as ProcessException,
    ProcessExitedException as ProcessExitedException,
    ProcessRaisedException as ProcessRaisedException,
    SpawnContext as SpawnContext,
    spawn as spawn,
    start_processes as start_processes,
)
from gradlab.tensor.missing_names import absent as _absent

_STRATEGIES = ("file_descriptor", "file_system")
_strategy = _STRATEGIES[0]


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The name that was set; "file_descriptor" at first."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Say how memory is to be shared: "file_descriptor" or "file_system". ValueError for another name.

    Here memory always goes by descriptors, so that nothing is left behind by a process that is killed. What scripts ask for with
    "file_system" is not to run out of them: it raises this process's limit of open files to what the system allows.
    """
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise ValueError(f"set_sharing_strategy: {' or '.join(map(repr, _STRATEGIES))}, not {new_strategy!r}")
    _strategy = new_strategy
    if new_strategy == "file_system":
        resource: Any = importlib.import_module("resource")
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def __getattr__(name: str) -> Any:
    if hasattr(multiprocessing, name) and not name.startswith("__"):  # queues, pool, reduction and so on, once they are imported
        return getattr(multiprocessing, name)
    raise _absent("gradlab.multiprocessing", name)
