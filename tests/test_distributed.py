"""`gradlab.distributed` over one process: groups, every collective, and what wraps a model for many processes."""

import inspect
from datetime import timedelta

import pytest

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.distributed import ReduceOp
from gradlab.distributed.rendezvous import LAUNCHERS
from gradlab.utils.data import DataLoader, DistributedSampler, TensorDataset


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for names in LAUNCHERS.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def world():
    dist.init_process_group("gloo")
    return dist.group.WORLD


def floats(*values):
    return gl.tensor([float(v) for v in values])


# A call of each collective, and what it writes (None: what it was given stays).
X = floats(1, 2)
COLLECTIVES = {
    "all_gather": lambda out, **k: dist.all_gather([out], X, **k),
    "all_gather_coalesced": lambda out, **k: dist.all_gather_coalesced([[out]], [X], **k),
    "all_gather_into_tensor": lambda out, **k: dist.all_gather_into_tensor(out, X, **k),
    "all_reduce": lambda out, **k: dist.all_reduce(out.copy_(X), **k),
    "all_reduce_coalesced": lambda out, **k: dist.all_reduce_coalesced([out.copy_(X)], **k),
    "all_to_all": lambda out, **k: dist.all_to_all([out], [X], **k),
    "all_to_all_single": lambda out, **k: dist.all_to_all_single(out, X, [2], [2], **k),
    "broadcast": lambda out, **k: dist.broadcast(out.copy_(X), 0, **k),
    "gather": lambda out, **k: dist.gather(X, [out], 0, **k),
    "reduce": lambda out, **k: dist.reduce(out.copy_(X), 0, **k),
    "reduce_scatter": lambda out, **k: dist.reduce_scatter(out, [X], **k),
    "reduce_scatter_tensor": lambda out, **k: dist.reduce_scatter_tensor(out, X, **k),
    "scatter": lambda out, **k: dist.scatter(out, [X], 0, **k),
}
each = pytest.mark.parametrize("name", COLLECTIVES)


def test_all_collectives_are_tried():
    asynchronous = {n for n, f in vars(dist).items() if inspect.isfunction(f) and "async_op" in inspect.signature(f).parameters}
    assert asynchronous == {*COLLECTIVES, "barrier"}


@each
def test_collectives_over_one(world, name):
    for options in ({}, {"async_op": True}, {"group": world}, {"group": dist.new_group([0]), "async_op": True}):
        out = gl.zeros(2)
        work = COLLECTIVES[name](out, **options)
        assert out.tolist() == [1, 2]
        assert (work is None) == ("async_op" not in options)
        if work is not None:
            assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
            assert all(t is out for t in work.result())


@each
def test_collectives_need_a_world(name):
    with pytest.raises(ValueError, match="init_process_group"):
        COLLECTIVES[name](gl.zeros(2))


@each
def test_a_group_that_this_process_is_not_in(world, name):
    with pytest.warns(gl.GradlabWarning, match="not in the group"):
        assert COLLECTIVES[name](gl.zeros(2), group=dist.GroupMember.NON_GROUP_MEMBER, async_op=True) is None


