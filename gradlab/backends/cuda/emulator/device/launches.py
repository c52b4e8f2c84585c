"""What a launch is given: a copy of its arguments, checked against the kernel's parameters, and the memory that they lead to."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from gradlab.backends.cuda.arguments import packet_at
from gradlab.backends.cuda.emulator.device.hazards import Use
from gradlab.backends.cuda.emulator.device.pool import Block
from gradlab.backends.cuda.emulator.launching import EmulatedFunction, KernelFault, Parameter

_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}  # what kernels that only move elements take for any type of their size
_KINDS = {
    "q": "int64", "Q": "uint64", "d": "float64", "f": "float32", "i": "int32", "I": "uint32", "h": "int16", "H": "uint16", "b": "int8",
    "B": "uint8", "?": "bool",
}  # fmt: skip

Find = Callable[[int], Block | None]


class Arguments:
    """The copied values of one launch, aligned, with the table of their addresses."""

    __slots__ = ("_room", "_table", "address")

    def __init__(self, parameters: tuple[Parameter, ...], table: int) -> None:
        offsets, size = [], 0
        for parameter in parameters:
            offsets.append(size)
            size += -(-parameter.size // 16) * 16
        self._room = ctypes.create_string_buffer(size + 16)
        start = ctypes.addressof(self._room)
        start += -start % 16
        self._table = (ctypes.c_void_p * max(len(offsets), 1))(*(start + offset for offset in offsets))
        given = (ctypes.c_void_p * max(len(offsets), 1)).from_address(table)
        for parameter, place, source in zip(parameters, self._table, given):
            ctypes.memmove(place, source, parameter.size)
        self.address = ctypes.addressof(self._table)

    def bytes_of(self, position: int, size: int) -> bytes:
        """The bytes of one argument."""
        place = self._table[position]
        assert place is not None
        return ctypes.string_at(place, size)


def check_kinds(function: EmulatedFunction, table: int) -> None:
    """KernelFault unless what was packed is what the kernel takes, where it was packed by a `Packer`."""
    packet = packet_at(table)
    if packet is None:
        return
    name, parameters, kinds = function.name, function.signature, packet.kinds
    if len(kinds) != len(parameters):
        raise KernelFault(name, f"it takes {len(parameters)} parameters, not {len(kinds)}")
    for position, (kind, parameter) in enumerate(zip(kinds, parameters)):
        if not _fits(kind, parameter):
            given = "an address" if kind == "P" else f"{kind} bytes" if isinstance(kind, int) else f"a value of {_KINDS[kind]}"
            raise KernelFault(name, f"parameter {position}: {given} for {parameter}")


def _fits(kind: str | int, parameter: Parameter) -> bool:
    if kind == "P":
        return parameter.pointer
    if isinstance(kind, int):
        return parameter.dtype == "struct" and not parameter.pointer and parameter.size == kind
    return not parameter.pointer and _KINDS[kind] == parameter.dtype


def uses_of(function: EmulatedFunction, arguments: Arguments, device: int, find: Find, outside: Callable[[int], bool]) -> list[Use]:
    """The memory that the arguments lead to, also from within structs. KernelFault for an address of none, of freed memory, of another
    device's, or of elements of another type."""
    uses: dict[tuple[Block, int], Use] = {}
    for position, parameter in enumerate(function.signature):
        if parameter.pointer:
            (address,) = struct.unpack("Q", arguments.bytes_of(position, 8))
            if address == 0 or outside(address):
                continue
            block = find(address)
            words = _refusal(block, address, parameter, device)
            if words:
                raise KernelFault(function.name, f"parameter {position}: {words}")
            assert block is not None
            writes = not parameter.constant
        elif parameter.dtype == "struct" and parameter.size >= 8:
            for address in struct.unpack(f"{parameter.size // 8}Q", arguments.bytes_of(position, parameter.size // 8 * 8)):
                block = find(address) if address >= 1 << 16 else None
                if block is None:
                    continue  # a number, not an address
                if not block.alive or block.device != device:
                    raise KernelFault(function.name, f"parameter {position}: it holds {_foreign(block, device)}")
                uses[block, address] = Use(block, address, True)
            continue
        else:
            continue
        kept = uses.get((block, address))
        uses[block, address] = Use(block, address, writes or (kept is not None and kept.writes))
    return list(uses.values())


def _foreign(block: Block, device: int) -> str:
    if not block.alive:
        return f"an address of memory of cuda:{block.device} ({block.size} bytes) that was freed"
    return f"an address of cuda:{block.device} in a launch on cuda:{device}"


def _refusal(block: Block | None, address: int, parameter: Parameter, device: int) -> str | None:
    if block is None:
        return f"{address:#x} is no memory of the device"
    if not block.alive or block.device != device:
        return _foreign(block, device)
    if any(_reads(parameter.dtype, held) for held in (block.dtype, *block.seen)):
        return None
    return f"elements of {block.dtype} for {parameter}"


def _reads(parameter: str, held: np.dtype[Any]) -> bool:
    """Whether a kernel's parameter may lead to elements of a dtype."""
    if parameter in {"void", "struct", held.name, _WORDS.get(held.itemsize)} or held.name == "uint8":
        return True
    if held.kind in "iu" and parameter in (f"int{8 * held.itemsize}", f"uint{8 * held.itemsize}"):
        return True  # C++ lets the signed and the unsigned type of one size read each other
    # A complex number is two of its reals.
    return held.kind == "c" and parameter in (f"float{4 * held.itemsize}", f"uint{4 * held.itemsize}")


