"""Methods that a user's class has in place of PyTorch's are what the library calls: of submodules, too; and classes stand as in PyTorch."""

import copy
import importlib
import inspect
import itertools
import pickle
import subprocess
import sys

import pytest

import gradlab as gl
from gradlab import nn

CONVERSIONS = {
    "to": lambda m: m.to(gl.float64), "double": lambda m: m.double(), "half": lambda m: m.half(), "bfloat16": lambda m: m.bfloat16(),
    "float": lambda m: m.float(), "type": lambda m: m.type(gl.float64), "cpu": lambda m: m.cpu(),
    "to_empty": lambda m: m.to_empty(device="cpu"), "share_memory": lambda m: m.share_memory(),
}  # fmt: skip


class Anchored(nn.Linear):
    """A tensor that is no buffer goes where the parameters go; never in training mode."""

    def __init__(self):
        super().__init__(2, 2)
        self.anchor = gl.ones(2)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.anchor = fn(self.anchor)
        self.seen = True
        return self

    def train(self, mode=True):
        return super().train(False)


PLACES = {"child": nn.Sequential, "list": lambda m: nn.ModuleList([m]), "dict": lambda m: nn.ModuleDict({"a": m}),
          "deep": lambda m: nn.Sequential(nn.Sequential(m))}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_of_submodules(place):
    for name, convert in CONVERSIONS.items():
        inner = Anchored()
        convert(PLACES[place](inner))
        assert inner.seen and inner.anchor.dtype == inner.weight.dtype, name
    inner = Anchored()
    outer = PLACES[place](inner)
    assert outer.train() is outer and outer.training and not inner.training


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_of_convolutions_and_norms(dims):
    x = gl.rand(2, 4, *(5,) * dims)
    plain = getattr(nn, f"Conv{dims}d")

    class Doubled(plain):
        def _conv_forward(self, input, weight, bias):
            return super()._conv_forward(input, 2 * weight, bias)

    for mode in ("zeros", "circular"):
        layer = Doubled(4, 3, 3, padding=1, padding_mode=mode, bias=False)
        same = plain(4, 3, 3, padding=1, padding_mode=mode, bias=False)
        same.weight = layer.weight
        assert gl.allclose(layer(x), 2 * same(x), atol=1e-6)
    transposed = getattr(nn, f"ConvTranspose{dims}d")(4, 3, 3, stride=2)

    class Larger(type(transposed)):
        def _output_padding(self, input, output_size, stride, padding, kernel_size, num_spatial_dims, dilation=None):
            return (1,) * num_spatial_dims

    larger = Larger(4, 3, 3, stride=2)
    assert larger(x).shape[2:] == tuple(n + 1 for n in transposed(x).shape[2:])
    for norm in ("BatchNorm", "InstanceNorm"):
        seen = []
        kind = getattr(nn, f"{norm}{dims}d")
        made = type("Any", (kind,), {"_check_input_dim": lambda self, input, seen=seen: seen.append(input.ndim)})
        made(4)(x)
        assert seen == [dims + 2]


def test_of_transformer_layers():
    def blocks(kind, names):
        seen = []

        def told(name):
            def block(self, x, *args, **kwargs):
                seen.append(name)
                return getattr(kind, name)(self, x, *args, **kwargs)

            return block

        return type(kind.__name__, (kind,), {name: told(name) for name in names}), seen

    x = gl.rand(3, 2, 4)
    for first in (False, True):
        kind, seen = blocks(nn.TransformerEncoderLayer, ["_sa_block", "_ff_block"])
        kind(4, 2, 8, norm_first=first)(x)
        assert seen == ["_sa_block", "_ff_block"]
        kind, seen = blocks(nn.TransformerDecoderLayer, ["_sa_block", "_mha_block", "_ff_block"])
        kind(4, 2, 8, norm_first=first)(x, x)
        assert seen == ["_sa_block", "_mha_block", "_ff_block"]


