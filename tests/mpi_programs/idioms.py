"""What scripts of PyTorch's tutorials write about several processes, as they write it; run under mpiexec, or by `gradlab launch`."""

import gradlab.as_torch  # noqa: F401, I001 - first: from here on torch is gradlab

import functools
import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
import torch.nn.functional as F
from torch import optim
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as default
from torch.distributed.algorithms.join import Join
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import CPUOffload, FullStateDictConfig, FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


def demo_basic(rank, world_size):
    """intermediate/ddp_tutorial: spawned, a step."""
    setup(rank, world_size)
    model = ToyModel()
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    cleanup()


def demo_checkpoint(rank, world_size):
    """The same page: rank 0 saves, all load with map_location."""
    setup(rank, world_size)
    ddp_model = DDP(ToyModel())
    CHECKPOINT_PATH = tempfile.gettempdir() + f"/model-{os.environ.get('OMPI_COMM_WORLD_JOBID', os.getppid())}.checkpoint"
    if rank == 0:
        torch.save(ddp_model.state_dict(), CHECKPOINT_PATH)
    dist.barrier()
    ddp_model.load_state_dict(torch.load(CHECKPOINT_PATH, map_location={"cuda:0": f"cuda:{rank}"}, weights_only=True))
    dist.barrier()
    if rank == 0:
        os.remove(CHECKPOINT_PATH)
    cleanup()


class MyTrainDataset(Dataset):
    def __init__(self, size):
        self.size = size
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    """beginner/ddp_series_fault_tolerance: torchrun's variables, snapshots."""

    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            self._load_snapshot(snapshot_path)
        self.model = DDP(self.model, device_ids=None)

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path, map_location="cpu")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.cross_entropy(output, targets) if output.shape[1] > 1 else F.mse_loss(output, targets)
        loss.backward()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            self._run_batch(source, targets)

    def _save_snapshot(self, epoch):
        torch.save({"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}, self.snapshot_path)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self._run_epoch(epoch)
            if self.local_rank == 0 and epoch % self.save_every == 0:
                self._save_snapshot(epoch)


@record
def torchrun_main():
    dist.init_process_group(backend="gloo", init_method="env://", timeout=timedelta(seconds=120))
    assert int(os.environ["WORLD_SIZE"]) == dist.get_world_size() and os.environ["MASTER_ADDR"]
    path = [tempfile.mkdtemp()]
    dist.broadcast_object_list(path, src=0)
    train_set = MyTrainDataset(32)
    train_data = DataLoader(train_set, batch_size=4, pin_memory=False, shuffle=False, sampler=DistributedSampler(train_set))
    for epochs in (2, 3):  # the second goes on
        torch.manual_seed(1)
        model = nn.Linear(20, 1)
        trainer = Trainer(model, train_data, torch.optim.SGD(model.parameters(), lr=1e-3), 1, path[0] + "/snapshot.pt")
        assert trainer.epochs_run == (0 if epochs == 2 else 2)
        trainer.train(epochs)
        dist.barrier()
    cleanup()


def fsdp_main(rank, world_size):
    """intermediate/FSDP_tutorial."""
    setup(rank, world_size)
    my_auto_wrap_policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    model = FSDP(ToyModel(), auto_wrap_policy=my_auto_wrap_policy, cpu_offload=CPUOffload(offload_params=False),
                 sharding_strategy=ShardingStrategy.FULL_SHARD, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)  # fmt: skip
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    ddp_loss = torch.zeros(2)
    for _ in range(2):
        optimizer.zero_grad()
        output = F.log_softmax(model(torch.randn(6, 10)), dim=1)
        loss = F.nll_loss(output, torch.randint(0, 5, (6,)), reduction="sum")
        loss.backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += 6
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    assert ddp_loss[1] == 12 * world_size
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
        cpu_state = model.state_dict()
    assert bool(cpu_state) == (rank == 0)
    functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear})
    cleanup()


def join_and_zero(rank, world_size):
    """advanced/generic_join and recipes/zero_redundancy_optimizer."""
    setup(rank, world_size)
    model = DDP(nn.Linear(1, 1))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    inputs = [torch.tensor([1.0]) for _ in range(5 + rank)]
    seen = 0
    with Join([model]):
        for x in inputs:
            seen += 1
            model(x).sum().backward()
    optimizer.step()
    assert seen == 5 + rank
    cleanup()


