"""One rank of tests/test_nccl.py: `python nccl_ranks.py WHAT RANK SIZE ID...`, on the emulated GPU."""

import ast
import sys

import numpy as np

import gradlab as gl
from gradlab.backends.cuda.emulator import KernelFault
from gradlab.backends.cuda.loading import load
from gradlab.backends.cuda.nccl.library import nccl_of
from gradlab.backends.cuda.nccl.names import TYPES, NcclError

driver = load().driver
nccl = nccl_of(driver)


def place(x):
    return driver.pointer(x._array)


def now():
    return gl.cuda.current_stream().cuda_stream


def on_gpu(values, dtype="float32"):
    return gl.tensor(np.asarray(values), dtype=getattr(gl, dtype), device="cuda")


def values_of(rank, count, dtype):
    return (np.arange(count) % 5 + rank + 1).astype("float32" if dtype == "bfloat16" else dtype)


def equal(found, wanted):
    np.testing.assert_array_equal(found.cpu().double().numpy(), np.asarray(wanted, float))


def collectives(rank, size, ids):
    comm = nccl.NcclCommunicator(size, ids[0], rank)
    assert (comm.rank_id(), comm.size(), comm.device_id()) == (rank, size, rank)
    for dtype, kind in TYPES.items():
        if not hasattr(gl, dtype):
            continue
        every = np.stack([values_of(r, 12, dtype) for r in range(size)]).astype(float)
        x = on_gpu(every[rank], dtype)
        y = gl.zeros_like(x)
        for op, want in ((nccl.NCCL_SUM, every.sum(0)), (nccl.NCCL_MAX, every.max(0)), (nccl.NCCL_MIN, every.min(0))):
            comm.allReduce(place(x), place(y), 12, kind, op, now())
            equal(y, want)
        comm.reduce(place(x), place(y), 12, kind, nccl.NCCL_SUM, size - 1, now())
        equal(y, every.sum(0) if rank == size - 1 else every.min(0))
        comm.broadcast(place(x), place(y), 12, kind, 1, now())
        equal(y, every[1])
        gathered, part = gl.zeros(size, 12, dtype=x.dtype, device="cuda"), gl.zeros(12 // size, dtype=x.dtype, device="cuda")
        comm.allGather(place(x), place(gathered), 12, kind, now())
        equal(gathered, every)
        comm.reduceScatter(place(x), place(part), 12 // size, kind, nccl.NCCL_SUM, now())
        equal(part, every.sum(0).reshape(size, -1)[rank])
        nccl.groupStart()
        comm.send(place(x), 12, kind, (rank + 1) % size, now())
        comm.recv(place(y), 12, kind, (rank - 1) % size, now())
        nccl.groupEnd()
        equal(y, every[rank - 1])
    comm.allReduce(place(x), place(x), 12, kind, nccl.NCCL_AVG, now())
    equal(x, every.mean(0))


def captures(rank, size, ids):
    """A captured call runs with every replay, between the kernels that it lies between."""
    comm = nccl.NcclCommunicator(size, ids[0], rank)
    x = gl.zeros(8, device="cuda")
    x + 1
    x * 2
    graph = gl.cuda.CUDAGraph()
    with gl.cuda.graph(graph):
        y = x + 1
        comm.allReduce(place(y), place(y), 8, nccl.NCCL_FLOAT, nccl.NCCL_SUM, now())
        z = y * 2
    for step in range(3):
        x.fill_(rank + step)
        graph.replay()
        equal(z, np.full(8, 2 * sum(r + step + 1 for r in range(size))))


def progress(rank, size, ids):
    """Rank 1 never waits for its call until the other has its result: a GPU's work goes on by itself."""
    comm = nccl.NcclCommunicator(size, ids[0], rank)
    x = on_gpu([rank + 1.0])
    comm.allReduce(place(x), place(x), 1, nccl.NCCL_FLOAT, nccl.NCCL_SUM, now())
    if rank == 0:
        equal(x, [3.0])
        print("said", flush=True)
    else:
        sys.stdin.readline()
    equal(x, [3.0])


def drained():
    """What comes after a call that failed fails as well."""
    for _ in range(8):
        try:
            return gl.cuda.synchronize()
        except NcclError:
            pass


def refused(kind, text, call):
    try:
        call()
        gl.cuda.synchronize()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        drained()
    else:
        raise AssertionError(f"nothing was raised: {text}")


def faults(rank, size, ids):
    """Each of the planted mistakes is caught, in all ranks."""
    ids = iter(ids)

    def new():
        return nccl.NcclCommunicator(size, next(ids), rank)

    x, y = gl.ones(8, device="cuda"), gl.zeros(8, device="cuda")
    f32, total = nccl.NCCL_FLOAT, nccl.NCCL_SUM

    def reduce(comm, count=8, stream=None, kind=f32, op=total):
        comm.allReduce(place(x), place(y), count, kind, op, now() if stream is None else stream)

    comm = new()  # counts, types, operations
    refused(NcclError, "rank 0: allReduce of 8 float32, op sum; rank 1: allReduce of 7 float32", lambda: reduce(comm, 8 - rank))
    refused(NcclError, "the ranks differ", lambda: reduce(comm))  # it stays broken
    comm = new()
    refused(NcclError, "rank 1: allReduce of 8 int32", lambda: reduce(comm, kind=(f32, nccl.NCCL_INT)[rank]))
    comm = new()
    refused(NcclError, "op sum; rank 1: allReduce of 8 float32, op max", lambda: reduce(comm, op=(total, nccl.NCCL_MAX)[rank]))

    comm = new()  # another order

    def other_order():
        calls = [lambda: reduce(comm), lambda: comm.broadcast(place(x), place(y), 8, f32, 0, now())]
        for call in calls if rank else reversed(calls):
            call()

    refused(NcclError, "differ in their collective number 1. rank 0: broadcast of 8 float32, root 0; rank 1: allReduce", other_order)

    comm = new()  # a deadlock of two sends

    def two_sends():
        comm.send(place(x), 8, f32, 1 - rank, now())
        comm.recv(place(y), 8, f32, 1 - rank, now())

    refused(NcclError, "a deadlock: rank 0 waits in send of 8 float32, peer 1; rank 1 waits in send", two_sends)
    comm = new()  # a send of another count

    def uneven():
        nccl.groupStart()
        comm.send(place(x), 8, f32, 1 - rank, now())
        comm.recv(place(y), 4, f32, 1 - rank, now())
        nccl.groupEnd()

    refused(NcclError, "counts and types have to be the same", uneven)
    pair = new(), new()  # two communicators, crosswise

    def crosswise():
        for comm in pair if rank else reversed(pair):
            reduce(comm)
            gl.cuda.synchronize()

    refused(NcclError, "a deadlock", crosswise)

    comm, side = new(), gl.cuda.Stream()  # no event between streams
    x.add_(1)
    refused(KernelFault, "no event orders them", lambda: reduce(comm, stream=side.cuda_stream))
    side.wait_stream(gl.cuda.current_stream())
    reduce(comm, stream=side.cuda_stream)
    refused(KernelFault, "no event orders them", lambda: y + 1)
    gl.cuda.current_stream().wait_stream(side)
    equal(y, np.full(8, 4.0))
    comm = new()  # one communicator in two streams
    u, v = gl.ones(8, device="cuda"), gl.ones(8, device="cuda")
    gl.cuda.synchronize()
    comm.allReduce(place(u), place(u), 8, f32, total, now())
    refused(KernelFault, "no event orders them", lambda: comm.allReduce(place(v), place(v), 8, f32, total, side.cuda_stream))

    comm = new()  # what one process alone gets wrong
    refused(NcclError, "reaches 4 bytes beyond an array", lambda: reduce(comm, 9))
    refused(NcclError, "no memory of the device", lambda: comm.allReduce(12345, place(y), 8, f32, total, now()))
    refused(NcclError, "overlap in part", lambda: comm.allReduce(place(x), place(x) + 4, 7, f32, total, now()))
    refused(NcclError, "no datatype", lambda: reduce(comm, kind=77))
    refused(NcclError, "root 5 of 2 ranks", lambda: comm.broadcast(place(x), place(y), 8, f32, 5, now()))
    refused(NcclError, "groupEnd without groupStart", nccl.groupEnd)
    with gl.cuda.device(1 - rank):
        refused(NcclError, f"the communicator is of cuda:{rank}", lambda: reduce(comm))
    refused(NotImplementedError, "one device in each process", lambda: nccl.NcclCommunicator.initAll(2))
    refused(NcclError, "what get_unique_id() gave", lambda: nccl.NcclCommunicator(2, (0,) * 128, rank))
    one = next(ids)
    graph = gl.cuda.CUDAGraph()
    x * 2
    with gl.cuda.graph(graph):
        refused_in_capture = x * 2
        try:
            nccl.NcclCommunicator(size, one, rank)
        except NcclError as error:
            assert "before a capture" in str(error)
    del refused_in_capture

    comm, graph = new(), gl.cuda.CUDAGraph()  # captured in one rank only
    if rank == 0:
        with gl.cuda.graph(graph):
            reduce(comm)
    refused(NcclError, "op sum, captured; rank 1: allReduce of 8 float32, op sum", lambda: reduce(comm) if rank else graph.replay())
    comm = new()  # who does not come
    if rank == 0:
        late = "rank 0 has waited 2 s in allReduce of 8 float32, op sum for rank 1 (which has done 0 collectives), which did not come"
        refused(NcclError, late, lambda: reduce(comm))
    one = next(ids)  # both on one GPU
    gl.cuda.set_device(0)
    refused(NcclError, "duplicate GPU: ranks", lambda: nccl.NcclCommunicator(size, one, rank))
    gl.cuda.set_device(rank)
    one = next(ids)
    refused(NcclError, "says that there are", lambda: nccl.NcclCommunicator(2 + rank, one, rank))
    comm = new()  # a rank that ends
    if rank == 0:
        refused(NcclError, "rank 1 has ended", lambda: reduce(comm))


if __name__ == "__main__":
    rank, size = int(sys.argv[2]), int(sys.argv[3])
    gl.cuda.set_device(rank)
    globals()[sys.argv[1]](rank, size, [ast.literal_eval(each) for each in sys.argv[4:]])
    print(f"rank {rank} is through", flush=True)
