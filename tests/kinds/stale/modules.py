"""Modules and the library: what hides what a module has, hooks, and functions of the library that are replaced."""

import types

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F

from kinds.stale import model, read


def triple(self, x):
    return x * 3.0


class Doubling(nn.Module):
    def forward(self, x):
        return self.double(x)

    def double(self, x):
        return x * 2.0


def net():
    """A module of classes of its own, with a submodule, a parameter and a buffer."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(gl.tensor([1.0, 2.0]))
            self.register_buffer("b", gl.tensor([0.5, 0.5]))
            self.k = 2.0

        def forward(self, x):
            return self.helper(x) * self.w + self.b

        def helper(self, x):
            return x * self.k

    class Outer(Inner):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(self.helper(x)) * self.w + self.b

    return Outer()


def on_net(name, change):
    """A way over a module: `change(patch, module)`, made to it and to its submodule."""

    def own():
        made = net()
        return made, lambda patch: change(patch, made)

    def inside():
        made = net()
        return made, lambda patch: change(patch, made.inner)

    own.__name__, inside.__name__ = name, f"{name}_of_a_submodule"
    model(own)
    model(inside)


on_net("forward_on_the_instance", lambda patch, m: setattr(m, "forward", lambda x: x * 3.0))
on_net("bound_forward_on_the_instance", lambda patch, m: setattr(m, "forward", types.MethodType(triple, m)))
on_net("wrapped_forward", lambda patch, m: setattr(m, "forward", _one_more(m.forward)))
on_net("forward_in_the_dict", lambda patch, m: m.__dict__.update(forward=lambda x: x * 3.0))
on_net("forward_of_the_class", lambda patch, m: setattr(type(m), "forward", triple))
on_net("code_of_forward", lambda patch, m: patch.setattr(type(m).forward, "__code__", triple.__code__))
on_net("call_of_the_class", lambda patch, m: setattr(type(m), "__call__", triple))
on_net("class", lambda patch, m: setattr(m, "__class__", type("New", (type(m),), {"forward": triple})))
on_net("class_of_the_library", lambda patch, m: setattr(m, "__class__", nn.Identity))
on_net("call_of_another_class", lambda patch, m: setattr(m, "__class__", type("New", (type(m),), {"__call__": triple})))
on_net("helper_on_the_instance", lambda patch, m: setattr(m, "helper", lambda x: x * 3.0))
on_net("helper_of_the_class", lambda patch, m: setattr(type(m), "helper", triple))
on_net("helper_of_the_class_above", lambda patch, m: setattr(_inner(m), "helper", triple))
on_net("code_of_a_helper", lambda patch, m: patch.setattr(type(m).helper, "__code__", triple.__code__))
on_net("attribute", lambda patch, m: setattr(m, "k", 3.0))
on_net("attribute_in_the_dict", lambda patch, m: m.__dict__.update(k=3.0))
on_net("attribute_as_a_property", lambda patch, m: setattr(type(m), "k", property(lambda self: 3.0, lambda self, value: None)))
on_net("parameter_hidden_in_the_dict", lambda patch, m: m.__dict__.update(w=gl.ones(2) * 5.0))
on_net("buffer_hidden_in_the_dict", lambda patch, m: m.__dict__.update(b=gl.ones(2) * 5.0))
on_net("parameter_hidden_by_the_class",
       lambda patch, m: setattr(type(m), "w", property(lambda self: gl.ones(2) * 5.0)))  # fmt: skip
on_net("parameter_replaced", lambda patch, m: setattr(m, "w", nn.Parameter(gl.ones(2) * 5.0)))
on_net("parameter_in_the_table", lambda patch, m: m._parameters.update(w=nn.Parameter(gl.ones(2) * 5.0)))
on_net("buffer_replaced", lambda patch, m: setattr(m, "b", gl.ones(2) * 5.0))
on_net("forward_hook", lambda patch, m: m.register_forward_hook(lambda m, args, y: y * 3.0))
on_net("forward_pre_hook", lambda patch, m: m.register_forward_pre_hook(lambda m, args: (args[0] * 3.0,)))
on_net("hook_of_all_modules", lambda patch, m: patch.callback(nn.modules.module.register_module_forward_hook(_tripling).remove))


def _inner(module):
    """The class above that gives the helper."""
    return next(kind for kind in type(module).__mro__ if "helper" in kind.__dict__)


def _one_more(inner):
    return lambda x: inner(x) + 1.0


def _tripling(module, args, y):
    return y * 3.0


@model
def submodule_hidden_in_the_dict():
    made = net()
    return made, lambda patch: made.__dict__.update(inner=nn.Identity())


@model
def submodule_hidden_by_object_setattr():
    made = net()
    return made, lambda patch: object.__setattr__(made, "inner", nn.Identity())


@model
def submodule_hidden_by_the_class():
    made = net()
    return made, lambda patch: setattr(type(made), "inner", nn.Identity())


@model
def submodule_replaced():
    made = net()
    return made, lambda patch: setattr(made, "inner", nn.Identity())


@model
def submodule_in_the_table():
    made = net()
    return made, lambda patch: made._modules.update(inner=nn.Identity())


@model
def hook_code():
    made = net()

    def hook(m, args, y):
        return y * 2.0

    made.register_forward_hook(hook)
    return made, lambda patch: patch.setattr(hook, "__code__", _tripling.__code__)


@model
def hook_closure():
    made, box = net(), [2.0]
    made.inner.register_forward_hook(lambda m, args, y: y * box[0])
    return made, lambda patch: box.__setitem__(0, 3.0)


@model
def hook_removed():
    made = net()
    handle = made.register_forward_hook(_tripling)
    return made, lambda patch: handle.remove()


@model
def forward_that_was_on_the_instance():
    made = net()
    made.forward = lambda x: x * 3.0
    return made, lambda patch: delattr(made, "forward")


@model
def code_of_a_forward_on_the_instance():
    made, double = net(), Doubling()
    made.forward = double.double
    return made, lambda patch: patch.setattr(Doubling.double, "__code__", triple.__code__)


@model
def layer_of_the_library_class():
    made = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return made, lambda patch: patch.setattr(nn.Linear, "forward", triple)


@model
def layer_of_the_library_instance():
    made = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return made, lambda patch: setattr(made[0], "forward", lambda x: x * 3.0)


@model
def layer_of_the_library_other_class():
    made = nn.Sequential(nn.Linear(2, 2), nn.Softplus())
    return made, lambda patch: setattr(made[1], "__class__", nn.Identity)


@model
def weight_of_the_library_hidden():
    made = nn.Sequential(nn.Linear(2, 2))
    return made, lambda patch: made[0].__dict__.update(weight=gl.ones(2, 2) * 7.0)


@model
def entry_of_a_sequential():
    made = nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(0.5))
    return made, lambda patch: made.__setitem__(1, nn.Softplus())


@model
def entry_added_to_a_sequential():
    made = nn.Sequential(nn.Linear(2, 2))
    return made, lambda patch: made.append(nn.Softplus())


@model
def function_of_the_library_behind_a_layer():
    made = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return made, lambda patch: patch.setattr(F, "relu", lambda x, inplace=False: x * 3.0 + 1.0)


@model
def code_of_a_method_of_the_library():
    made = nn.Sequential(nn.Linear(2, 2), nn.Softplus())

    def forward(self, input):
        return input * 3.0

    return made, lambda patch: patch.setattr(nn.Softplus.forward, "__code__", forward.__code__)


@read
def function_of_the_library():
    return lambda x: F.softplus(x), lambda patch: patch.setattr(F, "softplus", lambda x: x * 3.0)


@read
def function_of_the_library_by_its_path():
    return lambda x: gl.nn.functional.softplus(x), lambda patch: patch.setattr(gl.nn.functional, "softplus", lambda x: x * 3.0)


@read
def function_of_the_package():
    return lambda x: gl.tanh(x), lambda patch: patch.setattr(gl, "tanh", lambda x: x * 3.0)


@read
def method_of_tensors():
    return lambda x: x.tanh(), lambda patch: patch.setattr(gl.Tensor, "tanh", lambda self: self * 3.0)


@read
def attribute_of_a_tensor():
    w = nn.Parameter(gl.ones(2))
    w.k = 2.0
    return lambda x: x * w.k, lambda patch: setattr(w, "k", 3.0)


@read
def whether_a_tensor_requires_grad():
    w = gl.ones(2)
    return lambda x: x * (3.0 if w.requires_grad else 2.0), lambda patch: w.requires_grad_()


@read
def whether_a_tensor_has_a_gradient():
    w = gl.ones(2, requires_grad=True)
    return lambda x: x * (2.0 if w.grad is None else 3.0), lambda patch: setattr(w, "grad", gl.ones(2))


@read
def dtype_of_a_tensor():
    w = gl.ones(2)
    return lambda x: x * (2.0 if w.dtype == gl.float32 else 3.0), lambda patch: setattr(w, "data", w.data.double())


@read
def module_of_the_library_replaced():
    other = types.SimpleNamespace(softplus=lambda x: x * 3.0)
    return lambda x: nn.functional.softplus(x), lambda patch: patch.setattr(nn, "functional", other)


@read
def autograd_function():
    class Double(gl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    return lambda x: Double.apply(x), lambda patch: setattr(Double, "forward", staticmethod(lambda ctx, x: x * 3.0))
