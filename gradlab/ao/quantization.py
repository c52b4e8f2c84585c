"""Fewer bits: observers of ranges, fake quantisation in training, and layers whose weights are int8 or packed int4.

    gl.ao.quantization.prepare_qat(model)           # its linear layers and convolutions train with rounded weights and inputs
    ...train...
    small = gl.ao.quantization.convert(model.eval())            # or convert(prepare(model), after some batches), or quantize_dynamic(model)

Weights are symmetric, with a scale for each output channel (int4: for each 32 inputs of one). Where inputs are rounded, products are
computed in integers, exactly: eagerly, compiled and as C; in ONNX such layers are QuantizeLinear and DequantizeLinear around the operator.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gradlab as gl
from gradlab import Tensor, nn
from gradlab.ao.configuring import (
    DeQuantStub,
    QConfig,
    QuantStub,
    QuantWrapper,
    convert_fx,
    default_dynamic_qat_qconfig,
    default_dynamic_qconfig,
    default_fake_quant,
    default_observer,
    default_per_channel_qconfig,
    default_qat_qconfig,
    default_qat_qconfig_v2,
    default_qconfig,
    default_weight_only_qconfig,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    fuse_modules,
    fuse_modules_qat,
    get_default_qat_qconfig,
    get_default_qconfig,
    get_default_qconfig_mapping,
    per_channel_dynamic_qconfig,
    prepare_fx,
    prepare_qat_fx,
)
from gradlab.ao.observers import (
    TINY,
    FakeQuantize,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from gradlab.nn import functional as F
from gradlab.ops import quantized as rows

__all__ = [
    "DeQuantStub", "FakeQuantize", "MinMaxObserver", "MovingAverageMinMaxObserver", "NoopObserver", "PerChannelMinMaxObserver",
    "PlaceholderObserver", "QConfig", "QuantStub", "QuantWrapper", "QuantizedWeight", "convert", "convert_fx",
    "default_dynamic_qat_qconfig", "default_dynamic_qconfig", "default_fake_quant", "default_observer", "default_per_channel_qconfig",
    "default_qat_qconfig", "default_qat_qconfig_v2", "default_qconfig", "default_weight_only_qconfig", "disable_fake_quant",
    "disable_observer", "enable_fake_quant", "enable_observer", "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig",
    "get_default_qconfig", "get_default_qconfig_mapping", "per_channel_dynamic_qconfig", "prepare", "prepare_fx", "prepare_qat",
    "prepare_qat_fx", "quantize", "quantize_dynamic", "quantize_qat",
]  # fmt: skip

# By exact class, as in PyTorch: a subclass may compute other things, or be read by the module around it (as in MultiheadAttention).
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
         "_forward_pre_hooks_with_kwargs")  # fmt: skip
GROUP = 32  # inputs of an int4 weight that share a scale


class Around(nn.Module):
    """In the place of a layer: what a model reads of that (`in_features`, `stride`, `bias`) is read of its `layer`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            layer = self.__dict__.get("_modules", {}).get("layer")
            if layer is None or name.startswith("_") or not hasattr(layer, name):
                raise
            return getattr(layer, name)


class Trained(Around):
    """A layer in training: its input (where `inputs`) and its weight are rounded in every call."""

    def __init__(self, layer: nn.Module, rounds: bool, qconfig: QConfig | None = None) -> None:
        super().__init__()
        self.layer = layer
        made = None if qconfig is None else qconfig.activation()
        if rounds and isinstance(made, MinMaxObserver):
            raise ValueError(f"prepare_qat: the qconfig's activation is a {type(made).__name__}, and makes a FakeQuantize in training")
        if not rounds and isinstance(made, FakeQuantize):
            made = PlaceholderObserver() if made.is_dynamic else made.activation_post_process
        self.inputs: Any = made if made is not None else FakeQuantize() if rounds else MinMaxObserver()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        x = self.inputs(x)
        if not self.rounds:
            found: Tensor = self.layer(x)
            return found
        weight = self.layer.weight
        scale = _scales(weight.detach(), 127)
        weight = gl.fake_quantize_per_channel_affine(weight, scale, gl.zeros_like(scale), 0, -127, 127)
        return _applied(self.layer, x, weight)


