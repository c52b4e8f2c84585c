"""Which bytes kernels may touch, and at which addresses: a shadow byte for every eight bytes of memory, as in Serebryany, Bruening,
Potapenko and Vyukov, "AddressSanitizer: a fast address sanity checker" (2012).

GNU's compiler puts a check of the shadow before every access of a kernel; what lies around arrays and shared memory is forbidden there.
Another check is of addresses: a GPU stops at one that is no multiple of what its type asks for, the processor here at few of them.
Nothing has to be in the process from its start, as a sanitizer has: the shadow is a stretch of addresses that costs memory only where
something is forbidden. On x86-64 Linux; GRADLAB_EMULATOR_BOUNDS=off leaves the checks out.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys

from gradlab.backends.native import toolchain

SHADOW = 0x7FFF8000  # of address 0
_BYTES = 1 << 44  # for 47 bits of addresses
_FORBIDDEN = 0xFA
# Calls in place of checks would be slower; a kernel's stack and a program's constants are the compiler's affair.
_FLAGS = (
    "-fsanitize=kernel-address", f"-fasan-shadow-offset={SHADOW:#x}", "--param=asan-instrumentation-with-call-threshold=2147483647",
    "--param=asan-stack=0", "--param=asan-globals=0",
    "-fsanitize=alignment", "-fno-sanitize-recover=alignment",
)  # fmt: skip


def flags(sanitize: str) -> tuple[str, ...]:
    """The compiler's flags for a program of kernels; none under a sanitizer, and where there is no shadow."""
    if sanitize or not mapped():
        return ()
    found = toolchain.compiler()
    return () if found.is_zig or "clang" in found.version else _FLAGS


@functools.cache
def mapped() -> bool:
    """Whether this process has a shadow; the first call maps it."""
    wanted = os.environ.get("GRADLAB_EMULATOR_BOUNDS", "on")
    if wanted not in {"on", "off"}:
        raise ValueError(f"GRADLAB_EMULATOR_BOUNDS is {wanted!r}; it may be on or off")
    if wanted == "off" or sys.platform != "linux" or platform.machine() != "x86_64" or os.environ.get("GRADLAB_SANITIZE"):
        return False
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    library.madvise.argtypes = library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # Read and written; private, of no file, without a reservation, nowhere else.
    place = library.mmap(SHADOW, _BYTES, 1 | 2, 0x2 | 0x20 | 0x4000 | 0x100000, -1, 0)
    if place != SHADOW:
        return False
    library.madvise(SHADOW, _BYTES, 16)  # none of it in a core dump
    library.mprotect(SHADOW + (SHADOW >> 3), _BYTES >> 3, 0)  # the shadow's own shadow: a wild address meets it
    return True


def enclose(address: int, size: int, zone: int) -> None:
    """Forbid `zone` bytes before and after an allocation; address and zone are multiples of eight."""
    begin, whole, rest = SHADOW + (address >> 3), size >> 3, size & 7
    ctypes.memset(begin - (zone >> 3), _FORBIDDEN, zone >> 3)
    ctypes.memset(begin + whole, _FORBIDDEN, (zone >> 3) + (rest > 0))
    if rest:
        ctypes.memset(begin + whole, rest, 1)


def release(address: int, size: int, zone: int) -> None:
    """Allow all of it again."""
    ctypes.memset(SHADOW + ((address - zone) >> 3), 0, (size + 2 * zone + 7) >> 3)
