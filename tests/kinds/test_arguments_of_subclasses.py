"""An instance of a subclass of Tensor among the arguments, first or not: the results of all public functions, methods, modules and
distributions are of the subclass, as in PyTorch. In a process of its own: once there is such a class, functions ask for good.
"""

import json
import operator
import subprocess
import sys
from pathlib import Path

import pytest

import gradlab as gl

from kinds.calls import CALLS, callable_of, parts

LAYERS = [
    ("RNN", (4, 4), 3), ("LSTM", (4, 4), 3), ("GRU", (4, 4), 3), ("RNNCell", (4, 4), 2), ("LSTMCell", (4, 4), 2), ("GRUCell", (4, 4), 2),
    ("TransformerEncoderLayer", (4, 2, 8), 3), ("MultiheadAttention", (4, 2), 3), ("Linear", (4, 4), 3), ("LayerNorm", (4,), 3),
    ("BatchNorm1d", (4,), 3), ("Conv1d", (4, 2, 1), 3), ("ReLU", (), 3), ("MaxPool1d", (2,), 3), ("AdaptiveAvgPool1d", (2,), 3),
]  # fmt: skip
# A distribution's parameters, and a value.
DISTRIBUTIONS = {
    "Bernoulli": [0.3, 1.0], "Beta": [0.3, 2.0, 0.5], "Binomial": [3, 0.4, 1.0], "Cauchy": [0.3, 2.0, 0.5], "Chi2": [0.3, 0.5],
    "ContinuousBernoulli": [0.3, 0.4], "Exponential": [0.3, 1.0], "FisherSnedecor": [3.0, 5.0, 0.5], "Gamma": [0.3, 2.0, 0.5],
    "Geometric": [0.3, 1.0], "Gumbel": [0.3, 2.0, 0.5], "HalfCauchy": [0.3, 0.5], "HalfNormal": [0.3, 0.5], "InverseGamma": [3.0, 2.0, 0.5],
    "Kumaraswamy": [0.3, 2.0, 0.5], "Laplace": [0.3, 2.0, 0.5], "LogNormal": [0.3, 2.0, 0.5], "NegativeBinomial": [3, 0.4, 1.0],
    "Normal": [0.3, 2.0, 0.5], "Pareto": [0.3, 2.0, 4.0], "Poisson": [0.3, 1.0], "StudentT": [3.0, 0.5], "Uniform": [0.3, 2.0, 0.5],
    "VonMises": [0.3, 2.0, 0.5], "Weibull": [0.3, 2.0, 0.5],
}  # fmt: skip


def kinds(result):
    """S of each tensor that is of the subclass, T of each that is not."""
    return "".join("T" if type(x) is gl.Tensor else "S" for x in parts(result) if isinstance(x, gl.Tensor))


def instances(value, of):
    """The value with each of its tensors in turn, itself or in a list, as an instance."""
    if isinstance(value, gl.Tensor):
        yield gl.Tensor._make_subclass(of, value)
    elif type(value) in (list, tuple):
        for i, x in enumerate(value):
            if isinstance(x, gl.Tensor):
                yield type(value)([*value[:i], gl.Tensor._make_subclass(of, x), *value[i + 1 :]])


def calls(of):
    for call in (call for call in CALLS if call.number == 0):
        for place in range(len(call.arguments)):
            given, options = call.tensors()
            for changed in instances(given[place], of):
                (first, *others), _ = call.tensors()
                args = [first, *others]
                args[place] = changed
                name = call.name.removeprefix("Tensor.")
                if hasattr(operator, name) or name == "__divmod__":  # Python asks the class of the right side, too
                    result = getattr(operator, name, divmod)(*args, **options)
                elif name != call.name:  # as it is written: of the instance, where it is first
                    function = getattr(args[0], name)
                    result = function(*args[1:], **options) if callable(function) else function
                else:
                    result = callable_of(gl, name)(*args, **options)
                yield f"{call} {place}", result


def layers(of):
    for name, sizes, rank in LAYERS:
        x = gl.ones(*(2, 4, 4)[:rank]).as_subclass(of)
        yield name, getattr(gl.nn, name)(*sizes)(*[x] * (3 if name == "MultiheadAttention" else 1))


def distributions(of):
    import gradlab.distributions as room  # after the class was defined

    for name, (*numbers, value) in DISTRIBUTIONS.items():
        kind = getattr(room, name)
        for place in range(len(numbers)):
            if not isinstance(numbers[place], int):
                given = [gl.tensor([x, x]) if isinstance(x, float) else x for x in numbers]
                given[place] = given[place].as_subclass(of)
                made = kind(*given)
                drawn = [made.sample(), *([made.rsample()] if kind.has_rsample else [])]
                yield f"{name} {place}", [made.log_prob(gl.tensor([value, value])), *drawn]
        yield f"{name} value", kind(*numbers).log_prob(gl.tensor([value, value]).as_subclass(of))


def plain_results():
    """Where a result is of no subclass."""

    class Sub(gl.Tensor):
        pass

    gl.ones(1).as_subclass(Sub)
    rooms = (calls, layers, distributions)
    return {room.__name__: {name: kinds(result) for name, result in room(Sub) if "T" in kinds(result)} for room in rooms}


@pytest.mark.alone
def test_results_are_of_the_subclass():
    program = "import json, kinds.test_arguments_of_subclasses as here; print(json.dumps(here.plain_results()))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"calls": {}, "layers": {}, "distributions": {}}