def _in_place_of(layer: nn.Module, made: nn.Module) -> nn.Module:
    """`made`, with the hooks that were the layer's."""
    for name in HOOKS:
        if table := getattr(layer, name):
            getattr(made, name).update(table)
            table.clear()
            made._hooked = True
    return made


def _scales(weight: Tensor, most: int) -> Tensor:
    """In float32, whatever the weight's type: a half type would move every number of a channel."""
    return (weight.float().abs().flatten(1).amax(1) / most).clamp(min=TINY)


def _applied(layer: Any, x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return F.linear(x, weight, layer.bias)
    padding = layer.padding
    if layer.padding_mode != "zeros":
        x, padding = F.pad(x, layer._reversed_padding_repeated_twice, layer.padding_mode), 0
    convolve: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[layer.dims]
    found: Tensor = convolve(x, weight, layer.bias, layer.stride, padding, layer.dilation, layer.groups)
    return found


class QuantizedWeight(Around):
    """A linear layer or a convolution whose weight is int8, or, of a linear layer, int4 (two in a byte).

    Buffers: `quantized` (int8 as the weight was; int4: uint8 (outputs, inputs / 2), inputs rounded up to groups), `scale` (outputs,) or
    (outputs, groups), and of inputs with a known range `input_scale` and `input_zero_point`. dynamic: inputs are
    rounded by the range of each call. Products of rounded inputs are integers (`gradlab.ops.quantized`).
    """

    def __init__(self, layer: nn.Module, bits: int = 8, observer: MinMaxObserver | None = None, dynamic: bool = False) -> None:
        super().__init__()
        if bits not in (4, 8) or (bits == 4 and not isinstance(layer, nn.Linear)):
            raise ValueError(f"QuantizedWeight: weights of {bits} bits of {type(layer).__name__}; int8 of any layer, int4 of linear ones")
        self.layer = copy.deepcopy(layer)
        weight = self.layer.weight.detach().float()
        del self.layer.weight
        self.layer.register_parameter("weight", None)
        self.bits, self.shape, self.dynamic = bits, tuple(weight.shape), dynamic
        if bits == 8:
            scale = _scales(weight, 127)
            whole = gl.round(weight / scale.reshape([-1] + [1] * (weight.ndim - 1))).clamp(-127, 127).to(gl.int8)
        else:
            grouped = F.pad(weight, (0, -weight.shape[1] % GROUP)).reshape(weight.shape[0], -1, GROUP)
            scale = (grouped.abs().amax(2) / 7).clamp(min=TINY)
            places = (gl.round(grouped / scale[..., None]).clamp(-7, 7) + 8).to(gl.uint8).reshape(weight.shape[0], -1)
            whole = places[:, 0::2] + places[:, 1::2] * 16
        self.register_buffer("quantized", whole)
        self.register_buffer("scale", scale)
        if observer is not None:
            given = observer.calculate_qparams()
            self.quant_min, self.quant_max = observer.quant_min, observer.quant_max
            for name, value in zip(("input_scale", "input_zero_point"), given):
                self.register_buffer(name, value)
        self.ranged = observer is not None

    def _apply(self, fn: Any, recurse: bool = True) -> QuantizedWeight:
        """Moved to another device, or in another type: scales stay float32, as products of integers take them."""
        kept = {name: self._buffers[name] for name in ("scale", "input_scale") if name in self._buffers}
        super()._apply(fn, recurse)
        for name, before in kept.items():
            after = self._buffers[name]
            if after is not None and before is not None and after.dtype != before.dtype:
                self._buffers[name] = before.to(after.device)
        return self

    def weight(self) -> Tensor:
        """The weight in float32."""
        if self.bits == 8:
            return self.quantized.float() * self.scale.reshape([-1] + [1] * (len(self.shape) - 1))
        places = gl.stack([self.quantized % 16, self.quantized // 16], 2).reshape(self.shape[0], -1, GROUP)
        return ((places.float() - 8) * self.scale[..., None]).reshape(self.shape[0], -1)[:, : self.shape[1]]

    def forward(self, x: Tensor) -> Tensor:
        if not (self.ranged or self.dynamic or self.bits == 4):
            return _applied(self.layer, x, self.weight().to(x.dtype))
        layer, wide = self.layer, x.float()
        bias = None if layer.bias is None else layer.bias.float()
        given = (self.input_scale, self.input_zero_point) if self.ranged else (None, None)
        limits = {"low": self.quant_min, "high": self.quant_max} if self.ranged else {"low": -128, "high": 127}
        if self.bits == 4:
            rounds = self.ranged or self.dynamic
            y = rows.quantized_linear4(wide, self.quantized, self.scale, bias, *given, **limits, rounds=rounds)
        elif isinstance(layer, nn.Linear):
            y = rows.quantized_linear(wide, self.quantized, self.scale, bias, *given, **limits)
        else:
            padding = layer.padding
            if layer.padding_mode != "zeros" or isinstance(padding, str):
                mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
                wide, padding = F.pad(wide, layer._reversed_padding_repeated_twice, mode), (0,) * layer.dims
            alone = wide.ndim == layer.dims + 1
            geometry = {"stride": layer.stride, "padding": padding, "dilation": layer.dilation, "groups": layer.groups}
            wide = wide.unsqueeze(0) if alone else wide
            y = rows.quantized_convolution(wide, self.quantized, self.scale, bias, *given, **geometry, **limits)
            y = y.squeeze(0) if alone else y
        found: Tensor = y.to(x.dtype)
        return found

    def extra_repr(self) -> str:
        inputs = "calibrated" if self.ranged else "dynamic" if self.dynamic else "as they are"
        return f"int{self.bits} weight {self.shape}, inputs {inputs}"


def _exchanged(model: nn.Module, kinds: tuple[type[nn.Module], ...], make: Any) -> nn.Module:
    if type(model) in kinds:
        return _in_place_of(model, make(model))
    for name, child in list(model.named_children()):
        if not isinstance(child, (Trained, QuantizedWeight)) or isinstance(child, kinds):
            setattr(model, name, _exchanged(child, kinds, make))
    return model


def _prepared(model: nn.Module, rounds: bool) -> nn.Module:
    """Layers with a qconfig, of their own or of a module around them; all where no module has one."""
    if not any(hasattr(module, "qconfig") for module in model.modules()):
        return _exchanged(model, LAYERS, lambda layer: Trained(layer, rounds))

    def walked(module: nn.Module, given: Any) -> nn.Module:
        given = getattr(module, "qconfig", given)
        if type(module) in LAYERS:
            return module if given is None else _in_place_of(module, Trained(module, rounds, given))
        for name, child in list(module.named_children()):
            if not isinstance(child, (Trained, QuantizedWeight)):
                setattr(module, name, walked(child, given))
        return module

    return walked(model, None)


def _only(name: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name}: {argument} stays None; set qconfig of the modules to choose what is prepared")


def prepare(
    model: nn.Module, inplace: bool = False, allow_list: Any = None, observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> nn.Module:  # fmt: skip
    """A model whose linear layers and convolutions note the ranges of their inputs: call it with some batches, then `convert` it.

    Where modules have a `qconfig` (it holds for what is in them; None: not prepared), its activation says how; else all are prepared.
    """
    _only(
        "prepare", allow_list=allow_list, observer_non_leaf_module_list=observer_non_leaf_module_list,
        prepare_custom_config_dict=prepare_custom_config_dict,
    )  # fmt: skip
    return _prepared(model if inplace else copy.deepcopy(model), False)


def prepare_qat(model: nn.Module, mapping: Mapping[Any, Any] | None = None, inplace: bool = False) -> nn.Module:
    """A model whose linear layers and convolutions round weights and inputs in every call, with gradients: train it, then `convert` it.

    qconfig of modules: as in `prepare`. mapping is PyTorch's, and stays None.
    """
    _only("prepare_qat", mapping=mapping)
    return _prepared(model if inplace else copy.deepcopy(model), True)


def convert(module: nn.Module, mapping: Mapping[Any, Any] | None = None, inplace: bool = False) -> nn.Module:
    """What `prepare` or `prepare_qat` made, with int8 weights and inputs rounded by the ranges that were seen; or by the range of each
    call, or not at all, where the qconfig said so.

    RuntimeError where a layer has seen nothing.
    """
    _only("convert", mapping=mapping)

    def made(trained: Any) -> QuantizedWeight:
        seen = trained.inputs
        if getattr(seen, "is_dynamic", False) or not hasattr(seen, "calculate_qparams"):
            return QuantizedWeight(trained.layer, 8, None, getattr(seen, "is_dynamic", False))
        return QuantizedWeight(trained.layer, 8, seen.activation_post_process if isinstance(seen, FakeQuantize) else seen)

    return _exchanged(module if inplace else copy.deepcopy(module), (Trained,), made)


def quantize(model: nn.Module, run_fn: Any, run_args: Any, mapping: Mapping[Any, Any] | None = None, inplace: bool = False) -> nn.Module:
    """`prepare`, run_fn(model, *run_args) to show it some batches, and `convert`."""
    seen = prepare(model, inplace).eval()
    run_fn(seen, *run_args)
    return convert(seen, mapping, inplace=True)


def quantize_qat(model: nn.Module, run_fn: Any, run_args: Any, inplace: bool = False) -> nn.Module:
    """`prepare_qat`, run_fn(model, *run_args) to train it, and `convert`."""
    trained = prepare_qat(model, inplace=inplace).train()
    run_fn(trained, *run_args)
    return convert(trained, inplace=True)


def quantize_dynamic(
    model: nn.Module, qconfig_spec: Any = None, dtype: Any = gl.int8, mapping: Mapping[Any, Any] | None = None, inplace: bool = False,
    *, bits: int = 8, activations: bool = True,
) -> nn.Module:  # fmt: skip
    """A model whose layers have int8 (bits=4: linear layers int4) weights; inputs are rounded to 8 bits by the range of each call.

    qconfig_spec: the classes of layers, or names of modules, or a dictionary from these to a qconfig (None: stays as it is); by default
    linear layers, as in PyTorch. activations: False leaves inputs as they are, as does a qconfig whose activation is a NoopObserver.
    dtype: gl.int8 alone; mapping is PyTorch's, and stays None.
    """
    if dtype is not gl.int8 or mapping is not None:
        raise NotImplementedError("quantize_dynamic: dtype is gl.int8 (bits=4 for int4 weights), and mapping is None")
    spec = qconfig_spec if isinstance(qconfig_spec, Mapping) else dict.fromkeys(qconfig_spec or (nn.Linear,), default_dynamic_qconfig)
    if odd := [kind for kind in spec if kind not in LAYERS and not isinstance(kind, str)]:
        raise NotImplementedError(f"quantize_dynamic: {odd[0]!r} is no layer of {', '.join(layer.__name__ for layer in LAYERS)}")
    model = model if inplace else copy.deepcopy(model)
    if missing := [name for name in spec if isinstance(name, str) and name not in dict(model.named_modules())]:
        raise ValueError(f"quantize_dynamic: the model has no module {missing[0]!r}")
    named = {id(model.get_submodule(name)): qconfig for name, qconfig in spec.items() if isinstance(name, str)}

    def walked(module: nn.Module, given: Any) -> nn.Module:
        """given: the qconfig of a named module around it, as a tuple of one."""
        given = (named[id(module)],) if id(module) in named else given
        if type(module) in LAYERS:
            qconfig = given[0] if given else spec.get(type(module))
            if qconfig is None:
                return module
            rounds = activations and type(qconfig.activation()) not in (NoopObserver, nn.Identity)
            return _in_place_of(module, QuantizedWeight(module, bits if isinstance(module, nn.Linear) else 8, None, rounds))
        for name, child in list(module.named_children()):
            if not isinstance(child, (Trained, QuantizedWeight)):
                setattr(module, name, walked(child, given))
        return module

    return walked(model, ())
