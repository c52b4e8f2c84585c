"""`gradlab.multiprocessing`: tensors whose memory processes share, however they are started."""

import copy
import gc
import multiprocessing
import os
import pickle

import pytest

import gradlab as gl
import gradlab.multiprocessing as mp
from gradlab import nn
from gradlab.dtype import ALL
from gradlab.multiprocessing.memory import block_of

import process_tasks as tasks

each_start = pytest.mark.parametrize("start", ["fork", "spawn"])
pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="descriptors are sent by sockets"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


@each_start
def test_hogwild(start):
    """As in PyTorch's example: several processes train one model, and the first sees what they have learnt."""
    gl.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    same = list(model.parameters())
    assert model.share_memory() is model
    assert all(a is b for a, b in zip(same, model.parameters(), strict=True)) and all(p.is_shared() for p in same)
    x, y = tasks.problem(9)
    before = nn.functional.mse_loss(model(x), y).item()
    processes = [mp.get_context(start).Process(target=tasks.train, args=(seed, model, 60)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert nn.functional.mse_loss(model(x), y).item() < before / 20


def test_an_optimizer_whose_state_is_shared():
    """As asynchronous reinforcement learning has it: what one process counts and averages the others go on from."""
    model = nn.Linear(4, 1).share_memory()
    optimizer = gl.optim.Adam(model.parameters(), lr=0.1)
    for p in model.parameters():
        state = optimizer.state[p]
        state["step"], state["exp_avg"], state["exp_avg_sq"] = gl.zeros(1), gl.zeros_like(p.data), gl.zeros_like(p.data)
        for value in state.values():
            value.share_memory_()
    for _ in range(2):
        mp.spawn(tasks.step_of_all, (model, optimizer), nprocs=1)
    assert [state["step"].item() for state in optimizer.state.values()] == [2, 2]
    assert all(state["exp_avg"].all() for state in optimizer.state.values())
    assert all(p.grad is None for p in model.parameters())


@each_start
def test_queues(start):
    where = mp.get_context(start)
    questions, answers = where.Queue(), where.Queue()
    process = where.Process(target=tasks.answer, args=(questions, answers))
    process.start()
    given = gl.tensor([1.0, 2.0, 3.0])
    questions.put(given)
    found = answers.get()
    process.join()
    assert given.is_shared() and given.tolist() == [2, 4, 6]
    assert found["own"].tolist() == [0, 1, 2, 3] and found["own"].dtype == gl.float64
    assert isinstance(found["layer"].weight, nn.Parameter) and found["layer"].weight.is_shared()
    found["view"].zero_()  # of the same memory still
    assert found["same"].tolist() == given.tolist() == [2, 0, 0]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype(dtype):
    x = gl.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    kept = x.tolist()
    assert x.share_memory_() is x and x.is_shared() and x.tolist() == kept
    receiver, sender = mp.Pipe(duplex=False)
    sender.send([x, x.mT[1:], gl.zeros(0, 2, dtype=dtype)])
    same, part, nothing = receiver.recv()
    assert same.dtype == dtype and part.tolist() == x.mT[1:].tolist() and nothing.shape == (0, 2)
    x.zero_()
    assert not same.any() and not part.any()


def test_what_is_shared():
    x = gl.ones(4, requires_grad=True)
    assert not x.is_shared()
    x.sum().backward()
    x.share_memory_()
    block = block_of(x._array)
    assert x.requires_grad and x.is_leaf and x.grad.tolist() == [1] * 4
    assert x.share_memory_() is x and block_of(x._array) is block
    assert x.detach().is_shared() and x.detach()[1:].is_shared() and x.data.is_shared()
    assert not (x * 2).is_shared() and not x.detach().clone().is_shared()
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert not twin.is_shared() and twin.tolist() == x.tolist() and twin.requires_grad


def test_strides_stay():
    x = gl.randn(2, 3, 4, 5).to(memory_format=gl.channels_last)
    kept = x.clone()
    assert x.share_memory_().stride() == (60, 1, 15, 3) and gl.equal(x, kept)


def test_parameters_and_buffers_arrive_as_such():
    receiver, sender = mp.Pipe(duplex=False)
    sender.send([nn.Parameter(gl.ones(2), requires_grad=False), nn.Buffer(gl.zeros(1), persistent=False), gl.ones(1, requires_grad=True)])
    parameter, buffer, leaf = receiver.recv()
    assert type(parameter) is nn.Parameter and not parameter.requires_grad
    assert type(buffer) is nn.Buffer and buffer.persistent is False and leaf.requires_grad
    with pytest.raises(RuntimeError, match="detach"):
        sender.send(leaf * 2)


def test_a_graph_notices():
    x = gl.ones(2, requires_grad=True)
    y = (x * x).sum()
    x.share_memory_()
    with pytest.raises(RuntimeError, match="modified by an in-place"):
        y.backward()


@pytest.mark.alone
def test_memory_goes_with_its_last_user():
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("the system does not list open files")
    receiver, sender = mp.Pipe(duplex=False)
    sender.send(gl.ones(3))  # the first one starts a thread
    receiver.recv()
    before = descriptors()
    for _ in range(20):
        sender.send(gl.ones(3))
        assert receiver.recv().tolist() == [1, 1, 1]
    assert descriptors() == before


def test_a_sender_that_is_gone():
    found = pickle.dumps(3)
    with pytest.raises(RuntimeError, match="must live until then"):
        mp.memory._arrived_block(type("Gone", (), {"detach": lambda self: (_ for _ in ()).throw(EOFError())})(), len(found))


def test_pool():
    with mp.Pool(2) as pool:
        assert [x.tolist() for x in pool.map(tasks.double, [gl.ones(2), gl.zeros(1)])] == [[2, 2], [0]]


def test_spawn():
    x = gl.zeros(3).share_memory_()
    mp.spawn(_add_at, args=(x,), nprocs=2)
    assert x.tolist() == [1, 1, 0]
    context = mp.start_processes(_add_at, (x,), nprocs=3, join=False, start_method="fork")
    assert len(context.pids()) == 3
    while not context.join():
        pass
    assert x.tolist() == [2, 2, 1]


def _add_at(index, tensor):
    tensor[index] += 1


@pytest.mark.parametrize(
    ("where", "kind", "text"),
    [
        ("raise", mp.ProcessRaisedException, "the second process has had enough"),
        ("kill", mp.ProcessExitedException, "SIGKILL"),
        ("exit", mp.ProcessExitedException, "exit code 7"),
    ],
)
@pytest.mark.alone
def test_a_process_that_fails_ends_the_others(where, kind, text):
    with pytest.raises(kind, match=text) as caught:
        mp.start_processes(tasks.failing, (where,), nprocs=3, start_method="fork")
    assert caught.value.error_index == 1
    assert multiprocessing.active_children() == []
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_names(monkeypatch):
    missing = [name for name in multiprocessing.__all__ if not hasattr(mp, name)]
    assert missing == []
    assert mp.Process is multiprocessing.Process and mp.queues is multiprocessing.queues
    with pytest.raises(AttributeError, match="Proces"):
        mp.Proces
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    with pytest.raises(ValueError, match="file_system"):
        mp.set_sharing_strategy("carrier_pigeon")
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        mp.set_sharing_strategy("file_system")
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1] and mp.get_sharing_strategy() == "file_system"
    finally:
        mp.set_sharing_strategy("file_descriptor")
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_gpu_s_tensor_stays_where_it_is():
    if not gl.cuda.is_available():
        pytest.skip("needs a GPU, or GRADLAB_CUDA=emulated")
    x = gl.ones(2, device="cuda")
    assert x.share_memory_() is x and x.is_shared()
    receiver, sender = mp.Pipe(duplex=False)
    sender.send(x)
    assert receiver.recv().device == x.device
