"""The base of all optimizers: parameter groups, state, hooks."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradlab.autograd.mode import current
from gradlab.dtype import FLOAT32
from gradlab.named_errors import explain, name_classes
from gradlab.nn.parameter import zero_gradient
from gradlab.optim import advice
from gradlab.optim.hooks import (
    GLOBAL_POST_HOOKS,
    GLOBAL_PRE_HOOKS,
    STATE_HOOKS,
    OptimizerHooks,
    register_optimizer_step_post_hook as register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook as register_optimizer_step_pre_hook,
)
from gradlab.optim.minimizing import Minimizing
from gradlab.tensor import Tensor
from gradlab.tensor.creation import tensor

Group = dict[str, Any]


class _Required:
    """Marks a hyper-parameter without default."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` with the hooks of its optimizer before and after."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        for before in [*GLOBAL_PRE_HOOKS.values(), *self._pre_hooks.values()]:
            changed = before(self, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"a step pre-hook returns None or a tuple (args, kwargs), not {changed!r}")
                args, kwargs = changed
        try:
            result = step(self, *args, **kwargs) if self._offload is None else self._offload(step, self, *args, **kwargs)
        except Exception as error:
            explain(error, f"{type(self).__name__}.step", step, (self, *args), kwargs)
        self._stepped = True
        self._steps = steps = self._steps + 1
        if steps <= advice.FIRST or not steps & 63 or not steps & (steps - 1):
            advice.look(self, steps)
        for after in [*self._post_hooks.values(), *GLOBAL_POST_HOOKS.values()]:
            after(self, args, kwargs)
        return result

    return wrapped


