"""The CUDA below CuPy (gradlab.testing.emulated_cuda): its functions keep CUDA's rules; no CuPy is needed."""

import ctypes
import functools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from gradlab.testing.emulated_cuda import machine_code
from gradlab.testing.emulated_cuda.driver_functions import DriverFunctions
from gradlab.testing.emulated_cuda.machine import Machine
from gradlab.testing.emulated_cuda.nvrtc import Compiler, _understood
from gradlab.testing.emulated_cuda.runtime_functions import Runtime
from gradlab.testing.emulated_cuda.statuses import Refused, refusal

SCALE = 'extern "C" __global__ void scale(float* x, float by, int n) { int i = threadIdx.x; if (i < n) x[i] *= by; }\n'


@functools.cache  # keeps it
def buffer(words):
    return ctypes.create_string_buffer(words.encode())


def text(words):
    """The address of a string of C."""
    return ctypes.addressof(buffer(words))


class Cuda:
    """The functions of one emulated CUDA, and what a program does with them."""

    def __init__(self):
        self.machine = Machine(2)
        self.runtime = Runtime(self.machine, SimpleNamespace(PointerAttributes=lambda *values: values))
        self.driver = DriverFunctions(self.machine)
        self.compiler = Compiler((13, 0))
        self.runtime.setDevice(0)

    def out(self, function, *arguments):
        """What a function of C writes through its first argument."""
        room = ctypes.c_uint64(0)
        assert function(ctypes.addressof(room), *arguments) == 0
        return room.value

    def kernel(self, source=SCALE, name="scale"):
        image = ctypes.create_string_buffer(machine_code.Program(source, [name], "scale.cu", []).image())
        module = self.out(self.driver.cuModuleLoadData, ctypes.addressof(image))
        return self.out(self.driver.cuModuleGetFunction, module, text(name))

    def launch(self, kernel, address, by, count, stream=0, shared=0):
        values = ctypes.c_uint64(address), ctypes.c_float(by), ctypes.c_int(count)
        table = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
        return self.driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, shared, stream, ctypes.addressof(table), 0)

    def upload(self, values, stream=0):
        array = np.asarray(values, np.float32)
        address = self.runtime.malloc(array.nbytes)
        self.runtime.memcpyAsync(address, array.ctypes.data, array.nbytes, 1, stream)
        return address

    def read(self, address, count, stream=0):
        array = np.empty(count, np.float32)
        self.runtime.memcpyAsync(array.ctypes.data, address, array.nbytes, 2, stream)
        return array.tolist()


@pytest.fixture
def cuda():
    return Cuda()


def refused(status, call, words=None):
    with pytest.raises(Refused, match=words) as caught:
        call()
    assert caught.value.status == status


# ---------------------------------------------------------------- contexts, memory, launches


def test_a_kernel_between_copies(cuda):
    x = cuda.upload([1, 2, 3])
    cuda.launch(cuda.kernel(), x, 2.0, 3)
    assert cuda.read(x, 3) == [2, 4, 6]
    cuda.runtime.memsetAsync(x + 4, 0, 4, 0)
    assert cuda.read(x, 3) == [2, 0, 6]
    used = cuda.runtime.memGetInfo()
    cuda.runtime.free(x)
    assert cuda.runtime.memGetInfo()[0] == used[0] + 12
    refused(1, lambda: cuda.runtime.free(x), "not where memory begins")
    refused(1, lambda: cuda.runtime.memsetAsync(x, 0, 4, 0), "no memory of a device")