def test_writes_are_not_recorded(world):
    leaf = gl.zeros(2, requires_grad=True)
    dist.all_gather([leaf], X)
    assert leaf.tolist() == [1, 2] and leaf.is_leaf


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: dist.all_reduce([1.0]), TypeError, "all_reduce: tensor is a tensor, not list"),
        (lambda: dist.all_reduce(X, "sum"), TypeError, "ReduceOp"),
        (lambda: dist.all_reduce(X, ReduceOp.BAND), RuntimeError, "integers"),
        (lambda: dist.all_gather([gl.zeros(2), gl.zeros(2)], X), ValueError, "1 processes, not 2"),
        (lambda: dist.all_gather([gl.zeros(3)], X), ValueError, r"\(3,\)"),
        (lambda: dist.all_gather([gl.zeros(2, dtype=gl.float64)], X), ValueError, "float64"),
        (lambda: dist.all_gather(gl.zeros(1, 2), X), TypeError, "list"),
        (lambda: dist.all_gather_into_tensor(gl.zeros(3), X), ValueError, "elements"),
        (lambda: dist.gather(X), TypeError, "gather_list"),
        (lambda: dist.scatter(X, None), TypeError, "scatter_list"),
        (lambda: dist.broadcast(X, 1), ValueError, "rank 1 is not in"),
        (lambda: dist.broadcast(X, 0, group_src=0), ValueError, "not both"),
        (lambda: dist.reduce(X, group_dst=2), ValueError, "no member 2"),
        (lambda: dist.all_to_all([gl.zeros(2)], [gl.zeros(3)]), ValueError, "shape"),
        (lambda: dist.all_to_all_single(gl.zeros(2), X, [1, 1]), ValueError, "output_split_sizes"),
        (lambda: dist.send(X, 0), ValueError, "nothing to itself"),
        (lambda: dist.recv(X), RuntimeError, "no other process"),
        (lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, X, 0)]), ValueError, "itself"),
        (lambda: dist.all_reduce(X, group="world"), TypeError, "new_group"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(world, call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_objects(world):
    given = {"a": [1, gl.ones(2)]}
    found = [None]
    dist.all_gather_object(found, given)
    assert found[0]["a"][1].tolist() == [1, 1] and found[0] is not given
    dist.gather_object(3, found)
    assert found == [3]
    dist.broadcast_object_list(found, src=0)
    assert found == [3]
    dist.scatter_object_list(found, ["x"])
    assert found == ["x"]
    with pytest.raises(ValueError, match="1 processes, not 2"):
        dist.all_gather_object([None, None], 1)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        dist.all_gather_object(found, lambda: 0)
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=1))


@pytest.mark.parametrize("op", ReduceOp)
def test_every_reduction_of_one_value(world, op):
    x = gl.tensor([3, 5])
    dist.all_reduce(x, op=op)
    assert x.tolist() == [3, 5]


def test_recorded_collectives(world):
    functional = dist.nn.functional
    for call in (
        functional.all_reduce, lambda x: functional.reduce(x, 0), lambda x: functional.broadcast(x, 0),
        lambda x: functional.all_gather(x)[0],
        lambda x: functional.gather(x)[0], lambda x: functional.scatter([x]),
        lambda x: functional.reduce_scatter(gl.empty(2), [x]),
        lambda x: functional.all_to_all([gl.empty(2)], [x])[0], lambda x: functional.all_to_all_single(gl.empty(2), x),
    ):  # fmt: skip
        x = floats(1, 2).requires_grad_()
        (call(x) ** 2).sum().backward()
        assert x.grad.tolist() == [2, 4]


# ---------------------------------------------------------------- the world


def test_before_and_after():
    assert dist.is_available() and not dist.is_initialized()
    for call in (dist.get_rank, dist.get_world_size, dist.get_backend, dist.new_group, dist.destroy_process_group, dist.barrier):
        with pytest.raises(ValueError, match="init_process_group"):
            call()
    dist.init_process_group(backend="nccl", init_method="tcp://127.0.0.1:23456", world_size=1, rank=0, timeout=timedelta(seconds=5))
    assert dist.is_initialized()
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, dist.Backend.NCCL)
    with pytest.raises(ValueError, match="twice"):
        dist.init_process_group("gloo")
    kept = dist.new_group()
    dist.destroy_process_group()
    assert not dist.is_initialized() and dist.group.WORLD is None
    dist.init_process_group()
    assert dist.get_backend() == "gloo"
    with pytest.raises(ValueError, match="destroyed"):
        dist.all_reduce(X, group=kept)