class Named(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.calls = 0
        self._register_load_state_dict_pre_hook(self.before)

    def before(self, state_dict, prefix, *rest):
        self.calls += 1


def test_hooks_that_are_methods_belong_to_the_copy():
    for copied in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))):
        first = Named()
        second = copied(first)
        second.load_state_dict(first.state_dict())
        assert (first.calls, second.calls) == (0, 1)


def test_a_property_without_a_value_gives_way_to_a_parameter():
    class Softened(nn.Module):
        @property
        def weight(self):
            return self.raw.exp()

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(gl.zeros(2))
            self.raw = self._parameters.pop("weight")

    assert Softened().weight.tolist() == [1, 1]
    with pytest.raises(KeyError, match="already has an attribute"):
        Named().register_parameter("in_features", None)


def test_classes_that_are_looked_for():
    conv, dropout, norm, padding, pool = (getattr(nn.modules, name) for name in ("conv", "dropout", "norm", "padding", "pool"))
    assert issubclass(nn.Conv2d, conv._ConvNd) and issubclass(nn.ConvTranspose1d, conv._ConvTransposeNd)
    assert issubclass(nn.AlphaDropout, dropout._DropoutNd) and issubclass(nn.AdaptiveMaxPool1d, pool._AdaptiveMaxPoolNd)
    assert issubclass(nn.BatchNorm2d, norm._NormBase) and issubclass(nn.ZeroPad2d, nn.ConstantPad2d) and issubclass(nn.ReLU6, nn.Hardtanh)
    assert issubclass(nn.CircularPad1d, padding._CircularPadNd)
    apart = [(nn.LogSoftmax, nn.Softmax), (nn.Softmin, nn.Softmax), (nn.CrossMapLRN2d, nn.LocalResponseNorm),
             (nn.AdaptiveMaxPool2d, pool._AdaptiveAvgPoolNd), (gl.enable_grad, gl.no_grad)]  # fmt: skip
    assert not any(itertools.starmap(issubclass, apart))


# Lazy norms know their later class here; the older name of a scheduler is the newer one's.
LAZY = {f"{name}{dims}d" for name in ("BatchNorm", "InstanceNorm") for dims in (1, 2, 3)}
OTHERWISE = {"_LRScheduler", "FunctionCtx", "Identity", "QuantStub", "MinMaxObserver", "NoopObserver"}
FILES = ["batchnorm", "container", "conv", "dropout", "instancenorm", "lazy", "linear", "loss", "padding", "pooling", "rnn"]
ROOMS = [
    "torch.nn", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data", "torch.autograd", "torch.nn.parameter", "torch.fx",
    *(f"torch.nn.modules.{name}" for name in FILES), "torch",
]  # fmt: skip
STANDING = f"""
import importlib, inspect, sys
if sys.argv[1] == "gradlab":
    import gradlab.as_torch
found = {{}}
for room in {ROOMS}:
    module = importlib.import_module(room)
    for name in sys.argv[2].split(","):
        try: kind = getattr(module, name) if name in dir(module) or (name[0] == "_" and "modules" in room) else None
        except Exception: continue
        if inspect.isclass(kind): found.setdefault(name, kind)
for a in sorted(found):
    for b in sorted(found):
        try: below = a != b and issubclass(found[a], found[b])
        except TypeError: continue
        if below: print(a, b)
print("known", *sorted(found))
"""


