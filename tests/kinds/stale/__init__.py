"""Ways to change what a compiled function uses, by the place where the change is made.

A way is a function that makes something anew and returns a pair: what is compiled, and `change(patch)`, which changes what the first uses
(`patch` is pytest's monkeypatch, so changes of the library are undone). READS compute a tensor from one; MODELS are modules; STEPS are
pairs of a module and its training step.
"""

READS, MODELS, STEPS = {}, {}, {}


def read(make):
    READS[make.__name__] = make
    return make


def model(make):
    MODELS[make.__name__] = make
    return make


def step(make):
    STEPS[make.__name__] = make
    return make
