"""What is prepared and how (`QConfig`), stubs, and batch norms that go into the layer before them, under PyTorch's names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.ao.observers import (
    FakeQuantize,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)

BACKENDS = ("x86", "fbgemm", "qnnpack", "onednn")


class QConfig(NamedTuple):
    """activation() makes the observer of a layer's inputs (a FakeQuantize in training; PlaceholderObserver: they are rounded by the range
    of each call; one without `calculate_qparams`, as NoopObserver: they stay as they are). Weights are symmetric int8 with a scale for each
    output channel, whatever `weight` makes."""

    activation: Callable[[], Any]
    weight: Callable[[], Any]


default_observer = MinMaxObserver.with_args()
default_fake_quant = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver)
_weights = PerChannelMinMaxObserver.with_args()
default_qconfig = default_per_channel_qconfig = QConfig(default_observer, _weights)
default_qat_qconfig = default_qat_qconfig_v2 = QConfig(default_fake_quant, _weights)
default_dynamic_qconfig = per_channel_dynamic_qconfig = QConfig(PlaceholderObserver, _weights)
_by_call = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, averaging_constant=1, is_dynamic=True)
default_dynamic_qat_qconfig = QConfig(_by_call, _weights)
default_weight_only_qconfig = QConfig(NoopObserver, _weights)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """How layers are calibrated: by the smallest and largest input. The same for every backend; version: as in PyTorch, ignored."""
    _known("get_default_qconfig", backend)
    return default_qconfig


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """How layers are trained: rounding by averages of what batches had."""
    _known("get_default_qat_qconfig", backend)
    return default_qat_qconfig


def _known(name: str, backend: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"{name}: backend is one of {', '.join(BACKENDS)}, not {backend!r}")


class QuantStub(nn.Identity):
    """Where PyTorch's models begin to be quantised; layers here round their own inputs, so that it changes nothing."""

    def __init__(self, qconfig: QConfig | None = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig


class DeQuantStub(QuantStub):
    """Where PyTorch's models end to be quantised; it changes nothing."""


class QuantWrapper(nn.Module):
    """A model between both stubs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module
        if hasattr(module, "qconfig"):
            self.qconfig = module.qconfig

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.dequant(self.module(self.quant(x)))
        return found


def fuse_modules(
    model: nn.Module, modules_to_fuse: Sequence[Any], inplace: bool = False, fuser_func: Any = None, fuse_custom_config_dict: Any = None
) -> nn.Module:
    """A model in evaluation mode whose batch norms are part of the layers before them: the names of such layers, one after the other, as
    ["conv", "bn", "relu"], or several lists of these. A batch norm becomes nn.Identity; a ReLU stays where it is: programs join it.

    ValueError for other kinds of layers, and for a batch norm in training mode (`fuse_modules_qat` is for that in PyTorch).
    """
    if fuser_func is not None or fuse_custom_config_dict is not None:
        raise NotImplementedError("fuse_modules: fuser_func and fuse_custom_config_dict stay None")
    model = model if inplace else copy.deepcopy(model)
    lists = [modules_to_fuse] if modules_to_fuse and isinstance(modules_to_fuse[0], str) else modules_to_fuse
    for names in lists:
        found = [model.get_submodule(name) for name in names]
        kinds = [type(module).__name__ for module in found]
        middle = found[1:-1] if isinstance(found[-1], nn.ReLU) else found[1:]
        layers = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
        norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
        if len(found) < 2 or not isinstance(found[0], layers) or len(middle) > 1 or not all(isinstance(m, norms) for m in middle):
            raise ValueError(f"fuse_modules: {', '.join(kinds)} are no layer, batch norm and ReLU (one of the last two may be left out)")
        for name, norm in zip(names[1:], middle):
            if norm.training or norm.running_mean is None:
                raise ValueError(f"fuse_modules: {name} uses the statistics of its batch; call model.eval() first")
            _fold(found[0], norm)
            room, _, last = name.rpartition(".")
            setattr(model.get_submodule(room) if room else model, last, nn.Identity())
    return model


def _fold(layer: Any, norm: Any) -> None:
    """y = (W x + b - mean) · scale + shift as another W and b."""
    with gl.no_grad():
        scale = (norm.running_var + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight)
        bias = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
        shift = bias * scale + (0 if norm.bias is None else norm.bias)
        layer.weight.copy_(layer.weight * scale.reshape([-1] + [1] * (layer.weight.ndim - 1)))
        layer.bias = nn.Parameter(shift.detach().clone())


def disable_observer(module: nn.Module) -> None:
    """model.apply(disable_observer): ranges stay as they are."""
    if isinstance(module, FakeQuantize):
        module.disable_observer()


def enable_observer(module: nn.Module) -> None:
    """model.apply(enable_observer)."""
    if isinstance(module, FakeQuantize):
        module.enable_observer()


def disable_fake_quant(module: nn.Module) -> None:
    """model.apply(disable_fake_quant): inputs are not rounded."""
    if isinstance(module, FakeQuantize):
        module.disable_fake_quant()


def enable_fake_quant(module: nn.Module) -> None:
    """model.apply(enable_fake_quant)."""
    if isinstance(module, FakeQuantize):
        module.enable_fake_quant()


def _instead(name: str, what: str) -> NoReturn:
    raise NotImplementedError(f"{name}: {what}")


def fuse_modules_qat(*arguments: Any, **settings: Any) -> NoReturn:
    """There are no layers that train with their batch norm inside."""
    _instead("fuse_modules_qat", "train first, then fuse_modules(model.eval(), ...) and prepare_qat with a small learning rate")


def prepare_fx(*arguments: Any, **settings: Any) -> NoReturn:
    """There are no graph modes."""
    _instead("prepare_fx", "there is no graph mode; prepare(model) exchanges the layers of any model")


def prepare_qat_fx(*arguments: Any, **settings: Any) -> NoReturn:
    """There are no graph modes."""
    _instead("prepare_qat_fx", "there is no graph mode; prepare_qat(model) exchanges the layers of any model")


def convert_fx(*arguments: Any, **settings: Any) -> NoReturn:
    """There are no graph modes."""
    _instead("convert_fx", "there is no graph mode; convert(model) is for what prepare made")


def get_default_qconfig_mapping(*arguments: Any, **settings: Any) -> NoReturn:
    """There are no graph modes."""
    _instead("get_default_qconfig_mapping", "set model.qconfig = get_default_qconfig(), and qconfig = None of what is to stay as it is")