class Optimizer(OptimizerHooks, Minimizing):
    """Base class. A subclass gives `step`.

    params: an iterable of tensors, of (name, tensor) pairs, or of dicts (groups) with "params" and hyper-parameters of their own.
    defaults: hyper-parameters of groups that do not give them.
    Raises TypeError or ValueError for an empty list, things that are not leaf tensors, a parameter in two groups.
    """

    decisive: tuple[str, ...] = ()  # hyper-parameters that say, by being 0 or not, what a step does
    unread: tuple[str, ...] = ("foreach", "fused", "capturable")  # options that no step reads, but for a parameter's first
    by_parameter = False  # whether each parameter's update asks for no other: steps may take some at a time
    _steps = 0
    _stepped = False  # read by learning rate schedulers
    _offload: Any = None  # how steps run whose state is on the host: `offload_state`
    _watch: Any = None  # what advice.look knows of earlier steps
    _own: tuple[str, ...] = ("_watch", "_pre_hooks", "_post_hooks", *STATE_HOOKS)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name_classes(cls, "__init__ add_param_group load_state_dict")
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """What a step needs is there, also where a subclass leaves `__init__` out: one that wraps another optimizer, say."""
        made = super().__new__(cls)
        made._pre_hooks, made._post_hooks = {}, {}
        for table in STATE_HOOKS:
            setattr(made, table, {})
        return made

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got one tensor; put it into a list"
            )
        if defaults.get("foreach") and defaults.get("fused"):
            raise RuntimeError(f"{type(self).__name__}: foreach and fused cannot both be True")
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[Group] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle has: everything but hooks, what was prepared for steps, and what is known of earlier ones."""
        return {name: value for name, value in self.__dict__.items() if name not in self._own}

    def __reduce_ex__(self, protocol: Any) -> Any:
        return super().__reduce_ex__(max(protocol, 2))  # the older protocols leave `__new__` out

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what `__getstate__`, or a state dict, has. A subclass may fill in what older files lack."""
        self.__dict__.update(state)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    # ------------------------------------------------------------ groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with hyper-parameters of their own, for example when layers are unfrozen during training."""
        if not isinstance(param_group, dict):
            raise TypeError(f"{type(self).__name__}.add_param_group: param_group must be a dict, but got {type(param_group).__name__}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, (set, frozenset)):
            raise TypeError("optimizer parameters need to be in an ordered collection, but a set has no order; use a list")
        group["params"] = self._named(group, list(params))
        group["params"] = [p if getattr(p, "_bearer", None) is None else p._bearer for p in group["params"]]  # a sparse leaf: its values
        for param in group["params"]:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is a {type(param).__name__}")
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor: it is computed from others, and they are what is to be optimized")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        if len({id(p) for p in group["params"]}) != len(group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; such a parameter is updated twice in a step", stacklevel=3
            )
        known = {id(p) for other in self.param_groups for p in other["params"]}
        if not known.isdisjoint(id(p) for p in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def _named(self, group: Group, params: list[Any]) -> list[Any]:
        """Split (name, tensor) pairs; all parameters have names, or none has."""
        named = [isinstance(p, tuple) for p in params]
        if any(named) and not all(named):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        if self.param_groups and params and any(named) != ("param_names" in self.param_groups[0]):
            what = "with names" if any(named) else "without names"
            raise ValueError(
                f"all optimizer param groups should be with/without names. cannot add param group {what} to the optimizer"
            )
        if any(named):
            group["param_names"] = [name for name, _ in params]
            return [p for _, p in params]
        return params

    # ------------------------------------------------------------ stepping

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or, with set_to_none=False, fill them with zeros)."""
        traced = current().tracer is not None
        for group in self.param_groups:
            for p in group["params"]:
                if p._grad is None:
                    continue
                if set_to_none:
                    if traced:
                        p.grad = None
                    else:
                        p._grad = None
                else:
                    zero_gradient(p)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        raise NotImplementedError(f"{type(self).__name__} has no step(); a subclass of Optimizer defines it")

    # ------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters by number. Tensors are copies: later steps do not change what was saved."""
        for before in self._state_dict_pre_hooks.values():
            before(self)
        numbers: OrderedDict[int, int] = OrderedDict()
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
        groups = [
            {**{k: _copied(v) for k, v in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(k)] if isinstance(k, Tensor) else k: _copied(v) for k, v in self.state.items()}
        found = {"state": state, "param_groups": groups}
        for after in self._state_dict_post_hooks.values():
            changed = after(self, found)
            found = found if changed is None else changed
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`: tensors are copied, in their parameter's dtype and on its device.

        Raises ValueError where groups or their sizes do not match; the optimizer is then as it was.
        """
        for before in self._load_state_dict_pre_hooks.values():
            changed = before(self, state_dict)
            state_dict = state_dict if changed is None else changed
        for key in ("state", "param_groups"):
            if key not in state_dict:
                raise KeyError(f"an optimizer's state dict has {key!r}; this one has {sorted(map(str, state_dict))}")
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, this optimizer has {len(self.param_groups)}"
            )
        params: dict[Any, Any] = {}
        groups = []
        for i, (old, new) in enumerate(zip(self.param_groups, saved, strict=True)):
            if len(old["params"]) != len(new["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of optimizer's group: "
                    f"group {i} has {len(new['params'])} parameters there, {len(old['params'])} here"
                )
            params.update(zip(new["params"], old["params"], strict=True))
            group = {k: _copied(v) for k, v in new.items() if k != "params"}
            kept = {k: v for k, v in old.items() if k == "param_names" or k in self.defaults}  # of options that the file does not know
            groups.append({**kept, **group, "params": old["params"]})
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            param = params.get(key)
            state[key if param is None else param] = _copied(value) if param is None else _fitted(param, value, self._offload is not None)
        self.__setstate__({"state": state, "param_groups": groups})
        for after in self._load_state_dict_post_hooks.values():
            after(self)


name_classes(Optimizer, "__init__ add_param_group load_state_dict")


def _copied(value: Any) -> Any:
    """A copy that shares no tensor with `value`."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


COUNTERS = frozenset(("step", "eta", "mu", "mu_product"))  # 0-d state, in float32 whatever the parameter is


def follow(state: dict[str, Any], names: tuple[str, ...], dtype: Any) -> None:
    """Let buffers be of the dtype of their parameter, which may have got another one (`model.double()`)."""
    for name in names:
        buffer = state.get(name)
        if name not in COUNTERS and buffer is not None and buffer._array.dtype != dtype:
            state[name] = buffer.to(dtype)


def _fitted(param: Tensor, value: dict[str, Any], on_host: bool) -> dict[str, Any]:
    """One parameter's state, copied; the elementwise buffers get the parameter's dtype, 0-d counters keep theirs. on_host: all but the
    counters stay in the host's memory.

    Arrays, tensors of other libraries and counters that older files keep as numbers become tensors.
    """
    found = {}
    for key, v in value.items():
        if key in COUNTERS and isinstance(v, (int, float)):
            v = counter(param, v)
        elif not isinstance(v, Tensor) and hasattr(v, "__array__"):
            v = tensor(np.asarray(v))
        if isinstance(v, Tensor):
            v = v.detach()
            if key not in COUNTERS and v.shape == param.shape and param.is_floating_point():
                v = v.to(param.dtype)
            found[key] = v.to("cpu" if on_host and v.shape else param.device).clone()
        else:
            found[key] = _copied(v)
    return found


def counter(p: Tensor, value: float = 0) -> Tensor:
    """A 0-d number on the parameter's device: counted steps and the like, which a static program keeps as state."""
    return p.new_full((), value, dtype=FLOAT32)
