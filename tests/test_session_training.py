"""Training in a session: every optimizer, batch norm, schedules, clipping, two losses, digits; equal to eager, on the CPU and the GPU."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
import gradlab.nn.functional as F
from gradlab import data, nn
from gradlab.graph.staging.symbol import TraceError
from gradlab.models.digits import DigitsCNN, DigitsMLP
from gradlab.models.gpt import GPT, GPTConfig

RANDOM = np.random.default_rng(0)
XS, YS = RANDOM.normal(size=(6, 5, 12)).astype("f"), RANDOM.integers(0, 4, (6, 5))


def mlp():
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))


def defined(build, optimizer, shape=(None, 12), loss_of=F.cross_entropy):
    """A graph with a training step of the model: graph, placeholders, loss, train step, model."""
    g = gl.Graph()
    with g.as_default():
        x, y = gl.placeholder(gl.float32, shape), gl.placeholder(gl.int64, [None])
        model = build()
        loss = loss_of(model(x), y)
        train = optimizer(model.parameters()).minimize(loss)
    return g, x, y, loss, train, model


def compared(build, optimizer, xs=XS, ys=YS, shape=(None, 12), device=None, rtol=1e-5, weights=True):
    """Losses of a session and of eager steps from the same seed."""
    g, x, y, loss, train, model = defined(build, optimizer, shape)
    gl.manual_seed(1)
    with gl.Session(g, device=device) as s:
        s.run(gl.global_variables_initializer())
        found = [float(s.run([train, loss], {x: a, y: b})[1]) for a, b in zip(xs, ys, strict=True)]
        final = s.run(dict(model.state_dict(keep_vars=True)))
    gl.manual_seed(1)
    twin = build()
    opt = optimizer(twin.parameters())
    want = [float(opt.minimize(F.cross_entropy(twin(gl.tensor(a)), gl.tensor(b))).item()) for a, b in zip(xs, ys, strict=True)]
    np.testing.assert_allclose(found, want, rtol=rtol)
    if weights:
        for name, value in twin.state_dict().items():
            np.testing.assert_allclose(final[name], value.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)
    return found


OPTIMIZERS = {
    "sgd": lambda p: gl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "dampening": lambda p: gl.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: gl.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: gl.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adamax": lambda p: gl.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: gl.optim.NAdam(p, lr=0.01),
    "radam": lambda p: gl.optim.RAdam(p, lr=0.01),
    "rmsprop": lambda p: gl.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: gl.optim.Adagrad(p, lr=0.05),
    "adadelta": lambda p: gl.optim.Adadelta(p),
    "rprop": lambda p: gl.optim.Rprop(p),
    "asgd": lambda p: gl.optim.ASGD(p),
    "lion": lambda p: gl.optim.Lion(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    compared(mlp, OPTIMIZERS[name])


def test_batch_norm_and_dropout():
    build = lambda: nn.Sequential(nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 4))
    compared(build, OPTIMIZERS["adam"])


def test_several_batch_sizes():
    sizes = [5, 2, 5, 7]
    xs, ys = [RANDOM.normal(size=(n, 12)).astype("f") for n in sizes], [RANDOM.integers(0, 4, n) for n in sizes]
    compared(mlp, OPTIMIZERS["adam"], xs, ys)


def digits():
    images = data.digits()[0].astype("f").reshape(-1, 1, 8, 8) / 16
    labels = data.digits()[1]
    return [images[i * 64 : i * 64 + 64] for i in range(6)], [labels[i * 64 : i * 64 + 64] for i in range(6)]


def test_digits_mlp_is_trained_as_by_eager_code():
    losses = compared(DigitsMLP, lambda p: gl.optim.Adam(p, lr=0.005), *digits(), shape=[None, 1, 8, 8], weights=False)
    assert losses[-1] < losses[0]


def test_digits_cnn_is_trained_as_by_eager_code():
    xs, ys = digits()
    compared(DigitsCNN, lambda p: gl.optim.SGD(p, lr=0.05), xs[:3], ys[:3], shape=[None, 1, 8, 8], rtol=1e-4, weights=False)


def test_gpt_with_unknown_batch_and_time():
    config = GPTConfig(vocab_size=11, block_size=16, n_layer=2, n_head=2, n_embd=8, dropout=0.1)
    adam = lambda p: gl.optim.AdamW(p, lr=0.01)
    loss_of = lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten())
    g = gl.Graph()
    with g.as_default():
        x, y = (gl.placeholder(gl.int64, ["batch", gl.graph.unknown("time", 12)]) for _ in range(2))
        model = GPT(config)
        loss = loss_of(model(x), y)
        train = adam(model.parameters()).minimize(loss)
    texts = [RANDOM.integers(0, 11, (2, b, n)) for b, n in ((2, 5), (3, 16), (2, 5))]
    gl.manual_seed(1)
    with gl.Session(g) as s:
        s.run(gl.global_variables_initializer())
        found = [float(s.run([train, loss], {x: a, y: b})[1]) for a, b in texts]
    gl.manual_seed(1)
    twin = GPT(config)
    opt = adam(twin.parameters())
    want = [opt.minimize(loss_of(twin(gl.tensor(a)), gl.tensor(b))).item() for a, b in texts]
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_eager_minimize_and_apply_gradients():
    a, b = gl.tensor([1.0], requires_grad=True), gl.tensor([1.0], requires_grad=True)
    one, two = gl.optim.SGD([a], lr=0.1), gl.optim.SGD([b], lr=0.1)
    assert one.minimize((a * 3).sum()).item() == 3
    assert two.apply_gradients([(gl.tensor([3.0]), b)]) is None
    assert a.item() == b.item() == pytest.approx(0.7)


def test_learning_rates_are_read_at_each_run():
    g = gl.Graph()
    with g.as_default():
        v = gl.Variable([1.0])
        rate = gl.placeholder(gl.float32, [])
        opt = gl.optim.SGD([v], lr=1.0)
        train = opt.minimize((v * 2).sum())
        fed = gl.optim.SGD([v], lr=rate).minimize((v * 2).sum())
    schedule = gl.optim.lr_scheduler.StepLR(opt, 1, 0.1)
    with gl.Session(g) as s:
        s.run(gl.global_variables_initializer())
        s.run(train)
        assert s.run(v) == pytest.approx([-1.0])
        schedule.step()
        s.run(train)
        assert s.run(v) == pytest.approx([-1.2])
        s.run(fed, {rate: 0.5})
        assert s.run(v) == pytest.approx([-2.2])


def test_clipped_gradients():
    g = gl.Graph()
    with g.as_default():
        model = mlp()
        x, y = gl.placeholder(gl.float32, [None, 12]), gl.placeholder(gl.int64, [None])
        opt = gl.optim.SGD(model.parameters(), lr=0.5)
        params = list(model.parameters())
        loss = F.cross_entropy(model(x), y)
        grads = gl.autograd.grad(loss, params)
        norm = sum((d * d).sum() for d in grads).sqrt()
        scale = (0.1 / (norm + 1e-6)).clamp(max=1.0)
        train = opt.apply_gradients([(d * scale, p) for d, p in zip(grads, params, strict=True)])
    gl.manual_seed(2)
    twin = mlp()
    other = gl.optim.SGD(twin.parameters(), lr=0.5)
    gl.manual_seed(2)
    with gl.Session(g) as s:
        s.run(gl.global_variables_initializer())
        for a, b in zip(XS, YS, strict=True):
            s.run(train, {x: a, y: b})
            other.zero_grad()
            F.cross_entropy(twin(gl.tensor(a)), gl.tensor(b)).backward()
            nn.utils.clip_grad_norm_(twin.parameters(), 0.1)
            other.step()
        for p, q in zip(params, twin.parameters(), strict=True):
            np.testing.assert_allclose(s.run(p), q.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_two_losses_through_shared_variables():
    """As a GAN's: each step's gradient is that of the values its own forward read, whatever the other writes."""

    def build():
        return nn.Linear(3, 3), nn.Linear(3, 1)

    g = gl.Graph()
    with g.as_default():
        maker, judge = build()
        z = gl.placeholder(gl.float32, [None, 3])
        score = judge(maker(z))
        judges = gl.optim.SGD(judge.parameters(), lr=0.1).minimize(score.pow(2).mean())
        makers = gl.optim.SGD(maker.parameters(), lr=0.1).minimize((1 - score).pow(2).mean())
    noise = RANDOM.normal(size=(4, 3)).astype("f")
    for together in (False, True):
        gl.manual_seed(4)
        with gl.Session(g) as s:
            s.run(gl.global_variables_initializer())
            if together:
                s.run([judges, makers], {z: noise})
            else:
                s.run(judges, {z: noise})
                s.run(makers, {z: noise})
            found = s.run([maker.weight, judge.weight])
        gl.manual_seed(4)
        eager_maker, eager_judge = build()
        first, second = gl.optim.SGD(eager_judge.parameters(), lr=0.1), gl.optim.SGD(eager_maker.parameters(), lr=0.1)
        out = lambda maker, judge: judge(maker(gl.tensor(noise)))
        if together:  # both gradients at the values from before
            score_now = out(eager_maker, eager_judge)
            params = [*eager_judge.parameters()], [*eager_maker.parameters()]
            one = gl.autograd.grad(score_now.pow(2).mean(), params[0], retain_graph=True)
            two = gl.autograd.grad((1 - score_now).pow(2).mean(), params[1])
            first.apply_gradients(zip(one, params[0], strict=True))
            second.apply_gradients(zip(two, params[1], strict=True))
        else:
            first.minimize(out(eager_maker, eager_judge).pow(2).mean())
            second.minimize((1 - out(eager_maker, eager_judge)).pow(2).mean())
        for a, b in zip(found, (eager_maker.weight, eager_judge.weight), strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5)


def test_two_steps_in_one_graph():
    """The second forward reads what the first step wrote, when both run."""
    g = gl.Graph()
    with g.as_default():
        v = gl.Variable([2.0])
        opt = gl.optim.SGD([v], lr=0.1, momentum=0.5)
        one = opt.minimize((v * v).sum())
        loss = (v * v).sum()
        two = opt.minimize(loss)
    w = gl.tensor([2.0], requires_grad=True)
    eager = gl.optim.SGD([w], lr=0.1, momentum=0.5)
    eager.minimize((w * w).sum())
    want = eager.minimize((w * w).sum()).item()
    with gl.Session(g) as s:
        s.run(gl.global_variables_initializer())
        assert s.run([one, two, loss])[2] == pytest.approx(want) and s.run(v) == pytest.approx(w.detach().numpy())
        assert len(g.variables) == 2


def test_statistics_follow_the_train_step_and_can_be_run_alone():
    g = gl.Graph()
    with g.as_default():
        x = gl.placeholder(gl.float32, [None, 2])
        norm, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
        loss = norm(x).sum()
        unused = other(x)
        train = gl.optim.SGD(norm.parameters()).minimize(loss)
        norm.eval()
        test = norm(x)
    batch = RANDOM.normal(size=(8, 2)).astype("f") + 5
    with gl.Session(g) as s:
        s.run(gl.global_variables_initializer())
        s.run([loss, test, unused], {x: batch})
        assert s.run(norm.running_mean).tolist() == [0, 0]
        s.run(train, {x: batch})
        np.testing.assert_allclose(s.run(norm.running_mean), 0.1 * batch.mean(0), rtol=1e-5)
        assert s.run(norm.num_batches_tracked) == 1 and s.run(other.num_batches_tracked) == 0
        s.run(g.updates, {x: batch})
        assert s.run(norm.num_batches_tracked) == 2 and s.run(other.num_batches_tracked) == 1


def test_train_steps_that_make_no_sense():
    g = gl.Graph()
    with g.as_default():
        v, w = gl.Variable([1.0, 2.0]), gl.Variable([1.0])
        opt = gl.optim.SGD([v])
        with pytest.raises(ValueError, match="one element"):
            opt.minimize(v * 2)
        with pytest.raises(ValueError, match="does not depend on any parameter"):
            opt.minimize(w.sum())
        with pytest.raises(ValueError, match="no parameter of this optimizer"):
            opt.apply_gradients([(w, w)])
        with pytest.raises(ValueError, match=r"no \(gradient, parameter\) pairs"):
            opt.apply_gradients([])
        loss = v.sum()
    with pytest.raises(TraceError, match="graph"):
        opt.minimize(loss)


def test_an_optimizer_of_eager_code_is_as_it_was():
    layer = nn.Linear(12, 4)
    opt = gl.optim.Adam(layer.parameters(), lr=0.1)
    opt.minimize(F.cross_entropy(layer(gl.tensor(XS[0])), gl.tensor(YS[0])))
    g = gl.Graph()
    with g.as_default():
        x, y = gl.placeholder(gl.float32, [None, 12]), gl.placeholder(gl.int64, [None])
        train = opt.minimize(F.cross_entropy(layer(x), y))
    assert not g.variables  # parameters and buffers are shared
    twin = nn.Linear(12, 4)
    twin.load_state_dict(layer.state_dict())
    other = gl.optim.Adam(twin.parameters(), lr=0.1)
    other.load_state_dict(opt.state_dict())
    with gl.Session(g) as s:
        for i in (1, 2):
            s.run(train, {x: XS[i], y: YS[i]})
            other.minimize(F.cross_entropy(twin(gl.tensor(XS[i])), gl.tensor(YS[i])))
    opt.minimize(F.cross_entropy(layer(gl.tensor(XS[3])), gl.tensor(YS[3])))
    other.minimize(F.cross_entropy(twin(gl.tensor(XS[3])), gl.tensor(YS[3])))
    np.testing.assert_allclose(layer.weight.detach().numpy(), twin.weight.detach().numpy(), rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- on the (emulated) GPU


@pytest.mark.usefixtures("cuda")
class TestCuda:
    def test_training(self):
        build = lambda: nn.Sequential(nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 4))
        compared(build, OPTIMIZERS["adam"], device="cuda")

    def test_first_steps_that_differ(self):
        compared(mlp, OPTIMIZERS["dampening"], device="cuda")

    def test_digits(self):
        xs, ys = digits()
        compared(DigitsMLP, lambda p: gl.optim.Adam(p, lr=0.005), xs[:3], ys[:3], [None, 1, 8, 8], "cuda", 1e-4, False)

    def test_fetches_variables_and_shared_tensors(self):
        table = gl.tensor([[1.0, 2.0], [3.0, 4.0]])
        layer = nn.Linear(2, 2)
        g = gl.Graph()
        with g.as_default():
            i = gl.placeholder(gl.int64, [None])
            v = gl.Variable(gl.zeros(2), name="v")
            y = layer(table[i]) + v + gl.arange(2)
            add = v.assign_add(gl.ones(2))
            write = gl.assign(layer.bias, [0, 0])
            noise = gl.rand(3)
        with gl.Session(g, device="cuda") as s:
            assert s.device.type == "cuda" and "cuda" in repr(s)
            s.run(gl.global_variables_initializer())
            for _ in range(3):
                want = (layer(table[gl.tensor([1, 0])]) + gl.tensor(s.run(v)) + gl.arange(2)).detach().numpy()
                np.testing.assert_allclose(s.run(y, {i: [1, 0]}), want, rtol=1e-5)
                np.testing.assert_allclose(s.run(y, {i: gl.tensor([1, 0]).to("cuda")}), want, rtol=1e-5)
                with gl.no_grad():
                    layer.weight.add_(1.0)  # read anew
                s.run(add)
            assert s.run(v).tolist() == [3, 3] and s.state_dict()["v"].tolist() == [3, 3]
            with pytest.raises(RuntimeError, match="move it"):
                s.run(write)
            gl.manual_seed(1)
            found = s.run(noise)
        gl.manual_seed(1)
        np.testing.assert_array_equal(found, gl.rand(3).numpy())

    def test_control_flow(self):
        g = gl.Graph()
        with g.as_default():
            x = gl.placeholder(gl.float32, [None, 3])
            v = gl.Variable([1.0, 2.0, 3.0])
            chosen = gl.cond(x.sum() > 0, lambda a: a * v + gl.ones(3), lambda a: a - v, (x,))
            halved = gl.while_loop(lambda a: a.abs().max() > 1, lambda a: (a / 2 + gl.zeros(3),), (x,))[0]
            last, sums = gl.scan(lambda c, row: (c + row * v, c + row + gl.arange(3)), gl.zeros(3), x)
            (slope,) = gl.autograd.grad((last * last).sum() + chosen.sum(), [v])
        found = []
        for device in ("cpu", "cuda"):
            with gl.Session(g, device=device) as s:
                s.run(gl.global_variables_initializer())
                found.append(s.run([chosen, halved, last, sums, slope], {x: np.full((2, 3), 3)}))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b)

    def test_modules_on_the_gpu_decide(self):
        layer = nn.Linear(2, 2).to("cuda")
        g = gl.Graph()
        with g.as_default():
            x = gl.placeholder(gl.float32, [None, 2])
            train = gl.optim.SGD(layer.parameters(), lr=0.1).minimize(layer(x).sum())
        before = layer.weight.detach().cpu().numpy().copy()
        with gl.Session(g) as s:
            assert s.device.type == "cuda"
            s.run(train, {x: np.ones((2, 2))})
        np.testing.assert_allclose(layer.weight.detach().cpu().numpy(), before - 0.2, rtol=1e-5)