def test_the_driver_makes_no_context_current(cuda):
    """The runtime does, with nearly each call; whoever launches by the driver first in a thread is refused."""
    kernel, x, seen = cuda.kernel(), cuda.upload([1]), []

    def work():
        for call in (lambda: cuda.launch(kernel, x, 2.0, 1), cuda.kernel, lambda: cuda.driver.cuFuncSetAttribute(kernel, 8, 60000)):
            with pytest.raises(Refused) as caught:
                call()
            seen.append(caught.value.status)
        cuda.machine.enter()  # as the runtime's functions do, see `installing`
        seen.append(cuda.launch(kernel, x, 2.0, 1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [201, 201, 201, 0]
    assert cuda.read(x, 1) == [2]


def test_functions_belong_to_a_device(cuda):
    kernel = cuda.kernel()
    cuda.runtime.setDevice(1)
    refused(400, lambda: cuda.launch(kernel, cuda.upload([1]), 2.0, 1), "loaded on cuda:0, the context is cuda:1's")
    refused(101, lambda: cuda.runtime.setDevice(2))
    event = cuda.runtime.eventCreate()
    cuda.runtime.setDevice(0)
    refused(400, lambda: cuda.runtime.eventRecord(event, 0), "an event of cuda:1")


def test_dynamic_shared_memory_has_to_be_asked_for(cuda):
    kernel, x = cuda.kernel(), cuda.upload([1])
    refused(1, lambda: cuda.launch(kernel, x, 2.0, 1, shared=60000), "its limit was left at 49152")
    assert cuda.driver.cuFuncSetAttribute(kernel, 8, 60000) == 0
    assert cuda.launch(kernel, x, 2.0, 1, shared=60000) == 0
    refused(1, lambda: cuda.driver.cuFuncSetAttribute(kernel, 8, 1 << 20))


def test_pinned_memory_is_read_when_the_copy_runs(cuda):
    """Other memory of the host is read at once: what changes afterwards shows which is which."""
    stream, x = cuda.runtime.streamCreateWithFlags(1), cuda.runtime.malloc(4)
    place = cuda.runtime.hostAlloc(4, 0)
    pinned = np.frombuffer((ctypes.c_char * 4).from_address(place), np.float32)
    for source, found in ((pinned, [2]), (np.zeros(1, np.float32), [1])):
        source[0] = 1
        cuda.runtime.memcpyAsync(x, source.ctypes.data, 4, 1, stream)
        source[0] = 2
        assert cuda.read(x, 1, stream) == found
    assert cuda.runtime.pointerGetAttributes(place)[3] == 1
    assert cuda.runtime.pointerGetAttributes(x)[::3] == (0, 2)
    assert cuda.runtime.pointerGetAttributes(source.ctypes.data)[3] == 0
    cuda.runtime.freeHost(place)
    refused(1, lambda: cuda.runtime.freeHost(place))


def test_copies_know_where_memory_is(cuda):
    x, host = cuda.runtime.malloc(8), np.zeros(2, np.float32)
    for kind, target, source in ((1, host.ctypes.data, host.ctypes.data), (2, x, x), (3, x, host.ctypes.data)):
        refused(1, functools.partial(cuda.runtime.memcpyAsync, target, source, 8, kind, 0), "memory of a device")
    refused(1, lambda: cuda.runtime.memcpyAsync(x, host.ctypes.data, 9, 1, 0), "reach beyond 8 bytes")
    refused(2, lambda: raising(lambda: cuda.runtime.malloc(1 << 50)))


def raising(call):
    """As a caller of CUDA sees it."""
    try:
        call()
    except Exception as error:
        raise refusal(error) from None


# ---------------------------------------------------------------- streams, events, captures


def test_the_legacy_default_stream_waits_for_blocking_streams_alone(cuda):
    kernel = cuda.kernel()
    blocking, free = cuda.runtime.streamCreate(), cuda.runtime.streamCreateWithFlags(1)
    x = cuda.upload([1])
    cuda.launch(kernel, x, 2.0, 1, blocking)
    assert cuda.read(x, 1) == [2]  # in the default stream
    with pytest.raises(RuntimeError, match="no event orders them"):
        cuda.launch(kernel, x, 3.0, 1, free)
        cuda.launch(kernel, x, 3.0, 1, 0)
    assert [cuda.runtime.streamGetFlags(stream) for stream in (0, blocking, free)] == [0, 0, 1]


def test_events(cuda):
    kernel, x = cuda.kernel(), cuda.upload([1])
    stream, other = cuda.runtime.streamCreateWithFlags(1), cuda.runtime.streamCreateWithFlags(1)
    start, end, silent = cuda.runtime.eventCreate(), cuda.runtime.eventCreate(), cuda.runtime.eventCreateWithFlags(2)
    cuda.runtime.streamSynchronize(0)
    cuda.runtime.eventRecord(start, stream)
    cuda.launch(kernel, x, 2.0, 1, stream)
    cuda.runtime.eventRecord(end, stream)
    assert cuda.runtime.eventQuery(end) == 600  # a status, not an error
    cuda.runtime.streamWaitEvent(other, end)
    cuda.launch(kernel, x, 2.0, 1, other)
    assert cuda.read(x, 1, other) == [4]
    cuda.runtime.eventSynchronize(end)
    assert cuda.runtime.eventQuery(end) == 0
    assert cuda.runtime.eventElapsedTime(start, end) >= 0
    refused(400, lambda: cuda.runtime.eventElapsedTime(silent, end))
    cuda.runtime.eventDestroy(silent)
    refused(400, lambda: cuda.runtime.eventRecord(silent, 0), "no event, or it was destroyed")
    called = []
    cuda.runtime.launchHostFunc(stream, called.append, 5)
    assert not called
    cuda.runtime.deviceSynchronize()
    assert called == [5]


def test_a_capture(cuda, tmp_path):
    kernel, x = cuda.kernel(), cuda.upload([1])
    cuda.runtime.deviceSynchronize()
    stream, branch = cuda.runtime.streamCreateWithFlags(1), cuda.runtime.streamCreateWithFlags(1)
    fork, join = cuda.runtime.eventCreate(), cuda.runtime.eventCreate()
    cuda.runtime.streamBeginCapture(stream)
    assert cuda.runtime.streamIsCapturing(stream) == 1
    cuda.launch(kernel, x, 2.0, 1, stream)
    cuda.runtime.eventRecord(fork, stream)
    cuda.runtime.streamWaitEvent(branch, fork)
    cuda.launch(kernel, x, 5.0, 1, branch)
    assert cuda.runtime.malloc(4)  # in the relaxed mode
    assert cuda.runtime.eventQuery(fork) == 907
    cuda.runtime.eventRecord(join, branch)
    cuda.runtime.streamWaitEvent(stream, join)
    graph = cuda.runtime.streamEndCapture(stream)
    executable = cuda.runtime.graphInstantiate(graph)
    cuda.runtime.graphDebugDotPrint(graph, str(tmp_path / "graph.dot"), 0)
    assert "n0 -> n1" in (tmp_path / "graph.dot").read_text()
    cuda.runtime.graphDestroy(graph)
    assert cuda.read(x, 1) == [1]
    for value in (10, 100):
        cuda.runtime.graphLaunch(executable, stream)
        assert cuda.read(x, 1, stream) == [value]
    cuda.runtime.graphExecDestroy(executable)
    refused(400, lambda: cuda.runtime.graphLaunch(executable, stream))


@pytest.mark.parametrize("what", ["synchronize", "query", "device", "malloc", "join", "outside"])
def test_what_spoils_a_capture(cuda, what):
    kernel, x = cuda.kernel(), cuda.upload([1])
    stream, other, event = cuda.runtime.streamCreateWithFlags(1), cuda.runtime.streamCreateWithFlags(1), cuda.runtime.eventCreate()
    cuda.runtime.eventRecord(event, other)
    refused(900, lambda: cuda.runtime.streamBeginCapture(0))
    cuda.runtime.streamBeginCapture(stream, 0 if what == "malloc" else 2)
    cuda.launch(kernel, x, 2.0, 1, stream)
    if what == "synchronize":
        refused(900, lambda: cuda.runtime.streamSynchronize(stream))
    elif what == "query":
        assert cuda.runtime.streamQuery(stream) == 900
    elif what == "device":
        refused(900, cuda.runtime.deviceSynchronize)
    elif what == "malloc":
        refused(900, lambda: cuda.runtime.malloc(4))
    elif what == "outside":
        refused(905, lambda: cuda.runtime.streamWaitEvent(stream, event))
    else:
        fork = cuda.runtime.eventCreate()
        cuda.runtime.eventRecord(fork, stream)
        cuda.runtime.streamWaitEvent(other, fork)
        cuda.launch(kernel, x, 2.0, 1, other)
        refused(903, lambda: cuda.runtime.streamEndCapture(other))
    if what != "join":
        with pytest.raises(RuntimeError, match="an error has invalidated the capture sequence"):
            cuda.runtime.streamIsCapturing(stream)
    refused(904 if what == "join" else 901, lambda: cuda.runtime.streamEndCapture(stream))
    assert cuda.runtime.streamIsCapturing(stream) == 0


# ---------------------------------------------------------------- modules, the compiler


def program(compiler, source, names=(), options=()):
    """The status of compiling, the log, the image."""
    room, size = ctypes.c_uint64(0), ctypes.c_uint64(0)
    assert compiler.nvrtcCreateProgram(ctypes.addressof(room), text(source), 0, 0, 0, 0) == 0
    for name in names:
        assert compiler.nvrtcAddNameExpression(room.value, text(name)) == 0
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = compiler.nvrtcCompileProgram(room.value, len(options), ctypes.addressof(given))
    compiler.nvrtcGetProgramLogSize(room.value, ctypes.addressof(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(room.value, ctypes.addressof(log))
    compiler.nvrtcGetCUBINSize(room.value, ctypes.addressof(size))
    image = ctypes.create_string_buffer(max(size.value, 1))
    compiler.nvrtcGetCUBIN(room.value, ctypes.addressof(image))
    assert compiler.nvrtcDestroyProgram(ctypes.addressof(room)) == 0
    return status, log.value.decode(), image


def test_programs(cuda):
    source = "template <typename T> __global__ void set(T* x) { x[threadIdx.x] = T(VALUE); }"
    status, log, image = program(cuda.compiler, source, ["set<float>", "set<int>"], ["-std=c++17", "-D", "VALUE=3", "-arch=sm_90"])
    assert (status, log) == (0, "")
    kept = ctypes.create_string_buffer(image.raw[:-1])  # CuPy drops the last byte
    module = cuda.out(cuda.driver.cuModuleLoadData, ctypes.addressof(kept))
    assert cuda.out(cuda.driver.cuModuleGetFunction, module, text("set<int>"))
    refused(500, lambda: cuda.driver.cuModuleGetFunction(0, module, text("set<double>")), "no kernel set<double>")
    status, log, _ = program(cuda.compiler, '#line 1 "mine.cu"\n__global__ void f() { nonsense(); }', ["f"])
    assert status == 6
    assert "mine.cu:1:" in log
    assert "nonsense" in log


def test_what_is_no_program_of_ours(cuda):
    for content in (b"\x7fELF" + bytes(60), b"// PTX\n.version 8.0\n"):
        kept = ctypes.create_string_buffer(content)
        refused(200, lambda kept=kept: cuda.driver.cuModuleLoadData(0, ctypes.addressof(kept)), "runs on a real one alone")


def test_kernels_with_plain_names():
    source = (
        '// extern "C" __global__ void no() {}\nextern "C" __global__ void __launch_bounds__(256) a(int n) {}\n'
        'extern "C" __launch_bounds__(64) __global__ void b() {}\nextern "C" {\n__global__ void c(float* x) {}\n__device__ int d();\n}\n'
    )
    assert machine_code.plain_kernels(source) == ["a", "b", "c"]
    assert machine_code.plain_kernels("template <class T> __global__ void e(T x) {}") == []


def test_options_of_the_compiler():
    given = "-I /a -I/b --include-path=/c -DX -D Y=2 --define-macro=Z= -std=c++17 --device-as-default-execution-space"
    assert _understood(given.split()) == (["/a", "/b", "/c"], ["#define X 1\n", "#define Y 2\n", "#define Z \n"])
