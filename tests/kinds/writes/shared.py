"""What PyTorch writes too: a case takes the library, gives a tensor and what writes it."""

from __future__ import annotations

import numpy as np

SHAPE = (4, 3)


def data(m, *shape, seed=0):
    return m.tensor(np.random.default_rng(seed).normal(size=shape or SHAPE).astype("float32"))


def leaf(m, *shape, seed=0):
    return data(m, *shape, seed=seed).requires_grad_()


def with_gradient(m):
    p = leaf(m)
    (p * 2).sum().backward()
    return p


# ---------------------------------------------------------------- gradients


def accumulated(m):
    p = with_gradient(m)
    return p.grad, lambda: (p * 3).sum().backward()


def accumulated_to_inputs(m):
    p = with_gradient(m)
    return p.grad, lambda: (p * 3).sum().backward(inputs=[p])


def accumulated_twice_used(m):
    p = with_gradient(m)
    return p.grad, lambda: (p * p + p.exp()).sum().backward()


def zeroed_by_an_optimizer(m):
    p = with_gradient(m)
    return p.grad, lambda: m.optim.SGD([p], lr=0.1).zero_grad(set_to_none=False)


def zeroed_by_a_module(m):
    layer = m.nn.Linear(3, 4)
    layer(data(m, 2, 3)).sum().backward()
    return layer.weight.grad, lambda: layer.zero_grad(set_to_none=False)


def clipped_by_norm(m):
    p = with_gradient(m)
    return p.grad, lambda: m.nn.utils.clip_grad_norm_([p], 0.1)


def clipped_by_a_given_norm(m):
    p = with_gradient(m)
    return p.grad, lambda: m.nn.utils.clip_grads_with_norm_([p], 0.1, m.tensor(3.0))


def clipped_by_value(m):
    p = with_gradient(m)
    return p.grad, lambda: m.nn.utils.clip_grad_value_([p], 0.1)


def unscaled(m):
    p, scaler = leaf(m), m.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(p.sum()).backward()
    return p.grad, lambda: scaler.unscale_(m.optim.SGD([p], lr=0.1))


# ---------------------------------------------------------------- modules


def normed(kind, *shape, **options):
    def make(m, of="running_mean"):
        norm = getattr(m.nn, kind)(3, **options)
        return getattr(norm, of), lambda: norm(data(m, *shape))

    return make


def by_the_function(m):
    mean, var = m.zeros(3), m.ones(3)
    return var, lambda: m.nn.functional.batch_norm(data(m), mean, var, training=True)


def average_of_all_batches(m):
    norm = m.nn.BatchNorm1d(3, momentum=None)
    return norm.running_var, lambda: norm(data(m))


def reset(m):
    norm = m.nn.BatchNorm1d(3)
    norm(data(m))
    return norm.running_mean, norm.reset_running_stats


def loaded(m):
    one, other = m.nn.Linear(3, 4), m.nn.Linear(3, 4)
    return one.weight, lambda: one.load_state_dict(other.state_dict())


def loaded_buffer(m):
    one, other = m.nn.BatchNorm1d(3), m.nn.BatchNorm1d(3)
    other(data(m))
    return one.running_var, lambda: one.load_state_dict(other.state_dict())


def reset_parameters(m):
    layer = m.nn.Linear(3, 4)
    return layer.weight, layer.reset_parameters


def shortened(kind):
    def make(m):
        table = getattr(m.nn, kind)(4, 3, max_norm=0.01)
        return table.weight, lambda: table(m.tensor([[0, 1]]))

    return make


def spectral(m):
    layer = m.nn.utils.parametrizations.spectral_norm(m.nn.Linear(3, 4))
    return layer.parametrizations.weight[0]._u, lambda: layer(data(m))


def spectral_older(m):
    layer = m.nn.utils.spectral_norm(m.nn.Linear(3, 4))
    return layer.weight_u, lambda: layer(data(m))


def assigned_through_a_parametrization(m):
    layer = m.nn.utils.parametrizations.weight_norm(m.nn.Linear(3, 4))

    def act():
        layer.weight = data(m, 4, 3, seed=5)

    return layer.parametrizations.weight.original1, act


def averaged(m, **options):
    model = m.nn.Linear(3, 4)
    average = m.optim.swa_utils.AveragedModel(model, **options)
    average.update_parameters(model)
    m.nn.init.normal_(model.weight)
    return average.module.weight, lambda: average.update_parameters(model)


def averaged_exponentially(m):
    return averaged(m, multi_avg_fn=m.optim.swa_utils.get_ema_multi_avg_fn(0.5))


def averaged_by_a_function(m):
    return averaged(m, avg_fn=m.optim.swa_utils.get_ema_avg_fn(0.5))


def average_of_buffers(m):
    model = m.nn.BatchNorm1d(3)
    average = m.optim.swa_utils.AveragedModel(model)
    model(data(m))
    return average.module.running_mean, lambda: average.update_parameters(model)


def statistics_anew(m):
    model = m.nn.Sequential(m.nn.BatchNorm1d(3))
    return model[0].running_mean, lambda: m.optim.swa_utils.update_bn([data(m)], model)


def in_place(kind, **options):
    def make(m):
        x = data(m)
        return x, lambda: getattr(m.nn.functional, kind)(x, inplace=True, **options)

    return make


def of_a_parameter(m):
    x = data(m)
    p = m.nn.Parameter(x)
    return x, lambda: m.nn.init.normal_(p)


