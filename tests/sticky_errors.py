"""After some errors a GPU answers nothing any more in the process that caused them: every later test of it would fail with the same error.

So the process ends there. With pytest-xdist the test is named as the one that its worker crashed in, and another worker goes on with the
rest; in a single process pytest stops and says which test it was. On a real GPU each test waits for its work, so that the error is its own.
"""

import os
import sys

import pytest

from gradlab.backends.cuda import loading

EXIT = 70
# Statuses of cudaError_t and CUresult that stay: ECC, addresses, instructions, stacks, asserts, launches, time.
STATUSES = frozenset((214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719))
_NAMES = (
    "ILLEGAL_ADDRESS", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "MISALIGNED_ADDRESS", "INVALID_PC", "ILLEGAL_INSTRUCTION", "HARDWARE_STACK_ERROR",
    "INVALID_ADDRESS_SPACE", "ERROR_ASSERT", "ECC_UNCORRECTABLE", "cudaErrorIllegalAddress", "cudaErrorLaunchFailure",
    "cudaErrorLaunchTimeout", "cudaErrorMisalignedAddress", "cudaErrorInvalidPc", "cudaErrorIllegalInstruction",
    "cudaErrorHardwareStackError", "cudaErrorInvalidAddressSpace", "cudaErrorAssert", "cudaErrorECCUncorrectable",
)  # fmt: skip


def sticky(error):
    """Whether an error, or one that it came of, is of the GPU and stays."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if type(error).__name__ in ("CUDARuntimeError", "CUDADriverError"):
            if getattr(error, "status", None) in STATUSES or any(name in str(error) for name in _NAMES):
                return True
        elif type(error).__name__ == "BlasError" and getattr(error, "status", None) == 13:  # EXECUTION_FAILED: see its context
            return True
        error = error.__cause__ or error.__context__
    return False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Wait for the GPU behind the test, inside of it; end the process where it is lost."""
    try:
        found = yield
        if loading.loaded() and loading.load().driver.name == "real":
            loading.load().driver.synchronize()
        return found
    except Exception as error:
        if not sticky(error):
            raise
        text = f"the GPU is lost to this process: {item.nodeid}: {type(error).__name__}: {error}"
        if os.environ.get("PYTEST_XDIST_WORKER"):
            capture = item.config.pluginmanager.getplugin("capturemanager")
            if capture is not None:
                capture.suspend_global_capture(in_=True)
            print(text, file=sys.stderr, flush=True)
            os._exit(EXIT)
        pytest.exit(text, returncode=EXIT)