def test_groups(world):
    assert world is dist.GroupMember.WORLD and world.rank() == 0 and world.size() == 1 and world.name() == "gloo"
    group = dist.new_group([0], backend="gloo", timeout=timedelta(minutes=1))
    assert dist.get_process_group_ranks(group) == [0]
    assert (dist.get_group_rank(group, 0), dist.get_global_rank(group, 0)) == (0, 0)
    none = dist.new_group([])
    assert none == dist.GroupMember.NON_GROUP_MEMBER
    assert (dist.get_rank(none), dist.get_world_size(none)) == (-1, -1)
    for ranks in ([1], [0, 0], [-1]):
        with pytest.raises(ValueError, match="ranks"):
            dist.new_group(ranks)
    own, every = dist.new_subgroups(1)
    assert own is every[0] and own.size() == 1
    with pytest.raises(ValueError, match="multiple"):
        dist.new_subgroups(2)
    dist.destroy_process_group(group)
    with pytest.raises(ValueError, match="destroyed"):
        dist.get_rank(group)
    with pytest.raises(ValueError, match="not in the group"):
        dist.get_backend(none)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers(monkeypatch, launcher):
    size, rank = LAUNCHERS[launcher]
    monkeypatch.setenv(size, "4")
    monkeypatch.setenv(rank, "2")
    with pytest.raises(RuntimeError, match=f"{size} says that there are 4 processes"):
        dist.init_process_group("gloo", init_method="env://")
    monkeypatch.setenv(size, "1")
    monkeypatch.setenv(rank, "0")
    dist.init_process_group("gloo", init_method="env://")
    assert dist.get_world_size() == 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"world_size": 2, "rank": 0}, RuntimeError, "world_size says that there are 2"),
        ({"init_method": "tcp://host:1?world_size=3&rank=1"}, RuntimeError, "init_method says that there are 3"),
        ({"init_method": "http://host"}, RuntimeError, "env://"),
        ({"world_size": 1, "rank": 1}, ValueError, "rank 1"),
        ({"backend": "carrier-pigeon"}, ValueError, "gloo"),
        ({"timeout": 3}, TypeError, "timedelta"),
    ],
)
def test_worlds_that_are_none(options, error, text):
    with pytest.raises(error, match=text):
        dist.init_process_group(**options)
    assert not dist.is_initialized()


def test_environment(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert dist.get_node_local_rank(0) == 0
    with pytest.raises(RuntimeError, match="LOCAL_RANK"):
        dist.get_node_local_rank()
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ValueError, match="WORLD_SIZE"):
        dist.init_process_group()
    assert dist.is_gloo_available() and dist.is_backend_available("gloo")


@pytest.mark.parametrize("make", [dist.HashStore, lambda: dist.TCPStore("localhost", 0, 1, True), lambda: dist.FileStore("f", 1),
                                  lambda: dist.PrefixStore("p", dist.HashStore())])  # fmt: skip
def test_stores(make):
    store = make()
    store.set("a", "1")
    assert store.get("a") == b"1" and store.add("n", 3) == 3 and store.add("n", 2) == 5 and store.num_keys() == 2
    store.append("a", "2")
    assert store.get("a") == b"12" and store.check(["a", "n"]) and not store.check(["b"])
    assert store.compare_set("a", "12", "x") == b"x" and store.compare_set("a", "12", "y") == b"x"
    assert store.delete_key("a") and not store.delete_key("a")
    with pytest.raises(RuntimeError, match="no other process"):
        store.wait(["a"], timedelta(seconds=1))
    with pytest.raises(NotImplementedError, match="4 processes"):
        dist.TCPStore("localhost", 0, 4)


# ---------------------------------------------------------------- models


def test_distributed_data_parallel(world):
    gl.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model = nn.parallel.DistributedDataParallel(plain, find_unused_parameters=True)
    assert model.module is plain
    assert list(model.state_dict()) == [f"module.{key}" for key in plain.state_dict()]
    x = gl.randn(5, 3)
    with model.no_sync():
        assert not model.require_backward_grad_sync
        model(x).sum().backward()
    assert model.require_backward_grad_sync
    with model.join():
        model(x).sum().backward()
    assert all(p.grad is not None for p in plain.parameters())
    model.eval()
    assert not plain.training
    assert gl.equal(model(x), plain(x))
    other = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    other.load_state_dict(model.state_dict())
    assert gl.equal(other.eval()(x), plain(x))