def of_a_buffer(m):
    x = data(m, 3).abs()
    norm = m.nn.BatchNorm1d(3)
    norm.running_var = x
    return x, lambda: norm.load_state_dict(m.nn.BatchNorm1d(3).state_dict())


def out(m):
    x = m.zeros(*SHAPE)
    return x, lambda: m.add(data(m), 1.0, out=x)


def dirty(m):
    class Doubled(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = data(m)
    return x, lambda: Doubled.apply(x)


# ---------------------------------------------------------------- optimizers


def stepped(name):
    def make(m):
        p = leaf(m)
        p.grad = data(m, seed=1) if name != "SparseAdam" else data(m, seed=1).to_sparse(1)
        opt = getattr(m.optim, name)([p], lr=0.1)

        def closure():
            p.grad = None
            loss = (p * p).sum()
            loss.backward()
            p.grad = p.grad if name != "SparseAdam" else p.grad.to_sparse(1)
            return loss

        return p, lambda: opt.step(closure)

    return make


def kept_by(name, buffer, **options):
    def make(m):
        p = leaf(m)
        p.grad = data(m, seed=1)
        opt = getattr(m.optim, name)([p], lr=0.1, **options)
        opt.step()
        p.grad = data(m, seed=2)
        return opt.state[p][buffer], opt.step

    return make


def a_rate(m):
    p = leaf(m)
    rate = m.tensor(0.5)
    opt = m.optim.SGD([p], lr=rate)
    schedule = m.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    p.grad = data(m)
    opt.step()
    return rate, schedule.step


def a_scale(m):
    p, scaler = leaf(m), m.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    opt = m.optim.SGD([p], lr=0.1)
    scaler.scale(p.sum()).backward()
    scaler.step(opt)
    return next(t for t in (*vars(scaler).values(), *getattr(scaler, "_tensors", {}).values()) if isinstance(t, m.Tensor)), scaler.update


# ---------------------------------------------------------------- memory and values


def plainly(write):
    def make(m):
        x = data(m)

        def act():
            with m.no_grad():
                write(m, x)

        return x, act

    return make


INIT = {
    "constant_": (2.0,), "dirac_": (), "eye_": (), "kaiming_normal_": (), "kaiming_uniform_": (), "normal_": (), "ones_": (),
    "orthogonal_": (), "sparse_": (0.5,), "trunc_normal_": (), "uniform_": (), "xavier_normal_": (), "xavier_uniform_": (), "zeros_": (),
}  # fmt: skip


def initialised(name):
    def make(m):
        x = leaf(m, 4, 3, 3) if name == "dirac_" else leaf(m)
        return x, lambda: getattr(m.nn.init, name)(x, *INIT[name])

    return make


AS_IN_TORCH = {
    f.__name__: f
    for f in (
        accumulated, accumulated_to_inputs, accumulated_twice_used, zeroed_by_an_optimizer, zeroed_by_a_module, clipped_by_norm,
        clipped_by_a_given_norm, clipped_by_value, unscaled, by_the_function, average_of_all_batches, reset, loaded, loaded_buffer,
        reset_parameters, spectral, spectral_older, averaged, averaged_exponentially, averaged_by_a_function,
        average_of_buffers, statistics_anew, of_a_parameter, of_a_buffer, out, dirty, a_rate,
    )
} | {
    "BatchNorm1d": normed("BatchNorm1d", 4, 3), "BatchNorm2d": normed("BatchNorm2d", 4, 3, 2, 2),
    "BatchNorm3d": normed("BatchNorm3d", 4, 3, 2, 2, 2),
    "InstanceNorm1d": normed("InstanceNorm1d", 4, 3, 5, track_running_stats=True),
    "InstanceNorm2d": normed("InstanceNorm2d", 4, 3, 2, 2, track_running_stats=True),
    "InstanceNorm3d": normed("InstanceNorm3d", 4, 3, 2, 2, 2, track_running_stats=True),
    "Embedding": shortened("Embedding"), "EmbeddingBag": shortened("EmbeddingBag"),
    "relu": in_place("relu"), "dropout": in_place("dropout"), "hardtanh": in_place("hardtanh", min_val=-0.1, max_val=0.1),
    "copy_": plainly(lambda m, x: x.copy_(data(m, seed=3))), "fill_": plainly(lambda m, x: x.fill_(7)),
    "normal_": plainly(lambda m, x: x.normal_()), "setitem": plainly(lambda m, x: x.__setitem__(0, 7.0)),
    "iadd": plainly(lambda m, x: x.__iadd__(1)), "a view": plainly(lambda m, x: x[1:].mul_(3)),
    "detached": plainly(lambda m, x: x.detach().mul_(3)), "index_put_": plainly(lambda m, x: x.index_put_((m.tensor([0]),), m.tensor(7.0))),
    **{name: initialised(name) for name in INIT},
    **{f"{name}.step": stepped(name) for name in ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta",
                                                 "ASGD", "Rprop", "Adafactor", "Muon", "LBFGS", "SparseAdam")},
    "SGD's buffer": kept_by("SGD", "momentum_buffer", momentum=0.9), "Adam's mean": kept_by("Adam", "exp_avg"),
    "Adam's maximum": kept_by("Adam", "max_exp_avg_sq", amsgrad=True), "Adam's count": kept_by("Adam", "step"),
    "RMSprop's mean": kept_by("RMSprop", "grad_avg", centered=True), "Muon's buffer": kept_by("Muon", "momentum_buffer"),
    "Adafactor's rows": kept_by("Adafactor", "row_var"), "Rprop's sizes": kept_by("Rprop", "step_size"),
}  # fmt: skip
