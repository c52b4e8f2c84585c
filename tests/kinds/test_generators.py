"""Every function that takes a `generator` draws from it alone: one seed, the same numbers; another, others; the default is left alone."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

import gradlab as gl
from gradlab.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, random_split

WEIGHTS = [0.5, 2.0, 1.0, 4.0, 0.25, 1.5, 3.0, 0.75, 1.25]
CHANCES = gl.tensor(WEIGHTS) / 5


def fresh(shape=(3, 5)):
    return gl.zeros(*shape)


FUNCTIONS = {
    "rand": lambda g: gl.rand(4, generator=g), "randn": lambda g: gl.randn(4, generator=g),
    "randint": lambda g: gl.randint(99, (4,), generator=g),
    "randperm": lambda g: gl.randperm(9, generator=g), "rand_like": lambda g: gl.rand_like(fresh(), generator=g),
    "randn_like": lambda g: gl.randn_like(fresh(), generator=g), "randint_like": lambda g: gl.randint_like(fresh(), 99, generator=g),
    "bernoulli": lambda g: gl.bernoulli(CHANCES.repeat(9), generator=g),
    "bernoulli p": lambda g: gl.bernoulli(fresh((40,)), 0.5, generator=g),
    "poisson": lambda g: gl.poisson(CHANCES * 99, generator=g), "multinomial": lambda g: gl.multinomial(CHANCES, 9, True, generator=g),
    "multinomial once": lambda g: gl.multinomial(CHANCES, 9, generator=g), "normal": lambda g: gl.normal(CHANCES, 2.0, generator=g),
    "normal of numbers": lambda g: gl.normal(0.0, 1.0, (4,), generator=g),
    "normal of two": lambda g: gl.normal(CHANCES, CHANCES, generator=g),
    "normal of std": lambda g: gl.normal(1.0, CHANCES, generator=g),
    **{name: lambda g, name=name, options=options: getattr(fresh(), name)(*options, generator=g)
       for name, options in {
           "uniform_": (), "normal_": (), "exponential_": (), "log_normal_": (), "cauchy_": (), "geometric_": (0.1,), "bernoulli_": (0.5,),
           "random_": (0, 99)}.items()},
    **{f"nn.init.{name}": lambda g, name=name, options=options: getattr(gl.nn.init, name)(fresh(), *options, generator=g)
       for name, options in {
           "uniform_": (), "normal_": (), "trunc_normal_": (), "xavier_uniform_": (), "xavier_normal_": (), "kaiming_uniform_": (),
           "kaiming_normal_": (), "orthogonal_": (), "sparse_": (0.4,)}.items()},
    "RandomSampler": lambda g: list(RandomSampler(range(9), generator=g)),
    "RandomSampler with replacement": lambda g: list(RandomSampler(range(9), True, generator=g)),
    "RandomSampler, several orders": lambda g: list(RandomSampler(range(9), num_samples=20, generator=g)),
    "SubsetRandomSampler": lambda g: list(SubsetRandomSampler(range(9), g)),
    "WeightedRandomSampler": lambda g: list(WeightedRandomSampler(WEIGHTS, 9, generator=g)),
    "WeightedRandomSampler without replacement": lambda g: list(WeightedRandomSampler(WEIGHTS, 9, False, generator=g)),
    "random_split": lambda g: [list(part.indices) for part in random_split(range(9), [4, 5], generator=g)],
    "DataLoader": lambda g: [b.tolist() for b in DataLoader(list(range(9)), batch_size=2, shuffle=True, generator=g)],
}  # fmt: skip
TAKEN_APART = {"default_generator", "manual_seed"}


def listed(value):
    return value.tolist() if isinstance(value, gl.Tensor) else value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_generator_is_what_is_drawn_from(name):
    call = FUNCTIONS[name]
    before = gl.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, again, other = (listed(call(gl.Generator().manual_seed(seed))) for seed in (1, 1, 2))
        going_on = gl.Generator().manual_seed(1)
        first, second = (listed(call(going_on)) for _ in range(2))
    assert one == again == first and one not in (other, second)
    assert np.array_equal(gl.get_rng_state().numpy(), before.numpy())


def test_every_function_with_a_generator_is_here():
    rooms = {"": gl, "nn.init.": gl.nn.init, "Tensor.": gl.Tensor}
    wanted = set()
    for prefix, room in rooms.items():
        for name in dir(room):
            function = getattr(room, name, None)
            if name.startswith("_") or not callable(function):
                continue
            try:
                takes = "generator" in inspect.signature(function).parameters
            except (TypeError, ValueError):
                continue
            if takes:
                wanted.add(name if prefix == "Tensor." else prefix + name)
    known = {name.partition(" ")[0].rstrip(",") for name in FUNCTIONS} | TAKEN_APART
    assert wanted - known == set()


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("count", [5, 6, 7, 9])
def test_an_order_keeps_its_numbers_for_itself(count, times):
    """Where several orders follow one another, what is drawn next begins behind all of them (an order starts at a multiple of 4)."""
    source, plain = gl.Generator().manual_seed(3), gl.Generator().manual_seed(3)
    list(RandomSampler(range(count), num_samples=count * times, generator=source))
    for _ in range(times):
        gl.randperm(count, generator=plain)
    assert gl.rand(8, generator=source).tolist() == gl.rand(8, generator=plain).tolist()


def test_weights_as_small_as_they_can_be():
    """Their product with a number below 1 may be rounded up to their sum; an index of weight 0 is never drawn."""
    assert set(WeightedRandomSampler([0.0, 5e-324, 0.0, 0.0], 20)) == {1}
