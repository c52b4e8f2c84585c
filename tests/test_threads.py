"""Recording and backward from several threads at once."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gradlab as gl
from gradlab import nn
from gradlab.nn import functional as F

THREADS, ROUNDS = 4, 25


@pytest.fixture(autouse=True)
def _switch_often():
    """Let threads meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(work, count=THREADS):
    """Run `work(number)` in threads that start together; their results."""
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return [f.result() for f in [pool.submit(run, i) for i in range(count)]]


def test_every_thread_its_own_model():
    def train(i):
        rng = np.random.default_rng(i)
        w1, w2 = (gl.tensor(rng.normal(size=s) * 0.3, requires_grad=True) for s in ((4, 8), (8, 1)))
        x = gl.tensor(rng.normal(size=(16, 4)))
        losses = []
        for _ in range(ROUNDS):
            loss = ((x @ w1).tanh() @ w2 - 1).square().mean()
            loss.backward()
            with gl.no_grad():
                for w in (w1, w2):
                    w.sub_(w.grad, alpha=0.1)
                    w.grad = None
            losses.append(loss.item())
        return losses

    assert at_once(train) == [train(i) for i in range(THREADS)]


def test_one_model_in_several_threads_adds_up_every_gradient():
    gl.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
    batches = [gl.tensor(np.random.default_rng(i).normal(size=(7, 5)).astype("f4")) for i in range(THREADS)]

    def work(i):
        for _ in range(ROUNDS):
            F.cross_entropy(net(batches[i]), gl.tensor([0, 1, 2, 0, 1, 2, 0])).backward()

    at_once(work)
    found = [p.grad.numpy().copy() for p in net.parameters()]
    net.zero_grad()
    for i in range(THREADS):
        work(i)
    for p, g in zip(net.parameters(), found, strict=True):
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_backward_of_one_retained_graph_in_several_threads():
    x = gl.tensor(np.linspace(-1, 1, 12).reshape(3, 4), requires_grad=True)
    w = gl.tensor(np.eye(4) + 0.1, requires_grad=True)
    y = F.layer_norm((x @ w).tanh() * x.exp(), (4,)).square().sum()
    wanted = [g.numpy() for g in gl.autograd.grad(y, (x, w), retain_graph=True)]

    def work(_):
        for _ in range(ROUNDS):
            for g, v in zip(gl.autograd.grad(y, (x, w), retain_graph=True), wanted, strict=True):
                np.testing.assert_array_equal(g.numpy(), v)
        y.backward(retain_graph=True)

    at_once(work)
    np.testing.assert_allclose(x.grad.numpy(), THREADS * wanted[0])


def test_two_backwards_that_free_one_graph_are_right_or_a_clear_error():
    outcomes = set()
    for _ in range(ROUNDS):
        x = gl.ones(8, dtype=gl.float64, requires_grad=True)
        y = x * 1
        for _ in range(20):
            y = (y * x).sin() * y.exp().tanh()
        loss = y.sum()

        def work(_, loss=loss, x=x):
            try:
                return gl.autograd.grad(loss, x)[0].numpy()
            except RuntimeError as error:
                assert "retain_graph=True" in str(error)
                return None

        for found in at_once(work, 2):
            outcomes.add(found is None)
    assert True in outcomes or outcomes == {False}


def test_two_losses_over_one_shared_part():
    """As two heads over one trunk: with the trunk retained, each thread's backward is its own."""
    x = gl.ones(6, dtype=gl.float64, requires_grad=True)
    trunk = (x * 2).exp()

    def work(i):
        (trunk * (i + 1)).sin().sum().backward(retain_graph=True)

    at_once(work)
    t = np.exp(2.0)
    np.testing.assert_allclose(x.grad.numpy(), sum(np.cos(t * (i + 1)) * (i + 1) for i in range(THREADS)) * 2 * t)


def test_modes_hooks_and_checkpoints_are_each_threads_own():
    x = gl.linspace(0.1, 1.0, 8, dtype=gl.float64)

    def work(i):
        for _ in range(ROUNDS):
            leaf = x.detach().clone().requires_grad_()
            packed = []
            if i % 4 == 0:
                with gl.no_grad():
                    assert not (leaf * 2).requires_grad
                y = leaf.exp().sin()
            elif i % 4 == 1:
                with gl.autograd.graph.saved_tensors_hooks(lambda t, seen=packed: seen.append(1) or t, lambda t: t):
                    y = leaf.exp().sin()
                assert len(packed) == 2
            elif i % 4 == 2:
                y = gl.utils.checkpoint.checkpoint(lambda v: v.exp().sin(), leaf)
            else:
                y = leaf.exp().sin()
                y.register_hook(lambda g: g * 1)
            y.sum().backward()
            np.testing.assert_allclose(leaf.grad.numpy(), (np.cos(np.exp(x.numpy())) * np.exp(x.numpy())))

    at_once(work)


def test_a_loader_thread_prepares_batches_while_the_model_learns():
    ready: list = []
    have = threading.Semaphore(0)

    def load():
        for i in range(ROUNDS):
            batch = gl.tensor(np.random.default_rng(i).normal(size=(8, 4)).astype("f4"))
            ready.append((batch - batch.mean(0)) / batch.std(0))
            have.release()

    gl.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = gl.optim.SGD(net.parameters(), lr=0.1)
    thread = threading.Thread(target=load)
    thread.start()
    for i in range(ROUNDS):
        have.acquire()
        optimizer.zero_grad()
        net(ready[i]).square().mean().backward()
        optimizer.step()
        assert not ready[i].requires_grad
    thread.join()


def test_function_and_node_hooks_in_several_threads():
    class Double(gl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            assert ctx.saved_tensors[0].shape == (3,)
            return g * 2

    leaf = gl.ones(3, requires_grad=True)

    def work(_):
        for _ in range(ROUNDS):
            y = Double.apply(leaf)
            seen: list = []
            y.grad_fn.register_hook(lambda gi, go, seen=seen: seen.append(go))
            y.sum().backward()
            assert len(seen) == 1

    at_once(work)
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full(3, 2.0 * THREADS * ROUNDS))