def test_distributed_data_parallel_refuses(world):
    wrap = nn.parallel.DistributedDataParallel
    with pytest.raises(RuntimeError, match="no parameter"):
        wrap(nn.ReLU())
    with pytest.raises(ValueError, match="one device"):
        wrap(nn.Linear(1, 1), device_ids=[0, 1])
    with pytest.raises(NotImplementedError, match="autocast"):
        wrap(nn.Linear(1, 1), mixed_precision=object())
    with pytest.raises(TypeError, match="hook is a function"):
        wrap(nn.Linear(1, 1)).register_comm_hook(None, None)
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="init_process_group"):
        wrap(nn.Linear(1, 1))


def test_data_parallel(monkeypatch):
    if gl.cuda.is_available():
        with pytest.warns(gl.GradlabWarning, match="not split"):
            model = nn.DataParallel(nn.Linear(3, 2), device_ids=[0, 1])
        assert model.device_ids == [0]
        with pytest.raises(RuntimeError, match="cuda:0"):
            model(gl.ones(1, 3))
        model = nn.DataParallel(nn.Linear(3, 2).cuda(), [0])
        assert model(gl.ones(5, 3)).device == gl.device("cuda:0")
    monkeypatch.setattr(gl.cuda, "is_available", lambda: False)
    plain = nn.Linear(3, 2)
    model = nn.DataParallel(plain)
    x = gl.randn(4, 3)
    assert gl.equal(model(x), plain(x)) and model.module is plain
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert gl.equal(nn.parallel.data_parallel(plain, x), plain(x))
    assert model.device_ids == []


def test_sync_batch_norm():
    gl.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(nn.BatchNorm2d(4, momentum=0.3)), nn.BatchNorm2d(4, affine=False)).eval()
    weight = plain[1][0].weight
    model = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
    assert type(model[1][0]) is type(model[2]) is nn.SyncBatchNorm
    assert model[1][0].weight is weight and model[1][0].momentum == 0.3 and model[2].weight is None and not model[1][0].training
    assert nn.SyncBatchNorm.convert_sync_batchnorm(model)[2] is model[2]
    own, other = nn.SyncBatchNorm(4), nn.BatchNorm2d(4)
    x = gl.randn(2, 4, 3, 3)
    assert gl.equal(own(x), other(x)) and gl.equal(own.running_var, other.running_var)
    with pytest.raises(ValueError, match="dimensions"):
        own(gl.ones(4))


def test_distributed_sampler(world):
    own = DistributedSampler(range(10))
    assert sorted(own) == list(range(10))
    first = list(own)
    own.set_epoch(1)
    assert list(own) != first and sorted(own) == list(range(10))
    for count, drop in ((10, False), (10, True), (2, False), (3, False)):
        parts = [list(DistributedSampler(range(count), 3, rank, drop_last=drop)) for rank in range(3)]
        assert {len(part) for part in parts} == {len(DistributedSampler(range(count), 3, 0, drop_last=drop))}
        together = [i for part in parts for i in part]
        assert set(together) <= set(range(count)) and (drop or set(together) == set(range(count)))
    with pytest.raises(ValueError, match="rank 3"):
        DistributedSampler(range(3), 3, 3)
    data = TensorDataset(gl.arange(6))
    loader = DataLoader(data, batch_size=4, sampler=gl.utils.data.distributed.DistributedSampler(data, shuffle=False))
    assert [batch.tolist() for (batch,) in loader] == [[0, 1, 2, 3], [4, 5]]
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="init_process_group"):
        DistributedSampler(range(3))
