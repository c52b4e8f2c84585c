"""Stores: values by name that all processes of a program see. With one process they are a dict."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any


def _alone(size: int, said: str) -> None:
    if size > 1:
        raise NotImplementedError(
            f"{said} asks for {size} processes: a store is this process's own. Processes find each other by MPI, without a store; "
            f"init_process_group() reads what mpiexec or srun say, and objects travel by broadcast_object_list"
        )


class Store:
    """Bytes by name. A value is given as str or bytes, and read as bytes."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self.timeout = timedelta(minutes=5)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long to wait for what another process sets."""
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Set a value."""
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        """The value of a name. RuntimeError where there is none: no other process will set it."""
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, 0 at first, and return it."""
        found = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(found).encode()
        return found

    def append(self, key: str, value: str | bytes) -> None:
        """Add to the end of a value, empty at first."""
        self._values[key] = self._values.get(key, b"") + (value.encode() if isinstance(value, str) else bytes(value))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set a value where it is as expected, or where there is none and nothing is expected. Returns the value that is there then."""
        if self._values.get(key, b"").decode() == expected_value:
            self.set(key, desired_value)
        return self._values.get(key, expected_value.encode())

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of them are set."""
        return all(key in self._values for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all are set: RuntimeError where they are not, since no other process will."""
        missing = [key for key in keys if key not in self._values]
        if missing:
            raise RuntimeError(f"Store: {missing} will not be set: there is no other process")

    def delete_key(self, key: str) -> bool:
        """Forget a value; whether there was one."""
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        """How many values there are."""
        return len(self._values)


class HashStore(Store):
    """A store for this process."""


class TCPStore(Store):
    """A store at an address. NotImplementedError for a world of more than one process."""

    def __init__(
        self, host_name: str, port: int = 0, world_size: int | None = None, is_master: bool = False, timeout: timedelta | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        _alone(world_size or 1, "TCPStore's world_size")
        super().__init__()
        self.host, self.port = host_name, port
        self.timeout = timeout or self.timeout


class FileStore(Store):
    """A store in a file. NotImplementedError for a world of more than one process."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        _alone(world_size, "FileStore's world_size")
        super().__init__()
        self.path = file_name


class PrefixStore(Store):
    """Another store's values whose names begin with a prefix."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def set(self, key: str, value: str | bytes) -> None:
        self.underlying_store.set(self._full(key), value)

    def get(self, key: str) -> bytes:
        return self.underlying_store.get(self._full(key))

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(self._full(key), amount)

    def append(self, key: str, value: str | bytes) -> None:
        self.underlying_store.append(self._full(key), value)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        return self.underlying_store.compare_set(self._full(key), expected_value, desired_value)

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._full(key) for key in keys])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self.underlying_store.wait([self._full(key) for key in keys], timeout)

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._full(key))

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()
