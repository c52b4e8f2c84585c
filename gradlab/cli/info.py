"""`gradlab info`: what there is, what is missing, and the command that gets it. Nothing here may fail for want of a part."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradlab._version import __version__
from gradlab.backends.native import compiler as build, prebuilt
from gradlab.backends.native.ready import looked_up
from gradlab.cli.devices import cuda_available, cuda_names

CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
CUDA_13_DRIVER = 580  # the first driver that runs programs made for CUDA 13
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
COMPILERS = ("c++", "g++", "clang++")
GET_COMPILER = {
    "Linux": "sudo apt-get install g++  (or your distribution's package of it)",
    "Darwin": "xcode-select --install",
    "Windows": "winget install LLVM.LLVM",
}


def run(options: argparse.Namespace) -> int:
    compiler, card = find_compiler(), nvidia_card()
    rows = [
        ("gradlab", __version__),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()}), {platform.platform()}"),
        ("NumPy", f"{np.__version__}, BLAS: {blas()}"),
        *[(name, version(name) or "not installed") for name in ("ml_dtypes", "safetensors", "tqdm")],
        ("CuPy", next((f"{version(name)} ({name})" for name in CUPY if version(name)), "not installed")),
        ("cpu", f"{processor()}, {usable_cores()} cores, {memory()}"),
        ("cuda", cuda(card)),
        ("C++", compiler or "no compiler found"),
        ("kernels", kernels()),
        ("compile", machine_code()),
    ]
    width = max(len(name) for name, _ in rows)
    options.result = {**dict(rows), "missing": [{"what": what, "command": command} for what, command in missing(compiler, card)]}
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    for what, command in missing(compiler, card):
        print(f"\n{what}:\n  {command}")
    return 0


def kernels() -> str:
    """Whether eager code has kernels on the CPU."""
    found = looked_up()
    if found.carried:
        return f"for eager code on the CPU: {found.carried}"
    return f"{len(found.libraries)} for eager code on the CPU" if found.libraries else f"NumPy computes eager code on the CPU: {found.why}"


def machine_code() -> str:
    """What runs compiled CPU programs."""
    pairs = "; products of bfloat16 by avx512_bf16" if build.bfloat16() else ""
    if build.compiles():
        return f"machine code, made by the C++ compiler{pairs}"
    level = prebuilt.level()
    return f"prebuilt kernels ({level.name}){pairs}" if level is not None else "NumPy: there is neither a compiler nor a wheel with kernels"


def missing(compiler: str, card: Mapping[str, str]) -> list[tuple[str, str]]:
    """What could be added here: why one would want it, and how to get it."""
    found = []
    if not compiler:
        get = GET_COMPILER.get(platform.system(), "install g++ or clang++, or name one in CXX")
        found.append(("Missing: a C++ compiler, for compiled loops on the CPU and the emulated GPU", get))
    if not cuda_available():
        extra = "cuda13" if not card or driver_major(card) >= CUDA_13_DRIVER else "cuda12"
        why = "Missing: CuPy, to use the NVIDIA GPU" if card else "On a machine with an NVIDIA GPU"
        other = "" if card else f"  (drivers before {CUDA_13_DRIVER}: cuda12 instead of cuda13)"
        found.append((why, f'pip install "gradlab-engine[{extra}]"{other}'))
    return found


def version(package: str) -> str:
    """The installed version, or nothing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def blas() -> str:
    """The library behind NumPy's matrix product, and what limits its threads."""
    built: Any = np.show_config(mode="dicts") or {}
    library = built.get("Build Dependencies", {}).get("blas", {})
    name = f"{library.get('name', 'unknown')} {library.get('version', '')}".strip()
    limit = next((f"{variable}={os.environ[variable]}" for variable in THREADS if os.environ.get(variable)), "")
    return f"{name}, {limit or f'up to {usable_cores()} threads'}"


def usable_cores() -> int:
    """The cores this process may run on, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    model = field_of(Path("/proc/cpuinfo"), "model name")
    return model or platform.processor() or platform.machine()


def memory() -> str:
    """Total and free memory; free as the kernel estimates it, with caches that it would give up."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return "memory unknown"
    available = field_of(Path("/proc/meminfo"), "MemAvailable").removesuffix("kB").strip()
    free = f", {int(available) / 2**20:.1f} GiB free" if available.isdecimal() else ""
    return f"{total:.1f} GiB memory{free}"


def field_of(path: Path, name: str) -> str:
    """The value of the first line "name : value" in one of the kernel's files, or nothing."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name)
    return next(found, "")


def cuda(card: Mapping[str, str]) -> str:
    if cuda_available():
        return ", ".join(cuda_names())
    if card:
        return f"not usable: {card['name']}, {card['memory']}, driver {card['driver']}, but no working CuPy"
    return "no NVIDIA GPU found"


def nvidia_card() -> dict[str, str]:
    """The first card as the driver's own tool describes it, so that it is seen without CuPy; or nothing."""
    query = "--query-gpu=name,memory.total,driver_version"
    first = output_of(["nvidia-smi", query, "--format=csv,noheader"]).partition("\n")[0]
    values = [value.strip() for value in first.split(",")]
    return dict(zip(("name", "memory", "driver"), values)) if len(values) == len(("name", "memory", "driver")) else {}


def driver_major(card: Mapping[str, str]) -> int:
    number = card["driver"].partition(".")[0]
    return int(number) if number.isdecimal() else 0


def find_compiler() -> str:
    """The compiler's path and version, or nothing; CXX decides where it is set."""
    for name in filter(None, (os.environ.get("CXX"), *COMPILERS)):
        path = shutil.which(name)
        if path:
            return f"{path} ({output_of([path, '--version']).partition(chr(10))[0] or 'version unknown'})"
    return ""


def output_of(command: list[str]) -> str:
    """What a command prints, or nothing if it is not there, fails, or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
