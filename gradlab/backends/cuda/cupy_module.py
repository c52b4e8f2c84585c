"""CuPy, or what is missing for it: the package, the driver, a GPU, and which command mends it. Nobody else imports it."""

from __future__ import annotations

import importlib
import os
from typing import Any

from gradlab.advice import GradlabWarning, warn
from gradlab.backends.native.seals import trusted

IN_MEMORY = "CUPY_CACHE_IN_MEMORY"  # CuPy's variable: compile, and keep nothing on the disk
LEAST_DRIVER = 12000  # CUDA 12.0


def installed() -> Any:
    """The module, or a RuntimeError that says what to install."""
    _distrust_others()
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        broken = f" (importing cupy failed: {error})" if not isinstance(error, ModuleNotFoundError) else ""
        raise RuntimeError(
            f'device "cuda" needs CuPy, which is not installed{broken}: pip install "gradlab-engine[cuda13]" '
            "(or [cuda12] for drivers below 580); GRADLAB_CUDA=emulated runs on an emulated GPU"
        ) from None
    runtime = cupy.cuda.runtime
    try:
        version = runtime.driverGetVersion()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(f'device "cuda": the NVIDIA driver does not answer ({error})') from None
    if version == 0:
        raise RuntimeError(
            'device "cuda" needs an NVIDIA driver, and there is none: install it from https://www.nvidia.com/drivers, or with '
            "your system's packages (Ubuntu: sudo ubuntu-drivers install); GRADLAB_CUDA=emulated runs on an emulated GPU"
        )
    try:
        devices = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        built = runtime.runtimeGetVersion()
        if version < built // 1000 * 1000:
            major = version // 1000
            raise RuntimeError(
                f'device "cuda": the NVIDIA driver is too old: it supports CUDA {_version(version)}, this CuPy needs CUDA {built // 1000}. '
                f'Update the driver, or install the CuPy that fits it: pip install "gradlab-engine[cuda{max(major, 12)}]"'
            ) from None
        raise RuntimeError(f'device "cuda": the NVIDIA driver finds no GPU ({error}); `nvidia-smi` shows what it sees') from None
    if devices == 0:
        raise RuntimeError('device "cuda": the NVIDIA driver finds no GPU; check CUDA_VISIBLE_DEVICES, and `nvidia-smi`')
    if version < LEAST_DRIVER:
        raise RuntimeError(
            f'device "cuda": the NVIDIA driver is too old: it supports CUDA {_version(version)}, gradlab needs 12.0; update it'
        )
    return cupy


def _distrust_others() -> None:
    """Let CuPy's cache of compiled kernels, whose files carry checksums, be left alone where others may write to it."""
    folder = os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache")
    try:
        safe = trusted(os.stat(folder))
    except OSError:  # there is none yet
        return
    if not safe and os.environ.get(IN_MEMORY) != "1":
        os.environ[IN_MEMORY] = "1"
        warn(
            GradlabWarning,
            f"CuPy's cache {folder} is another user's, or others may write to it (chmod go-w {folder}), and what lies there runs on the "
            "GPU: kernels are compiled anew in each process; CUPY_CACHE_DIR names another folder",
        )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
