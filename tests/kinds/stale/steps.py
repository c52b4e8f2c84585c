"""Training steps: optimizers, their hooks and options, hooks of gradients, losses and closures."""

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F

from kinds.stale import step
from kinds.stale.modules import net


def training(kind=gl.optim.SGD):
    made = net()
    return made, kind(made.parameters(), lr=0.1)


def plain_step(made, optimizer):
    def run(x):
        loss = made(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return run


def on_step(name, change, make=plain_step):
    """A way over a training step: `change(patch, module, optimizer)`."""

    def way():
        made, optimizer = training()
        return made, make(made, optimizer), lambda patch: change(patch, made, optimizer)

    way.__name__ = name
    step(way)


def _halved(optimizer):
    def patched(*args, **kwargs):
        with gl.no_grad():
            for p in optimizer.param_groups[0]["params"]:
                p.mul_(0.5)

    return patched


def _with_ones(module):
    for p in module.parameters():
        p.grad = gl.ones_like(p)


def _halving(optimizer, args, kwargs):
    _halved(optimizer)()


on_step("step_on_the_instance", lambda patch, m, o: setattr(o, "step", _halved(o)))
on_step("step_of_the_class", lambda patch, m, o: patch.setattr(type(o), "step", lambda self: _halved(self)()))
on_step("step_of_another_class",
        lambda patch, m, o: setattr(o, "__class__", type("New", (type(o),), {"step": lambda self: _halved(self)()})))  # fmt: skip
on_step("post_hook", lambda patch, m, o: o.register_step_post_hook(_halving))
on_step("pre_hook", lambda patch, m, o: o.register_step_pre_hook(_halving))
on_step("zero_grad_on_the_instance", lambda patch, m, o: setattr(o, "zero_grad", lambda: _with_ones(m)))
on_step("learning_rate", lambda patch, m, o: o.param_groups[0].update(lr=0.5))
on_step("weight_decay", lambda patch, m, o: o.param_groups[0].update(weight_decay=0.5))
on_step("maximize", lambda patch, m, o: o.param_groups[0].update(maximize=True))
on_step("frozen_parameter", lambda patch, m, o: m.inner.w.requires_grad_(False))
on_step("parameter_out_of_the_group", lambda patch, m, o: o.param_groups[0]["params"].pop())
on_step("tensor_hook", lambda patch, m, o: m.inner.w.register_hook(lambda g: g * 3.0))
on_step("backward_hook", lambda patch, m, o: m.inner.register_full_backward_pre_hook(lambda m, g: (g[0] * 3.0,)))
def _clip(parameters, most=0.1):
    nn.utils.clip_grad_norm_(parameters, most)


def _with_loss(made, optimizer):
    def run(x):
        loss = F.mse_loss(made(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return run


def _with_closure(made, optimizer):
    made.__dict__["box"] = box = [2.0]

    def run(x):
        def closure():
            optimizer.zero_grad()
            loss = made(x).sum() * box[0]
            loss.backward()
            return loss

        return optimizer.step(closure)

    return run


def _with_clipping(made, optimizer):
    def run(x):
        loss = made(x).sum()
        optimizer.zero_grad()
        loss.backward()
        _clip(made.parameters())
        optimizer.step()
        return loss

    return run


on_step("loss_function", lambda patch, m, o: patch.setattr(F, "mse_loss", lambda a, b: (a - b).abs().sum() * 3.0), _with_loss)
on_step("closure", lambda patch, m, o: m.__dict__["box"].__setitem__(0, 3.0), _with_closure)
on_step("gradients_clipped_by_a_helper", lambda patch, m, o: patch.setattr(_clip, "__defaults__", (0.01,)), _with_clipping)


class Descent(gl.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.scale, self.table = 1.0, [1.0]

    def step(self):
        with gl.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad, alpha=-group["lr"] * self.factor())

    def factor(self):
        return self.scale * self.table[0]


def _of_ones_own(made, optimizer):
    made.__dict__["own"] = own = Descent(made.parameters())
    return plain_step(made, own)


def on_own(name, change):
    on_step(name, lambda patch, m, o: change(patch, m.__dict__["own"]), _of_ones_own)


on_own("attribute_of_ones_own_optimizer", lambda patch, o: setattr(o, "scale", 3.0))
on_own("list_of_ones_own_optimizer", lambda patch, o: o.table.__setitem__(0, 3.0))
on_own("method_of_ones_own_optimizer", lambda patch, o: setattr(o, "factor", lambda: 3.0))
on_own("method_of_the_class_of_ones_own_optimizer", lambda patch, o: patch.setattr(Descent, "factor", lambda self: 3.0))
on_own("rate_of_ones_own_optimizer", lambda patch, o: o.param_groups[0].update(lr=0.5))
