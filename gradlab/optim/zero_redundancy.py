"""An optimizer whose state is divided among the processes of a group (ZeRO-1; Rajbhandari et al., 2020, "ZeRO: Memory Optimizations")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gradlab import distributed
from gradlab.autograd.mode import enable_grad, no_grad
from gradlab.autograd.record import bind
from gradlab.distributed.groups import member
from gradlab.ops import collective as rows
from gradlab.optim.optimizer import Optimizer
from gradlab.tensor.shape import cat


class ZeroRedundancyOptimizer(Optimizer):
    """Each process keeps an `optimizer_class` for its share of the parameters, whole tensors of about equally many elements in all, updates
    them, and gives them to the others: the state takes 1/N of the memory, and the parameters are those of the optimizer as it is, in bits.

    Gradients are the same in all processes, as `DistributedDataParallel` makes them. Learning rates and other options of `param_groups`
    may be changed as ever. process_group: default all processes. defaults: what the optimizer is told. parameters_as_bucket_view changes
    nothing here. The state dict is that of one `optimizer_class` for all parameters, in the process to which `consolidate_state_dict` has
    brought it; it loads in any number of processes, and into that optimizer.

    ValueError before `gradlab.distributed.init_process_group`; NotImplementedError for overlap_with_ddp=True.

    >>> import gradlab as gl
    >>> group = gl.distributed.init()
    >>> model = gl.nn.Linear(2, 1)
    >>> optimizer = gl.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), gl.optim.AdamW, lr=0.01)
    >>> gl.distributed.destroy_process_group()
    """

    def __init__(
        self, params: Iterable[Any], optimizer_class: type[Optimizer], process_group: Any = None, parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False, **defaults: Any,
    ) -> None:  # fmt: skip
        group: Any = member(process_group, "ZeroRedundancyOptimizer")
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp=True would update within backward; leave it out")
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise TypeError(f"ZeroRedundancyOptimizer: optimizer_class is a class of gl.optim, not {optimizer_class!r}")
        self.process_group, self._class, self._options = group, optimizer_class, defaults
        self._every: list[dict[str, Any]] | None = None  # the states of all processes, once they were brought here
        self._sizes = [0] * group.size()
        self._owners: dict[int, int] = {}
        self.optim: Any = None
        super().__init__(params, dict(defaults))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with hyper-parameters of their own; the largest are shared out first."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in sorted(group["params"], key=lambda p: -p.numel()):
            owner = min(range(len(self._sizes)), key=lambda rank: (self._sizes[rank], rank))
            self._owners[id(p)] = owner
            self._sizes[owner] += p.numel()
        own = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        own["params"] = self._share(group["params"], self.process_group.rank())
        if self.optim is None:
            self.optim = self._class([own], **self._options)
        else:
            self.optim.add_param_group(own)
        for key, value in self.optim.param_groups[-1].items():  # what the optimizer has by default
            group.setdefault(key, value)

    def _share(self, params: Iterable[Any], rank: int) -> list[Any]:
        return [p for p in params if self._owners[id(p)] == rank]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this process's share, and take over the others'."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group, own in zip(self.param_groups, self.optim.param_groups, strict=True):
            own.update((key, value) for key, value in group.items() if key not in ("params", "param_names"))
        self.optim.step()
        self._every = None
        by = self.process_group.transport
        every = [p for group in self.param_groups for p in group["params"]]
        with no_grad():
            for rank in range(by.size if by.size > 1 else 0):
                kinds: dict[Any, list[Any]] = {}
                for p in self._share(every, rank):
                    kinds.setdefault((p.dtype, p.device), []).append(p)
                for params in kinds.values():
                    found = bind(rows.broadcast)(cat([p.detach().reshape(-1) for p in params]), by=by, root=rank)
                    at = 0
                    for p in params if rank != by.rank else ():
                        p.copy_(found[at : at + p.numel()].reshape(p.shape))
                        at += p.numel()
        return loss

    # ---------------------------------------------------------------- saving

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring all shares of the state to the process of that rank, for its `state_dict`. All processes call it."""
        here = self.process_group.rank() == distributed.get_group_rank(self.process_group, to)
        every: list[Any] | None = [None] * self.process_group.size() if here else None
        distributed.gather_object(self.optim.state_dict()["state"], every, to, self.process_group)
        self._every = every

    def state_dict(self) -> dict[str, Any]:
        """That of one optimizer for all parameters. RuntimeError where the shares were not brought here since the last step."""
        if self.process_group.size() > 1 and self._every is None:
            raise RuntimeError("ZeroRedundancyOptimizer.state_dict: call consolidate_state_dict(to) in all, then this in `to` alone")
        found: Any = super().state_dict()
        states = [self.optim.state_dict()["state"]] if self._every is None else self._every
        numbers = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        every = [p for group in self.param_groups for p in group["params"]]
        state: Any
        for rank, state in enumerate(states):
            for i, p in enumerate(self._share(every, rank)):
                if i in state:
                    found["state"][numbers[id(p)]] = state[i]
        found["state"] = dict(sorted(found["state"].items()))
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this process's share of the state of all parameters, from whatever number of processes."""
        whole = self._class([{"params": list(group["params"])} for group in self.param_groups], **self._options)
        whole.load_state_dict(state_dict)
        for group, saved, own in zip(self.param_groups, whole.param_groups, self.optim.param_groups, strict=True):
            changed = {key: value for key, value in saved.items() if key not in ("params", "param_names")}
            group.update(changed)
            own.update(changed)
            for p in own["params"]:
                if p in whole.state:
                    self.optim.state[p] = whole.state[p]
        self._every = None
