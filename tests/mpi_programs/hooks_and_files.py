"""Hooks of communication, wrapped models in files, checkpoints of several processes; called by wrapping.py with two processes or more."""

from __future__ import annotations

import copy
import functools
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from mpi_programs.training import BATCH, batch, loss_of, made, mlp

import gradlab as gl
import gradlab.distributed as dist
from gradlab import nn
from gradlab.distributed import checkpoint, fsdp
from gradlab.distributed.algorithms import ddp_comm_hooks
from gradlab.distributed.algorithms.ddp_comm_hooks import default_hooks
from gradlab.distributed.checkpoint import state_dict as states
from gradlab.distributed.futures import Future
from gradlab.nn.parallel import DistributedDataParallel as Wrapped
from gradlab.pytorch.compiler import is_compiling


def everywhere(value):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def place(rank):
    return Path(everywhere(tempfile.mkdtemp() if rank == 0 else None)[0])


def gradients(net, rank, size):
    x, y = batch(mlp, 0)
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    loss_of(net, x[share], y[share]).backward()
    found = np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])
    net.zero_grad()
    return found


def hooks(rank, size):
    plain = gradients(Wrapped(made(mlp), bucket_cap_mb=0.001), rank, size)
    seen = []

    def own(state, bucket):
        if not is_compiling():
            seen.append((bucket.index(), bucket.is_last(), state))
        assert [g.shape for g in bucket.gradients()] == [p.shape for p in bucket.parameters()]
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / size).then(lambda done: done.value() * 2)

    for hook, factor, room in (
        (default_hooks.allreduce_hook, 1, 0.0), (default_hooks.fp16_compress_hook, 1, 2e-3), (default_hooks.bf16_compress_hook, 1, 2e-2),
        (own, 2, 1e-6), (default_hooks.fp16_compress_wrapper(own), 2, 2e-3),
    ):  # fmt: skip
        net = Wrapped(made(mlp), bucket_cap_mb=0.001)
        net.register_comm_hook(None, hook)
        seen.clear()
        np.testing.assert_allclose(gradients(net, rank, size), factor * plain, rtol=room, atol=room * np.abs(plain).max())
        if seen:
            assert seen == [(i, i == len(net.reducer.buckets) - 1, None) for i in range(len(net.reducer.buckets))]
        with pytest.raises(RuntimeError, match="one hook"):
            net.register_comm_hook(None, hook)
        step = gl.compile(lambda x, y, net=net: (net.zero_grad(), loss_of(net, x, y).backward())[1])
        x, y = batch(mlp, 0)
        share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        for _ in range(3):
            step(x[share], y[share])
        compiled = np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])
        np.testing.assert_allclose(compiled, factor * plain, rtol=room + 1e-5, atol=(room + 1e-5) * np.abs(plain).max())
    net = Wrapped(made(mlp, rank))
    net._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    np.testing.assert_array_equal(gradients(net, rank, size), plain)
    net = Wrapped(made(mlp))
    ddp_comm_hooks.register_ddp_comm_hook(ddp_comm_hooks.DDPCommHookType.NOOP, net)
    assert len({g.tobytes() for g in everywhere(gradients(net, rank, size))}) == size
    with pytest.raises(NotImplementedError, match="PowerSGD is not offered"):
        ddp_comm_hooks.register_ddp_comm_hook(ddp_comm_hooks.DDPCommHookType.POWER_SGD, Wrapped(made(mlp)))
    for wrong, text in ((lambda s, b: b.buffer(), "returns a Future"), (lambda s, b: _ready(b.buffer()[1:]), "numbers, not")):
        net = Wrapped(made(mlp))
        net.register_comm_hook(None, wrong)
        with pytest.raises(RuntimeError, match=text):
            gradients(net, rank, size)
    with pytest.raises(TypeError, match="hook is a function"):
        Wrapped(made(mlp)).register_comm_hook(None, 3)


def _ready(value):
    future = Future()
    future.set_result(value)
    return future


def a_hook_that_raises_leaves_no_message(rank, size):
    net = Wrapped(made(mlp), bucket_cap_mb=0.001)

    def fail(state, bucket):
        if bucket.index() == 1:
            raise KeyError("planted")
        return default_hooks.allreduce_hook(None, bucket)

    net.register_comm_hook(None, fail)
    with pytest.raises(KeyError, match="planted"):
        gradients(net, rank, size)
    dist.barrier()
    x = gl.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [size] * 3


def uneven_with_a_hook(rank, size):
    net = Wrapped(made(mlp), find_unused_parameters=True)
    net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    x, y = batch(mlp, 0)
    with dist.algorithms.Join([net]):
        for _ in range(rank):  # the first process has none
            loss_of(net, x, y).backward()
    assert len({p.detach().numpy().tobytes() for p in everywhere(next(net.parameters()))}) == 1


def copies_and_files(rank, size):
    net = Wrapped(made(mlp), bucket_cap_mb=0.001)
    plain = gradients(net, rank, size)
    for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert again.module is not net.module and again.process_group is dist.group.WORLD
        assert list(again.state_dict()) == list(net.state_dict()) == [f"module.{name}" for name in net.module.state_dict()]
        np.testing.assert_array_equal(gradients(again, rank, size), plain)
    path = place(rank) / "whole.pt"
    if rank == 0:
        gl.save(net, path, pickle=True)
    dist.barrier()
    np.testing.assert_array_equal(gradients(gl.load(path, weights_only=False), rank, size), plain)


