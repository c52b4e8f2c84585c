"""Pruning: entries of a weight that are kept at zero by a mask. Names and meanings follow PyTorch.

A pruned `weight` is computed before each forward from the parameter `weight_orig` and the buffer `weight_mask`; `remove` makes its zeros
final. Pruning again prunes among what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from gradlab.named_errors import named_functions
from gradlab.nn.module import Module
from gradlab.tensor import Tensor
from gradlab.tensor.creation import ones_like
from gradlab.tensor.random import rand
from gradlab.tensor.shape import cat

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip

M = TypeVar("M", bound=Module)


def _number(amount: float, total: int) -> int:
    """How many of `total` an amount means: a share from 0 to 1, or an integer."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(f"prune: amount is a share (float) or a number (int), not {type(amount).__name__}")
    if isinstance(amount, int):
        if not 0 <= amount <= total:
            raise ValueError(f"prune: amount {amount} is not from 0 to the {total} there are")
        return amount
    if not 0.0 <= amount <= 1.0:
        raise ValueError(f"prune: amount {amount} is not a share from 0 to 1")
    return round(amount * total)


def _without_least(scores: Tensor, number: int) -> Tensor:
    """A mask of a vector's elements without the `number` least."""
    mask = ones_like(scores)
    if number:
        mask[scores.topk(number, largest=False).indices] = 0
    return mask


class BasePruningMethod:
    """A way of pruning; a subclass says its PRUNING_TYPE ("unstructured", "structured" or "global") and defines `compute_mask`."""

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask of a tensor of importance scores `t`; what `default_mask` prunes stays pruned."""
        raise NotImplementedError(f"{type(self).__name__} has no compute_mask(): define which entries stay")

    def apply_mask(self, module: Module) -> Tensor:
        """The tensor as it is pruned now."""
        original: Any = getattr(module, self._tensor_name + "_orig")
        return original * getattr(module, self._tensor_name + "_mask").to(original.dtype)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor."""
        start = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, start)

    @classmethod
    def apply(cls, module: M, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> M:
        """Prune `module`'s parameter of that name in this way; the arguments are those of the class."""
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _method(module, name)
        if earlier is None:
            original = module._parameters.get(name)
            if original is None:
                raise AttributeError(f"prune: {type(module).__name__} has no parameter {name!r}")
            start = ones_like(original.detach())
            values = original.detach()
        else:
            start, values = getattr(module, name + "_mask"), getattr(module, name).detach()
        scores = values if importance_scores is None else importance_scores.detach()
        if tuple(scores.shape) != tuple(start.shape):
            raise ValueError(f"prune: importance_scores of shape {scores.shape} for a tensor of shape {start.shape}")
        mask = method.compute_mask(scores, start).to(start.dtype)
        if earlier is None:
            delattr(module, name)
            module.register_parameter(name + "_orig", original)
            module.register_buffer(name + "_mask", mask)
            module.register_forward_pre_hook(method)
        else:
            key, hook = earlier
            module._buffers[name + "_mask"] = mask
            chain = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            chain._tensor_name = name
            chain.add_pruning_method(method)
            module._forward_pre_hooks[key] = chain
            method = chain
        setattr(module, name, method.apply_mask(module))
        return module

    def remove(self, module: Module) -> None:
        """Make the zeros final: the tensor is a parameter again."""
        name = self._tensor_name
        earlier = _method(module, name)
        if earlier is None:
            raise ValueError(f"prune.remove: {name!r} of {type(module).__name__} is not pruned")
        parameter = module._parameters[name + "_orig"]
        assert parameter is not None
        parameter.data = self.apply_mask(module).detach()
        del module._forward_pre_hooks[earlier[0]]
        for part in (name, name + "_orig", name + "_mask"):
            delattr(module, part)
        module.register_parameter(name, parameter)


class PruningContainer(BasePruningMethod):
    """The ways in which one tensor was pruned, one after another."""

    def __init__(self, *methods: BasePruningMethod) -> None:
        self._pruning_methods = tuple(methods)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add one behind the others."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"add_pruning_method: a pruning method, not {type(method).__name__}")
        self._pruning_methods = (*self._pruning_methods, method)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """That of the last one."""
        return self._pruning_methods[-1].compute_mask(t, default_mask)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]


class Identity(BasePruningMethod):
    """Prunes nothing: the mask is there, for one to set."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it is."""
        return default_mask


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What both masks leave."""
        return default_mask * self.mask.to(default_mask.dtype)


class _Unstructured(BasePruningMethod):
    """Prunes that many of the entries that are left, those with the least scores."""

    def __init__(self, amount: float) -> None:
        _number(amount, int(amount) if isinstance(amount, int) and amount > 0 else 0)
        self.amount = amount

    def scores(self, t: Tensor) -> Tensor:
        """What the entries are worth."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask without the least of what it leaves."""
        flat = default_mask.flatten().clone()
        left = flat.nonzero().flatten()
        flat[left] = _without_least(self.scores(t).flatten()[left], _number(self.amount, left.numel())).to(flat.dtype)
        return flat.reshape(default_mask.shape)


class L1Unstructured(_Unstructured):
    """Prunes the entries of least magnitude."""

    def scores(self, t: Tensor) -> Tensor:
        """Their magnitudes."""
        return t.abs()


class RandomUnstructured(_Unstructured):
    """Prunes entries at random."""

    def scores(self, t: Tensor) -> Tensor:
        """Random numbers."""
        return rand(*t.shape, device=t.device)


