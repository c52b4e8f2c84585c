"""What the CUDA backend takes for granted of CuPy and of cuBLASLt, held to the libraries where they are installed; no GPU is needed."""

import ctypes
import importlib.util
import re
import threading
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from gradlab.backends.cuda.gemm import binding

F32 = np.dtype(np.float32)


# ---------------------------------------------------------------- CuPy


@pytest.fixture
def host_array():
    """A CuPy array over the host's memory: shapes, strides, owners and addresses are as on a GPU; nothing may touch the values."""
    cupy = pytest.importorskip("cupy")
    host = np.zeros(64, np.uint8)
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(host.ctypes.data, 64, host, 0), 0)
    return cupy, cupy.ndarray((4, 4), F32, memory), host


def test_addresses_and_devices_of_cupys_arrays(host_array):
    _, x, host = host_array
    assert (attrgetter("data.ptr")(x), attrgetter("data.device_id")(x)) == (host.ctypes.data, 0)
    assert attrgetter("data.ptr")(x[2:, 1:]) == host.ctypes.data + 2 * 16 + 4
    assert (x.strides, x.T.strides, x.nbytes, x.flags.c_contiguous, x.T.flags.c_contiguous) == ((16, 4), (4, 16), 64, True, False)


def test_views_name_the_array_whose_memory_they_share(host_array):
    """`autograd.engine._owns` goes by that. Where CuPy keeps no base (`as_strided`), the tensor is marked as a view."""
    cupy, x, _ = host_array
    assert x.base is None
    for view in (
        x.T, x.reshape((2, 8)), x.reshape((2, 8)).T, x[1:], x.transpose(1, 0), x.swapaxes(0, 1), x.view(np.int32), x.diagonal(),
        np.broadcast_to(x[:1], (4, 4)), np.expand_dims(x, 0), np.moveaxis(x, 0, 1), np.flip(x, 0),
    ):  # fmt: skip
        assert type(view) is cupy.ndarray
        assert view.base is x
    assert cupy.lib.stride_tricks.as_strided(x, (2, 2), (4, 4)).base is None


def test_pinned_memory_is_a_writable_buffer():
    cupy = pytest.importorskip("cupy")
    host = np.zeros(64, np.uint8)

    class Memory:
        ptr, size = host.ctypes.data, 64

    pointer = cupy.cuda.PinnedMemoryPointer(Memory, 0)
    np.frombuffer(pointer, F32, 4)[...] = 1
    assert (pointer.ptr, host[:16].view(F32).tolist()) == (host.ctypes.data, [1.0] * 4)


def test_allocators_are_of_one_thread_and_are_put_back():
    cupy = pytest.importorskip("cupy")
    asked = []

    def mine(size):
        asked.append(size)
        raise MemoryError

    for _ in range(2):
        with cupy.cuda.using_allocator(mine), pytest.raises(MemoryError):
            cupy.cuda.alloc(16)
    assert asked == [16, 16]
    others = []
    with cupy.cuda.using_allocator(mine):
        thread = threading.Thread(target=lambda: others.append(cupy.cuda.get_allocator()))
        thread.start()
        thread.join()
        assert cupy.cuda.get_allocator() is mine
    assert others[0] is not mine
    assert cupy.cuda.get_allocator() is not mine


def test_what_captures_and_kernels_take_of_cupy():
    cupy = pytest.importorskip("cupy")
    assert "mode=None" in cupy.cuda.Stream.begin_capture.__doc__
    assert "streamCaptureModeRelaxed" in cupy.cuda.Stream.begin_capture.__doc__  # the arena may take memory from the device meanwhile
    assert cupy.cuda.Graph.launch.__doc__.startswith("Graph.launch(self, stream=None)")
    assert hasattr(cupy.cuda.function.Function, "ptr")
    assert hasattr(cupy.RawKernel, "kernel")


# ---------------------------------------------------------------- cuBLASLt's header


def header():
    """The text of NVIDIA's headers without comments; skips where they are not installed."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(p) / "cu13" / "include" for p in (found.submodule_search_locations or () if found is not None else ())]
    place = next((p for p in places if (p / "cublasLt.h").is_file()), None)
    if place is None:
        pytest.skip("nvidia-cublas is not installed")
    files = [place / name for name in ("cublasLt.h", "cublas_api.h", "library_types.h")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def constants(text):
    """The header's enumerators with their numbers."""
    found = {}
    for body in re.findall(r"enum\s*\w*\s*\{(.*?)\}", text, flags=re.DOTALL):
        before = -1
        for part in filter(None, map(str.strip, body.split(","))):
            name, _, value = map(str.strip, part.partition("="))
            words = [w for w in re.findall(r"\w+", value) if w not in ("unsigned", "uint32_t")]
            numbers = [found[w] if w in found else int(w.rstrip("uU"), 0) for w in words if w in found or w[0].isdigit()]
            before = found[name] = before + 1 if not value else 1 << numbers[1] if "<<" in value else sum(set(numbers))
    return found


def test_the_numbers_of_cublaslt_are_those_of_its_header():
    text = header()
    known = constants(text)
    compute = {"F32": "32F", "F64": "64F", "F32_FAST_TF32": "32F_FAST_TF32"}
    kinds = {
        binding.Status: "CUBLAS_STATUS_", binding.DataType: "CUDA_", binding.ComputeType: "CUBLAS_COMPUTE_",
        binding.Operation: "CUBLAS_OP_", binding.Order: "CUBLASLT_ORDER_",
        binding.Epilogue: "CUBLASLT_EPILOGUE_", binding.Matrix: "CUBLASLT_MATRIX_LAYOUT_",
        binding.Desc: "CUBLASLT_MATMUL_DESC_", binding.Preference: "CUBLASLT_MATMUL_PREF_",
    }  # fmt: skip
    wrong = {}
    for kind, prefix in kinds.items():
        for member in kind:
            name = prefix + (compute[member.name] if kind is binding.ComputeType else member.name)
            if known.get(name) != member.value:
                wrong[name] = (member.value, known.get(name))
    assert not wrong
    assert known["CUBLASLT_REDUCTION_SCHEME_MASK"] == binding.REDUCE_ANY
    assert known["CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"] == binding.REDUCE_IN_COMPUTE_TYPE
    for name, (_, arguments) in binding.PROTOTYPES.items():
        (listed,) = re.findall(rf"\b{name}\s*\((.*?)\)\s*;", text, flags=re.DOTALL)
        assert len([a for a in listed.split(",") if a.strip() not in ("", "void")]) == len(arguments), name
    assert ctypes.sizeof(binding.Algorithm) == 64
    assert ctypes.sizeof(binding.HeuristicResult) == 64 + 8 + 4 + 4 + 16