def hooks(rank, world_size):
    """The page of communication hooks."""
    setup(rank, world_size)
    model = DDP(ToyModel())
    model.register_comm_hook(dist.group.WORLD, default.bf16_compress_hook)
    model(torch.randn(4, 10)).sum().backward()

    def encode_and_decode(process_group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        fut = dist.all_reduce(bucket.buffer() / process_group.size(), group=process_group, async_op=True).get_future()
        return fut.then(lambda fut: fut.value()[0])

    other = DDP(ToyModel())
    other.register_comm_hook(dist.distributed_c10d._get_default_group(), encode_and_decode)
    other(torch.randn(4, 10)).sum().backward()
    assert isinstance(dist.all_reduce(torch.ones(1), async_op=True).get_future(), torch.futures.Future)
    cleanup()


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def dist_tuto(rank, size):
    """intermediate/dist_tuto: point to point, collectives, a step by hand."""
    setup(rank, size)
    tensor = torch.zeros(1)
    req = None
    if rank == 0:
        tensor += 1
        req = dist.isend(tensor=tensor, dst=1)
    elif rank == 1:
        req = dist.irecv(tensor=tensor, src=0)
    if req is not None:
        req.wait()
        assert tensor[0] == 1
    group = dist.new_group(list(range(size)))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
    assert tensor[0] == size
    torch.manual_seed(1234)
    model = ToyModel()
    model(torch.full((2, 10), rank + 1.0)).sum().backward()
    average_gradients(model)
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    gathered = [None for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, {"rank": rank})
    assert [g["rank"] for g in gathered] == list(range(size))
    cleanup()


class AppState:
    """recipes/distributed_checkpoint_recipe."""

    def __init__(self, model, optimizer=None):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(self.model, self.optimizer, model_state_dict=state_dict["model"], optim_state_dict=state_dict["optim"])


def checkpoint_recipe(rank, world_size):
    setup(rank, world_size)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    model = DDP(ToyModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    model(torch.rand(8, 10)).sum().backward()
    optimizer.step()
    dcp.save({"app": AppState(model, optimizer)}, checkpoint_id=folder[0])
    saved = [p.detach().clone() for p in model.parameters()]
    model(torch.rand(8, 10)).sum().backward()
    optimizer.step()
    dcp.load(state_dict={"app": AppState(model, optimizer)}, checkpoint_id=folder[0])
    assert all(torch.equal(a, b) for a, b in zip(saved, model.parameters()))
    cleanup()


def imagenet(rank, world_size):
    """examples/imagenet: metrics summed over processes, samplers of training and validation."""
    setup(rank, world_size)
    data = TensorDataset(torch.randn(37, 10), torch.randint(0, 5, (37,)))
    train_sampler = torch.utils.data.distributed.DistributedSampler(data)
    val_sampler = torch.utils.data.distributed.DistributedSampler(data, shuffle=False, drop_last=True)
    train_loader = DataLoader(data, batch_size=8, shuffle=(train_sampler is None), num_workers=0, sampler=train_sampler)
    val_loader = DataLoader(data, batch_size=8, sampler=val_sampler)
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)))
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=False, gradient_as_bucket_view=True, static_graph=False)
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    for epoch in range(2):
        train_sampler.set_epoch(epoch)
        for i, (images, target) in enumerate(train_loader):
            with model.no_sync() if i % 2 == 0 and i + 1 < len(train_loader) else torch.enable_grad():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(images), target)
                scaler.scale(loss).backward()
            if i % 2 or i + 1 == len(train_loader):
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    model.eval()
    correct = torch.zeros(2)
    with torch.no_grad():
        for images, target in val_loader:
            correct += torch.tensor([(model(images).argmax(1) == target).sum().item(), len(target)])
    dist.all_reduce(correct, dist.ReduceOp.SUM, async_op=False)
    assert correct[1] == 37 // world_size * world_size
    weights = [torch.empty_like(model.module[0].weight) for _ in range(world_size)]
    dist.all_gather(weights, model.module[0].weight.detach())
    assert all(torch.equal(w, weights[0]) for w in weights)
    cleanup()


if __name__ == "__main__":
    world_size = int(os.environ["WORLD_SIZE"])
    mp.set_start_method("spawn", force=True)
    for demo in (demo_basic, demo_checkpoint, fsdp_main, join_and_zero, hooks, dist_tuto, checkpoint_recipe, imagenet):
        mp.spawn(demo, args=(world_size,), nprocs=world_size, join=True)
    torchrun_main()
    print(f"as written, {sys.argv[1:]}", flush=True)
