"""Kernel arguments in the form in which the CUDA driver takes them: a table of addresses of values.

The layout of a launch's arguments does not change from call to call, only the values do. So a `Packer` is made once for a kind of launch:
it writes all values with one `struct.pack_into` and keeps the table of their addresses.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# One letter for each kind of argument, as in `struct`, and how many bytes it takes in the buffer: each value begins at a multiple of 8.
_PADDED = {
    "P": "Q",
    "q": "q",
    "d": "d",
    "f": "f4x",
    "i": "i4x",
    "I": "I4x",
    "h": "h6x",
    "H": "H6x",
    "b": "b7x",
    "B": "B7x",
    "?": "?7x",
    "Q": "Q",
}


class Packet:
    """A buffer for the values of one launch and the table that points into it. `kinds` says what the values are."""

    __slots__ = ("__weakref__", "address", "buffer", "kinds", "table")

    def __init__(self, size: int, offsets: Sequence[int], kinds: tuple[str | int, ...]) -> None:
        self.kinds = kinds
        self.buffer = ctypes.create_string_buffer(size + 16)
        base = ctypes.addressof(self.buffer)
        start = -base % 16
        self.table = (ctypes.c_void_p * max(len(offsets), 1))(*(base + start + o for o in offsets))
        self.address = ctypes.addressof(self.table)
        self.buffer = (ctypes.c_char * size).from_buffer(self.buffer, start)
        _packets[self.address] = self


# Packets by the address that a driver is given: the emulated one looks at what was packed.
_packets: weakref.WeakValueDictionary[int, Packet] = weakref.WeakValueDictionary()


def packet_at(address: int) -> Packet | None:
    """The packet whose table is at an address."""
    return _packets.get(address)


class Packer:
    """Packs the arguments of one kind of launch. `kinds`: a letter of `struct` for each value ("P" for an address), or a number of bytes.

    Several threads may pack at once: each takes a packet that no other is using.
    """

    __slots__ = ("_free", "_kinds", "_offsets", "_pack", "_size")

    def __init__(self, kinds: Sequence[str | int]) -> None:
        form, offsets, size = "<", [], 0
        for kind in kinds:
            offsets.append(size)
            part = _PADDED[kind] if isinstance(kind, str) else f"{kind}s{-kind % 8}x"
            form += part
            size += struct.calcsize("<" + part)
        self._pack = struct.Struct(form).pack_into
        self._kinds = tuple(kinds)
        self._offsets, self._size = tuple(offsets), max(size, 8)
        self._free: list[Packet] = []

    def fill(self, *values: Any) -> Packet:
        """A packet with these values; hand it back by `done` after the launch."""
        try:
            packet = self._free.pop()
        except IndexError:
            packet = Packet(self._size, self._offsets, self._kinds)
        self._pack(packet.buffer, 0, *values)
        return packet

    def part(self, number: int) -> Callable[[Packet, Any], None]:
        """What packs one value anew into a packet that was filled."""
        pack, offset = self._place(number)
        return lambda packet, value: pack(packet.buffer, offset, value)

    def part_of(self, packet: Packet, number: int) -> Callable[[Any], None]:
        """The same for one packet."""
        pack, offset = self._place(number)
        return functools.partial(pack, packet.buffer, offset)

    def _place(self, number: int) -> tuple[Callable[..., None], int]:
        kind = self._kinds[number]
        return struct.Struct("<" + (_PADDED[kind] if isinstance(kind, str) else f"{kind}s")).pack_into, self._offsets[number]

    def done(self, packet: Packet) -> None:
        """The driver has copied the values: the packet may be used again."""
        self._free.append(packet)

    def sender(self, launch: Callable[[int], None]) -> Callable[..., None]:
        """What packs all values and launches: `fill`, `launch`, `done` in one call."""
        pack, take, give = self._pack, self._free.pop, self._free.append
        size, offsets, kinds = self._size, self._offsets, self._kinds

        def send(*values: Any) -> None:
            try:
                packet = take()
            except IndexError:
                packet = Packet(size, offsets, kinds)
            pack(packet.buffer, 0, *values)
            launch(packet.address)
            give(packet)

        return send


def repeater(
    kinds: Sequence[str | int], constants: Sequence[Any], places: Sequence[tuple[int, int, int]], launch: Callable[[int], None]
) -> Callable[[list[int]], None]:
    """What launches again with other addresses: constants stay in the packets, only the stretch with addresses is written anew.

    places: (which value, which of the addresses it is taken from, what is added to that). A negative number counts from their end.
    """
    packer = Packer(kinds)
    first = min((at for at, _, _ in places), default=0)
    last = max((at for at, _, _ in places), default=-1) + 1
    stretch = Packer(kinds[first:last])
    pack, start = stretch._pack, packer._offsets[first] if packer._offsets else 0
    base = list(constants[first:last])
    moves = [(at - first, which, far) for at, which, far in places]
    spare: list[Packet] = []
    take, give = spare.pop, spare.append

    def send(addresses: list[int]) -> None:
        try:
            packet = take()
        except IndexError:
            packet = packer.fill(*constants)
        values = base.copy()
        for at, which, far in moves:
            values[at] = addresses[which] + far
        pack(packet.buffer, start, *values)
        launch(packet.address)
        give(packet)

    if len(base) < 2 or any(far for _, _, far in moves):
        return send
    where = list(range(len(base)))
    for at, which, _ in moves:
        where[at] = which if which < 0 else len(base) + which
    pick, number = operator.itemgetter(*where), len(base)
    plain = [at for at, _, _ in moves] == list(range(number)) and all(which in (at, at - number) for at, which, _ in moves)

    def send_whole(addresses: list[int]) -> None:
        """The same where all addresses are those of whole operands: quicker, and quickest where they are all there is, in order."""
        try:
            packet = take()
        except IndexError:
            packet = packer.fill(*constants)
        if plain and len(addresses) == number:
            pack(packet.buffer, start, *addresses)
        else:
            pack(packet.buffer, start, *pick(base + addresses))
        launch(packet.address)
        give(packet)

    return send_whole


# Kinds of Python and NumPy numbers. An int is an int64.
KINDS: dict[type, str] = {
    int: "q", float: "d", np.bool_: "?", np.float32: "f", np.float64: "d", np.int64: "q", np.int32: "i", np.int16: "h", np.int8: "b",
    np.uint64: "Q", np.uint32: "I", np.uint16: "H", np.uint8: "B",
}  # fmt: skip
_packers: dict[tuple[str | int, ...], Packer] = {}


def packer_of(kinds: tuple[str | int, ...]) -> Packer:
    """The packer of these kinds of arguments, made once."""
    found = _packers.get(kinds)
    if found is None:
        found = _packers[kinds] = Packer(kinds)
    return found
