"""A file of events: records with their length and two check sums, as TensorFlow writes them."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
import time
from typing import BinaryIO

from gradlab.utils.tensorboard.messages import event, part

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits turned round
_numbers = itertools.count()


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_ROWS = tuple(map(_row, range(256)))


def check_sum(content: bytes) -> int:
    """CRC-32C, masked: turned by 15 bits and moved on, so that a sum of sums is none of its own."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _ROWS[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class FileWriter:
    """A new file `events.out.tfevents.…` in `log_dir`, which is made where it is not there.

    flush_secs: what is written reaches the disk after so many seconds at the latest, when something more is written, and at `flush` and
    `close`. Threads may share one. A file that was closed opens again, with another name, when more is written.
    """

    def __init__(self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        self.log_dir, self.flush_secs, self._suffix = os.fspath(log_dir), flush_secs, filename_suffix
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._open()

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _open(self) -> BinaryIO:
        os.makedirs(self.log_dir, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}{self._suffix}"
        self.path = os.path.join(self.log_dir, name)
        self._file = file = open(self.path, "wb")  # noqa: SIM115
        self._flushed = now
        self._put(file, event(now, 0, part(3, "brain.Event:2")))
        file.flush()
        return file

    @staticmethod
    def _put(file: BinaryIO, record: bytes) -> None:
        length = struct.pack("<Q", len(record))
        file.write(length + struct.pack("<I", check_sum(length)) + record + struct.pack("<I", check_sum(record)))

    def add(self, content: bytes, step: int | None = None, wall_time: float | None = None) -> None:
        """Write an event."""
        now = time.time()
        with self._lock:
            file = self._file or self._open()
            self._put(file, event(now if wall_time is None else wall_time, 0 if step is None else int(step), content))
            if now - self._flushed >= self.flush_secs:
                file.flush()
                self._flushed = now

    def flush(self) -> None:
        """What was written reaches the disk now."""
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def close(self) -> None:
        """End the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def reopen(self) -> None:
        """A new file, if the last one was closed."""
        with self._lock:
            if self._file is None:
                self._open()
