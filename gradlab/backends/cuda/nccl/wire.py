"""Messages of the stand-in's processes: a short header in JSON, and bytes behind it."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

_SIZES = struct.Struct("<II")


class Line:
    """One end of a connection. Several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, header: dict[str, Any], payload: Any = b"") -> None:
        """ConnectionError where nobody is there any more."""
        text = json.dumps(header).encode()
        with self._lock:
            self._connection.sendall(_SIZES.pack(len(text), len(payload)) + text)
            if len(payload):
                self._connection.sendall(payload)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message. ConnectionError at the end."""
        text, size = _SIZES.unpack(self._exactly(_SIZES.size))
        header: dict[str, Any] = json.loads(self._exactly(text))
        return header, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._connection.recv(min(size - len(found), 1 << 20))
            if not part:
                raise ConnectionError("the other end is gone")
            found += part
        return bytes(found)

    def close(self) -> None:
        """End the connection, for those that read from it too."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()
