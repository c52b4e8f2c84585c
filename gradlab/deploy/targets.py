"""Machines that a build is compiled for, from this one: by the package ziglang, which carries the C libraries of all of them."""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradlab.deploy.emitter import RUNTIME
from gradlab.utils.atomic import replacing

FLAGS = ("-std=c11", "-O3", "-fno-math-errno", "-fno-sanitize=all", "-s")
MISSING = "target {}: programs for other machines are compiled by the package ziglang: pip install 'gradlab-engine[deploy]'"


class TargetError(RuntimeError):
    """A target that is not known or cannot be compiled for."""


@dataclass(frozen=True)
class Target:
    """triple: as LLVM names the machine; cpu: the oldest processor that the program runs on, in LLVM's names."""

    triple: str
    cpu: str
    ending: str = ""
    flags: tuple[str, ...] = ()


BARE: Mapping[str, Target] = {  # without an operating system
    "cortex-m3": Target("thumb-freestanding-eabi", "cortex_m3"),
    "cortex-m4": Target("thumb-freestanding-eabihf", "cortex_m4"),
}
TARGETS: Mapping[str, Target] = {
    "x86_64-linux": Target("x86_64-linux-musl", "x86_64_v3"),
    "aarch64-linux": Target("aarch64-linux-musl", "generic"),
    "armv7-linux": Target("arm-linux-musleabihf", "cortex_a7"),
    "x86_64-windows": Target("x86_64-windows-gnu", "x86_64_v3", ".exe"),
    "aarch64-macos": Target("aarch64-macos-none", "apple_m1"),
    "wasm32": Target("wasm32-wasi", "generic+simd128", ".wasm", ("-mexec-model=reactor", "-Wl,-z,stack-size=1048576")),
}


def found(target: str) -> Target:
    """The target of that name. Raises TargetError, also where no compiler for it is installed: before anything is written."""
    if target not in TARGETS and target not in BARE:
        raise TargetError(f"target {target!r} is not known; there are {', '.join(TARGETS)}, and of static builds {', '.join(BARE)}")
    if importlib.util.find_spec("ziglang") is None:
        raise TargetError(MISSING.format(target))
    return TARGETS.get(target) or BARE[target]


def compile_for(target: str, source: Path, name: str, cpu: str | None = None) -> Path:
    """The program of a C file for another machine: `name-target` beside it (wasm32: a module `name.wasm` without a single import).

    cpu: another oldest processor, in LLVM's names with _ for - ("baseline", "znver4", "cortex_a72"). Raises TargetError.
    """
    wanted = found(target)
    module = target == "wasm32"
    functions = ["malloc", "free", *(f"{name}_{end}" for end in ("open_memory", "run", "close", "message"))]
    ends = [f"-Wl,--export={function}" for function in functions]
    arguments = [
        "-target", wanted.triple, f"-mcpu={cpu or wanted.cpu}", *FLAGS, *wanted.flags, *(ends if module else [f"-D{name.upper()}_MAIN"]),
    ]  # fmt: skip
    made = source.with_name(f"{name}{'' if module else f'-{target}'}{wanted.ending}")
    with tempfile.TemporaryDirectory(prefix="gradlab-") as folder:
        program = Path(folder, made.name)
        zig(["cc", *arguments, str(source), "-lm", "-o", str(program)], f"target {target}{f', cpu {cpu}' if cpu else ''}")
        with replacing(made) as file:
            file.write(program.read_bytes())
    made.chmod(0o755)
    return made


def compile_object(target: str, source: Path, name: str, cpu: str | None = None) -> Path:
    """The object file of a static program: `name-target.o` beside it. Raises TargetError."""
    wanted = found(target)
    made = source.with_name(f"{name}-{target}.o")
    flags = ["-std=c11", "-O2", "-fno-math-errno", "-fno-sanitize=all", "-ffreestanding", "-ffunction-sections", "-fdata-sections"]
    arguments = ["cc", "-target", wanted.triple, f"-mcpu={cpu or wanted.cpu}", *flags, "-isystem", str(RUNTIME / "freestanding")]
    with tempfile.TemporaryDirectory(prefix="gradlab-") as folder:
        program = Path(folder, made.name)
        zig([*arguments, "-c", str(source), "-o", str(program)], f"target {target}")
        with replacing(made) as file:
            file.write(program.read_bytes())
    return made


def sections(elf: bytes) -> tuple[int, int]:
    """Bytes of flash and of RAM that an object file of 32 bits takes: what is constant or code, and what is written."""
    (table,), (size, count) = struct.unpack_from("<I", elf, 32), struct.unpack_from("<HH", elf, 46)
    flash = ram = 0
    for i in range(count):
        _, kind, flags, _, _, bytes_ = struct.unpack_from("<6I", elf, table + i * size)
        if flags & 2:  # lies in memory
            flash += bytes_ if kind != 8 else 0  # all but zeros
            ram += bytes_ if flags & 1 else 0
    return flash, ram


def zig(arguments: Sequence[str], what: str) -> None:
    """Run zig. Raises TargetError with what it says."""
    environment = {key: value for key, value in os.environ.items() if key not in {"LD_PRELOAD", "DYLD_INSERT_LIBRARIES"}}
    done = subprocess.run([sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = sorted(done.stderr.splitlines(), key=lambda text: "error" not in text)  # what is wrong before what there is
        raise TargetError(f"{what}: the compiler says: {' '.join(' '.join(lines).split())[:600]}")