class _Structured(BasePruningMethod):
    """Prunes whole channels along a dimension."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _number(amount, int(amount) if isinstance(amount, int) and amount > 0 else 0)
        self.amount, self.dim = amount, dim

    def scores(self, channels: Tensor) -> Tensor:
        """What the rows of a matrix are worth."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask without the channels worth least among those of which something is left."""
        if t.ndim < 2:
            raise ValueError(f"prune: channels are pruned of tensors of 2 dimensions and more, not {t.ndim}; use l1_unstructured")
        left = default_mask.movedim(self.dim, 0).flatten(1).sum(1).nonzero().flatten()
        scores = self.scores(t.movedim(self.dim, 0).flatten(1))
        channels = ones_like(scores)
        channels[left] = _without_least(scores[left], _number(self.amount, left.numel()))
        shape = [1] * t.ndim
        shape[self.dim] = -1
        return default_mask * channels.reshape(*shape).to(default_mask.dtype)


class LnStructured(_Structured):
    """Prunes the channels of least n-norm."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, channels: Tensor) -> Tensor:
        """Their norms."""
        return channels.norm(p=self.n, dim=1)


class RandomStructured(_Structured):
    """Prunes channels at random."""

    def scores(self, channels: Tensor) -> Tensor:
        """Random numbers."""
        return rand(channels.shape[0], device=channels.device)


def _method(module: Module, name: str) -> tuple[Any, Any] | None:
    """The key and the hook that prunes that tensor."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def identity(module: M, name: str) -> M:
    """Give a parameter a mask of ones. Returns the module, as all these functions do.

    >>> from gradlab import nn
    >>> sorted(nn.utils.prune.identity(nn.Linear(2, 2), "weight").state_dict())
    ['bias', 'weight_mask', 'weight_orig']
    """
    return Identity.apply(module, name)


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prune a share (float) or a number (int) of a parameter's entries at random.

    >>> from gradlab import nn
    >>> int((nn.utils.prune.random_unstructured(nn.Linear(4, 4), "weight", amount=5).weight_mask == 0).sum())
    5
    """
    return RandomUnstructured.apply(module, name, amount=amount)


def l1_unstructured(module: M, name: str, amount: float, importance_scores: Tensor | None = None) -> M:
    """Prune a share (float) or a number (int) of a parameter's entries, those of least magnitude, or of least importance_scores.

    >>> from gradlab import nn
    >>> int((nn.utils.prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.25).weight_mask == 0).sum())
    4
    """
    return L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prune a share or a number of the channels along `dim` at random.

    >>> from gradlab import nn
    >>> nn.utils.prune.random_structured(nn.Linear(4, 4), "weight", amount=1, dim=0).weight_mask.sum().item()
    12.0
    """
    return RandomStructured.apply(module, name, amount=amount, dim=dim)


def ln_structured(module: M, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> M:
    """Prune a share or a number of the channels along `dim`, those of least n-norm.

    >>> from gradlab import nn
    >>> nn.utils.prune.ln_structured(nn.Linear(4, 4), "weight", amount=0.5, n=2, dim=1).weight_mask.sum().item()
    8.0
    """
    return LnStructured.apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune a parameter where a mask of its shape is 0.

    >>> import gradlab as gl
    >>> from gradlab import nn
    >>> layer = nn.utils.prune.custom_from_mask(nn.Linear(2, 2), "bias", gl.tensor([0, 1]))
    >>> layer.bias[0].item()
    0.0
    """
    return CustomFromMask.apply(module, name, mask=mask)


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod], importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune the entries of several parameters, (module, name) each, as if they were one: the least of all.

    importance_scores: {(module, name): tensor}. TypeError for a structured method.

    >>> from gradlab import nn
    >>> a, b = nn.Linear(4, 4), nn.Linear(4, 1)
    >>> nn.utils.prune.global_unstructured([(a, "weight"), (b, "weight")], nn.utils.prune.L1Unstructured, amount=10)
    >>> int((a.weight_mask == 0).sum() + (b.weight_mask == 0).sum())
    10
    """
    places = list(parameters)
    if not isinstance(pruning_method, type) or pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError("global_unstructured: an unstructured pruning method is expected")
    known = importance_scores or {}
    scores, masks = [], []
    for module, name in places:
        value = getattr(module, name).detach()
        scores.append(known.get((module, name), value).detach().flatten())
        masks.append(getattr(module, name + "_mask", ones_like(value)).flatten())
    mask = pruning_method(**kwargs).compute_mask(cat(scores), cat(masks))
    begin = 0
    for (module, name), part in zip(places, masks, strict=True):
        shape = getattr(module, name).shape
        custom_from_mask(module, name, mask[begin : begin + part.numel()].reshape(*shape))
        begin += part.numel()


def remove(module: M, name: str) -> M:
    """Make a pruned parameter's zeros final. ValueError if it is not pruned.

    >>> from gradlab import nn
    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.25)
    >>> sorted(nn.utils.prune.remove(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    found = _method(module, name)
    if found is None:
        raise ValueError(f"prune.remove: {name!r} of {type(module).__name__} is not pruned")
    found[1].remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned.

    >>> from gradlab import nn
    >>> nn.utils.prune.is_pruned(nn.Linear(2, 2))
    False
    """
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


named_functions(__name__)