def folders(rank, size):
    """Written by all, read by another number of processes."""
    folder = place(rank) / "saved"
    net = Wrapped(made(mlp, rank))
    optimizer = gl.optim.AdamW(net.parameters(), lr=0.01)
    x, y = batch(mlp, rank)
    loss_of(net, x, y).backward()
    optimizer.step()
    model, optim = states.get_state_dict(net, optimizer)
    assert list(model) == list(net.module.state_dict())
    checkpoint.save({"model": model, "optim": optim, "epoch": 3, f"of rank {rank}": rank}, checkpoint_id=folder)
    alone = made(mlp, 9)
    other = gl.optim.AdamW(alone.parameters(), lr=0.5)
    loss_of(alone, x, y).backward()
    other.step()
    model, optim = states.get_state_dict(alone, other)
    found = {"model": model, "optim": optim, "epoch": 0, f"of rank {size - 1}": None}
    checkpoint.load(found, checkpoint_id=folder, no_dist=True)
    assert found["epoch"] == 3 and found[f"of rank {size - 1}"] == size - 1
    states.set_state_dict(alone, other, model_state_dict=found["model"], optim_state_dict=found["optim"])
    assert all(gl.equal(a, b) for a, b in zip(alone.parameters(), net.parameters(), strict=True))
    assert other.param_groups[0]["lr"] == 0.01
    assert other.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()
    with pytest.raises(checkpoint.CheckpointException, match="no key 'nothing'"):
        checkpoint.load({"nothing": 1}, checkpoint_id=folder)
    with pytest.raises(checkpoint.CheckpointException, match=r"epoch.* is .*here|model.*here"):
        checkpoint.load({"model": {next(iter(model)): gl.zeros(1)}}, checkpoint_id=folder)
    sharded = fsdp.FullyShardedDataParallel(made(mlp, 5))
    checkpoint.save({"model": sharded}, checkpoint_id=folder)
    third = made(mlp, 8)
    checkpoint.load({"model": third}, checkpoint_id=folder)
    assert gl.equal(third[0].weight, sharded.state_dict()["0.weight"])


def arguments_of_sharding(rank, size):
    wrap = fsdp.wrap
    for policy, units in (
        (functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=100), 3),
        (functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear}), 3),
        (wrap.ModuleWrapPolicy([nn.Linear]), 3), ({nn.Linear}, 3), (lambda m: False, 1),
    ):  # fmt: skip
        net = fsdp.FullyShardedDataParallel(
            made(mlp), auto_wrap_policy=policy, sharding_strategy=fsdp.ShardingStrategy.FULL_SHARD, sync_module_states=True,
            cpu_offload=fsdp.CPUOffload(offload_params=False), use_orig_params=True,
        )  # fmt: skip
        assert len(net._units) in (units, 2), len(net._units)
        np.testing.assert_allclose(net(gl.ones(2, 8)).detach().numpy(), made(mlp)(gl.ones(2, 8)).detach().numpy(), rtol=1e-6)
    with fsdp.FullyShardedDataParallel.summon_full_params(net):
        net.module[0].weight.fill_(0.5)
    with fsdp.FullyShardedDataParallel.state_dict_type(net, fsdp.StateDictType.FULL_STATE_DICT, fsdp.FullStateDictConfig(rank0_only=True)):
        state = net.state_dict()
    assert len(state) == (0 if rank else 6) and (rank or state["0.weight"].min() == 0.5)
    for wrong in ({"cpu_offload": True}, {"sharding_strategy": fsdp.ShardingStrategy.HYBRID_SHARD}, {"device_mesh": 1}):
        with pytest.raises(NotImplementedError, match="FullyShardedDataParallel: no "):
            fsdp.FullyShardedDataParallel(made(mlp), **wrong)
    with pytest.raises(NotImplementedError, match="mixed_precision"):
        fsdp.FullyShardedDataParallel(made(mlp), mixed_precision=fsdp.MixedPrecision(param_dtype=gl.bfloat16))


def objects(rank, size):
    if rank < 2:
        found = [None, None]
        if rank == 0:
            dist.send_object_list(["a", {"b": 1}], 1)
        else:
            assert dist.recv_object_list(found, 0) == 0 and found == ["a", {"b": 1}]
    assert dist.get_pg_count() == 1 and dist.get_default_backend_for_device("cuda:1") == "nccl"


def small_messages_travel_together(rank, size):
    """Two that one step reduces are one message, with the bits of two; one that depends on another is not joined, nor what lies beyond."""

    def step(x, y):
        a = dist.nn.all_reduce(x.sum())
        read = a * 2
        b = dist.nn.all_reduce(y * y)
        c = dist.nn.all_reduce(b[0] + a)
        d = dist.nn.all_reduce(y, dist.ReduceOp.MAX)
        return read, b, c, d

    runs = [gl.compile(step), gl.compile(step, passes={"join_messages": False})]
    x, y = gl.arange(6.0) / 7 + rank, gl.tensor([[0.1, rank + 0.3], [3.0, 0.7]])
    wanted = step(x, y)
    for _ in range(3):
        for run in runs:
            assert all(gl.equal(found, value) and found.shape == value.shape for found, value in zip(run(x, y), wanted, strict=True))
    assert [sum(call.op.name == "all_reduce" for call in run.graph.calls) for run in runs] == [3, 4]


CASES = [
    small_messages_travel_together, hooks, a_hook_that_raises_leaves_no_message, uneven_with_a_hook, copies_and_files, folders,
    arguments_of_sharding, objects,
]  # fmt: skip