@pytest.mark.torch
def test_classes_stand_as_in_pytorch():
    pytest.importorskip("torch")
    names = set()
    for room in ROOMS:
        module = importlib.import_module(room)
        names |= {name for name, kind in vars(module).items() if inspect.isclass(kind) and kind.__module__.startswith("torch")}
    answers = []
    for engine in ("torch", "gradlab"):
        done = subprocess.run(
            [sys.executable, "-c", STANDING, engine, ",".join(sorted(names))], check=True, capture_output=True, text=True, timeout=300
        )
        *pairs, known = done.stdout.splitlines()
        answers.append((set(map(tuple, map(str.split, pairs))), set(known.split()[1:])))
    both = answers[0][1] & answers[1][1]
    assert len(both) > 250
    theirs, ours = ({(a, b) for a, b in pairs if a in both and b in both} for pairs, _ in answers)
    wrong = {(a, b) for a, b in theirs ^ ours if b not in OTHERWISE and not (a.startswith("Lazy") and b in LAZY)}
    assert wrong <= {("UninitializedBuffer", "Buffer"), ("LazyModuleMixin", "Module"), ("_LazyConvXdMixin", "Module"),
                     ("_LazyConvXdMixin", "_ConvNd"), ("_LazyNormBase", "Module"), ("Variable", "Tensor")}  # fmt: skip


def test_subclasses_of_the_common_classes():
    """By the signatures that PyTorch's have."""
    conv, norm, padding, x = nn.modules.conv, nn.modules.norm, nn.modules.padding, gl.rand(2, 4, 6, 6)

    class Plain(conv._ConvNd):
        def __init__(self):
            super().__init__(4, 2, (3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, True, "zeros")

        def forward(self, x):
            return nn.functional.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    class Back(conv._ConvTransposeNd):
        def __init__(self):
            super().__init__(4, 2, (3, 3), (2, 2), (0, 0), (1, 1), True, (0, 0), 1, True, "zeros")

        def forward(self, x, output_size=None):
            extra = self._output_padding(x, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation)
            return nn.functional.conv_transpose2d(x, self.weight, self.bias, self.stride, self.padding, extra)

    assert Plain()(x).shape == (2, 2, 6, 6) and Back()(x).shape == (2, 2, 13, 13) and Back()(x, (14, 14)).shape == (2, 2, 14, 14)
    assert Back().weight.shape == (4, 2, 3, 3) and Back().transposed and not Plain().transposed

    class Scaled(norm._NormBase):
        def forward(self, x):
            return x * self.weight.view(1, -1, 1, 1)

    class Instance(norm._InstanceNorm):
        def _check_input_dim(self, input):
            pass

        def _get_no_batch_dim(self):
            return 3

    assert Scaled(4)(x).shape == Instance(4)(x).shape == x.shape and Instance(4)(x[0]).shape == x.shape[1:]

    class Constant(padding._ConstantPadNd):
        def __init__(self, width, value):
            super().__init__(value)
            self.padding = (width,) * 4

    class Mirrored(padding._ReflectionPadNd):
        def __init__(self, width):
            super().__init__()
            self.padding = (width,) * 4

    assert gl.equal(Constant(1, 2.0)(x), nn.ConstantPad2d(1, 2.0)(x)) and gl.equal(Mirrored(2)(x), nn.ReflectionPad2d(2)(x))
    assert repr(Constant(1, 2.0)) == "Constant(padding=(1, 1, 1, 1), value=2.0)"

    class Cell(nn.RNNCellBase):
        def __init__(self):
            super().__init__(3, 5, True, num_chunks=4)

    assert Cell().weight_hh.shape == (20, 5)
    assert [kind.mode for kind in (nn.LSTM(2, 3), nn.GRU(2, 3), nn.RNN(2, 3), nn.RNN(2, 3, nonlinearity="relu"))] == [
        "LSTM", "GRU", "RNN_TANH", "RNN_RELU",
    ]  # fmt: skip

    class Larger(nn.modules.lazy.LazyModuleMixin, nn.Linear):
        cls_to_become = nn.Linear

        def __init__(self):
            super().__init__(0, 3, False)
            self.weight = nn.UninitializedParameter()

        def initialize_parameters(self, input):
            self.in_features = input.shape[-1]
            self.weight.materialize((3, self.in_features))
            self.reset_parameters()

    layer = Larger()
    assert layer(gl.ones(1, 2)).shape == (1, 3) and type(layer) is nn.Linear
