"""What is called with a wrong argument: every public function and method, modules (made and called), optimizers, schedulers, distributions,
what loads data. Each with a call that works, made anew each time."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import gradlab as gl
from gradlab import distributions, nn
from gradlab.utils import data

import onnx_modules
from kinds import test_half_distributions, test_schedulers_resumed
from kinds.calls import CALLS

Made = tuple[Callable[..., Any], list[Any], dict[str, Any]]


@dataclass
class Subject:
    """A call that works. words: what an error may call it, besides its own name."""

    name: str
    make: Callable[[], Made]
    writes: bool = False
    words: tuple[str, ...] = ()
    keywords: tuple[str, ...] = field(default=())

    @property
    def bare(self) -> str:
        return self.name.partition("-")[0].rpartition(".")[2]


def keywords(function: Any, given: int, named: Any) -> tuple[str, ...]:
    """The parameters that a call leaves at their defaults."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(
        p.name
        for i, p in enumerate(parameters)
        if p.kind in kinds and p.name not in named and (i >= given or p.kind is inspect.Parameter.KEYWORD_ONLY)
    )


def functions() -> Iterator[Subject]:
    for call in CALLS:
        if call.function.__name__ == "<lambda>":
            continue  # a property

        def make(call: Any = call) -> Made:
            args, options = call.tensors()
            return call.function, list(args), dict(options)

        yield Subject(
            repr(call),
            make,
            "in_place" in call.marks or call.name.startswith("Tensor.set"),
            (),
            keywords(call.function, len(call.arguments), call.options),
        )


# A call of each function that `kinds.calls` leaves out, where it can be called with a wrong argument.
MORE: dict[str, Callable[[], tuple[Any, ...]]] = {
    "gl.manual_seed": lambda: (0,),
    "gl.set_num_threads": lambda: (1,),
    "gl.set_default_dtype": lambda: (gl.float32,),
    "gl.set_default_device": lambda: ("cpu",),
    "gl.set_printoptions": lambda: (4,),
    "gl.set_rng_state": lambda: (gl.get_rng_state(),),
    "gl.set_float32_matmul_precision": lambda: ("highest",),
    "gl.use_deterministic_algorithms": lambda: (False,),
    "gl.set_grad_enabled": lambda: (True,),
    "gl.set_autocast_enabled": lambda: ("cpu", False),
    "gl.device": lambda: ("cpu",),
    "gl.set_num_interop_threads": lambda: (1,),
    "gl.set_deterministic_debug_mode": lambda: (0,),
    "gl.Generator": lambda: ("cpu",),
    "gl.complex": lambda: (gl.ones(3), gl.ones(3)),
    "gl.polar": lambda: (gl.ones(3), gl.ones(3)),
    "gl.imag": lambda: (gl.ones(3) * 1j,),
    "gl.view_as_complex": lambda: (gl.ones(3, 2),),
    "gl.view_as_real": lambda: (gl.ones(3) * 1j,),
    "gl.from_numpy": lambda: (np.ones(3),),
    "linalg.eig": lambda: (gl.eye(3),),
    "linalg.eigvals": lambda: (gl.eye(3),),
    "gl.Tensor": lambda: (2, 3),
    "gl.Size": lambda: ((2, 3),),
    "gl.vmap": lambda: (gl.sin, 0, 0),
    "gl.compile": lambda: (gl.sin,),
    "gl.cond": lambda: (gl.tensor(True), gl.sin, gl.cos, (gl.ones(3),)),
    "gl.while_loop": lambda: (lambda x: x.sum() < 3, lambda x: (x + 1,), (gl.zeros(3),)),
    "gl.scan": lambda: (lambda c, x: (c + x, x), gl.zeros(()), gl.ones(3)),
    "gl.switch": lambda: (0, (gl.sin, gl.cos), gl.ones(3)),
    "gl.sparse_coo_tensor": lambda: (gl.tensor([[0, 1], [1, 0]]), gl.ones(2), (2, 2)),
    "gl.sparse_csr_tensor": lambda: (gl.tensor([0, 1, 2]), gl.tensor([0, 1]), gl.ones(2), (2, 2)),
    "Tensor.backward": lambda: (gl.ones(3, requires_grad=True).sum(),),
    "Tensor.register_hook": lambda: (gl.ones(3, requires_grad=True), lambda g: g),
    "Tensor.retain_grad": lambda: (gl.ones(3, requires_grad=True),),
    "Tensor.to_sparse": lambda: (gl.eye(3),),
    "Tensor.sparse_mask": lambda: (gl.ones(3, 3), gl.eye(3).to_sparse()),
    "gl.spmm": lambda: (gl.eye(3).to_sparse(), gl.ones(3, 2)),
    "gl.smm": lambda: (gl.eye(3).to_sparse(), gl.ones(3, 2)),
    "Tensor.apply_": lambda: (gl.ones(3), lambda x: x),
    "Tensor.map_": lambda: (gl.ones(3), gl.ones(3), lambda x, y: x),
    "autograd.grad": lambda: ((x := gl.ones(3, requires_grad=True)).sum(), x),
    "autograd.backward": lambda: (gl.ones(3, requires_grad=True).sum(),),
    "autograd.gradcheck": lambda: (gl.sin, (gl.ones(3, dtype=gl.float64, requires_grad=True),)),
    "func.grad": lambda: (lambda x: x.sum(),),
    "func.jacrev": lambda: (gl.sin,),
    "func.jvp": lambda: (gl.sin, (gl.ones(3),), (gl.ones(3),)),
    "func.vjp": lambda: (gl.sin, gl.ones(3)),
    "func.functional_call": lambda: (nn.Linear(2, 2), {}, (gl.ones(1, 2),)),
    "func.hessian": lambda: (lambda x: x.sum(),),
    "gl.summary": lambda: (nn.Linear(2, 2), gl.ones(1, 2)),
    "gl.explain": lambda: (gl.ones(3, requires_grad=True).sum(),),
    "gl.promote_types": lambda: (gl.int8, gl.float32),
    "gl.can_cast": lambda: (gl.int8, gl.float32),
    "gl.finfo": lambda: (gl.float32,),
    "gl.iinfo": lambda: (gl.int8,),
    "signal.windows.hann": lambda: (5,),
    "signal.windows.kaiser": lambda: (5,),
    "signal.windows.gaussian": lambda: (5,),
    "signal.windows.general_cosine": lambda: (5,),
}
TABLE = {
    f"nn.init.{name}": more
    for name, more in {
        "uniform_": (),
        "normal_": (),
        "trunc_normal_": (),
        "constant_": (0.5,),
        "ones_": (),
        "zeros_": (),
        "eye_": (),
        "dirac_": (),
        "orthogonal_": (),
        "xavier_uniform_": (),
        "xavier_normal_": (),
        "kaiming_uniform_": (),
        "kaiming_normal_": (),
        "sparse_": (0.5,),
    }.items()
}


def found(name: str) -> Any:
    owner: Any = gl
    for part in (name.removeprefix("gl.")).split("."):
        owner = getattr(owner, part)
    return owner


def others() -> Iterator[Subject]:
    for name, arguments in MORE.items():
        function = found(name)
        yield Subject(
            name, lambda f=function, a=arguments: (f, list(a()), {}), "set_" in name, (), keywords(function, len(arguments()), {})
        )
    for name, more in TABLE.items():
        function = found(name)
        shape = (4, 4, 3) if "dirac" in name else (4, 3)
        yield Subject(name, lambda f=function, a=more, s=shape: (f, [gl.ones(*s), *a], {}), True, (), keywords(function, 1 + len(more), {}))
    for name in ("clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters", "get_total_norm"):
        function = getattr(nn.utils, name)
        more = {"vector_to_parameters": (gl.ones(6),)}.get(name, ())

        def make(f: Any = function, name: str = name) -> Made:
            parameters = nn.Linear(2, 2).requires_grad_(False)
            weights = list(parameters.parameters())
            for p in weights:
                p.grad = gl.ones(*p.shape)
            return f, [gl.ones(6), weights] if name == "vector_to_parameters" else [weights, *((1.0,) if "clip" in name else ())], {}

        yield Subject(f"nn.utils.{name}", make, True, (), keywords(function, 2, {}))


def made_as(make: Callable[[], Any]) -> Iterator[tuple[type, tuple[Any, ...], dict[str, Any]]]:
    """The classes and the arguments of modules that `make` makes itself."""
    calls: list[Any] = []

    class Watch:
        def __getattr__(self, name: str) -> Any:
            kind = getattr(nn, name)

            def build(*args: Any, **options: Any) -> Any:
                calls.append((kind, args, options))
                return kind(*args, **options)

            return build

    watched = onnx_modules.nn
    onnx_modules.nn = Watch()  # type: ignore[assignment]
    try:
        make()
    finally:
        onnx_modules.nn = watched
    yield from calls


def modules() -> Iterator[Subject]:
    seen: set[str] = set()
    for name, make, inputs in onnx_modules.cases():
        if name in ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict") or name.startswith("MaxUnpool"):
            continue
        number = sum(1 for key in seen if key.partition("-")[0] == f"nn.{name}")
        own = f"nn.{name}" + (f"-{number}" if number else "")
        seen.add(own)
        module = make()

        def call(make: Any = make, inputs: Any = inputs) -> Made:
            return make(), list(inputs), {}

        yield Subject(f"{own}()", call, False, (name, type(module).__name__), keywords(module.forward, len(inputs), {}))
        kind, args, options = next((c for c in made_as(make) if c[0] is getattr(nn, name, None)), (None, (), {}))
        if kind is not None:

            def build(kind: Any = kind, args: Any = args, options: Any = options) -> Made:
                return kind, list(args), dict(options)

            yield Subject(own, build, False, (name,), keywords(kind, len(args), options))

            def used(kind: Any = kind, args: Any = args, options: Any = options, inputs: Any = inputs) -> Made:
                return (lambda *a, **o: kind(*a, **o)(*inputs)), list(args), dict(options)

            yield Subject(f"{own} used", used, False, (name,), keywords(kind, len(args), options))


def optimizers() -> Iterator[Subject]:
    for name, kind in sorted(vars(gl.optim).items()):
        if not (inspect.isclass(kind) and issubclass(kind, gl.optim.Optimizer)) or name in ("Optimizer", "SparseAdam"):
            continue

        def parameters() -> Any:
            p = gl.ones(3, 3, requires_grad=True)
            p.grad = gl.ones(3, 3)
            return [p]

        yield Subject(f"optim.{name}", lambda k=kind: (k, [parameters()], {}), False, (name,), keywords(kind, 1, {}))

        def stepped(kind: Any = kind, name: str = name) -> Made:
            def run(*args: Any, **options: Any) -> Any:
                optimizer = kind(*args, **options)
                optimizer.step(*([lambda: gl.ones(())] if name == "LBFGS" else []))

            return run, [parameters()], {}

        yield Subject(f"optim.{name} step", stepped, True, (name,), keywords(kind, 1, {}))

        def step(kind: Any = kind, name: str = name) -> Made:
            return kind(parameters()).step, [lambda: gl.ones(())] if name == "LBFGS" else [], {}

        yield Subject(f"optim.{name}.step", step, True, (name,), ("closure",) if name != "LBFGS" else ())
        for method, argument in (("load_state_dict", lambda o: o.state_dict()), ("add_param_group", lambda o: {"params": parameters()})):

            def own(kind: Any = kind, method: str = method, argument: Any = argument) -> Made:
                optimizer = kind(parameters())
                return getattr(optimizer, method), [argument(optimizer)], {}

            yield Subject(f"optim.{name}.{method}", own, True, (name,), ())


def schedulers() -> Iterator[Subject]:
    rooms = (gl.optim.lr_scheduler, gl.optim.swa_utils)
    for name, cases in test_schedulers_resumed.CASES.items():
        kind = next(getattr(room, name) for room in rooms if hasattr(room, name))
        for number, options in enumerate(cases[:2]):
            if name in ("SequentialLR", "ChainedScheduler"):

                def make(kind: Any = kind, name: str = name, rooms: Any = rooms) -> Made:
                    opt = test_schedulers_resumed.optimizer(gl)
                    parts = [rooms[0].ConstantLR(opt, 0.5, 4), rooms[0].ExponentialLR(opt, 0.9)]
                    return kind, [opt, parts, [2]] if name == "SequentialLR" else [parts], {}
            else:

                def make(kind: Any = kind, options: Any = options) -> Made:
                    return kind, [test_schedulers_resumed.optimizer(gl)], dict(options)

            yield Subject(f"lr_scheduler.{name}" + (f"-{number}" if number else ""), make, True, (name,), keywords(kind, 3, options))

            def used(make: Any = make, name: str = name) -> Made:
                kind, args, options = make()

                def run(*args: Any, **options: Any) -> Any:
                    schedule = kind(*args, **options)
                    for _ in range(3):
                        schedule.step(*((1.0,) if name == "ReduceLROnPlateau" else ()))

                return run, args, options

            yield Subject(f"lr_scheduler.{name} step" + (f"-{number}" if number else ""), used, True, (name,), ())

            def step(make: Any = make, name: str = name) -> Made:
                kind, args, options = make()
                return kind(*args, **options).step, [1.0] if name == "ReduceLROnPlateau" else [], {}

            yield Subject(
                f"lr_scheduler.{name}.step" + (f"-{number}" if number else ""),
                step,
                True,
                (name,),
                ("epoch",) if name != "ChainedScheduler" else (),
            )


def drawn() -> Iterator[Subject]:
    for name, (make, arrays, values) in test_half_distributions.CASES.items():
        kind = getattr(distributions, name)

        def build(make: Any = make, arrays: Any = arrays) -> Made:
            return make, [gl.tensor(a, dtype=gl.float32) for a in arrays], {}

        direct = make is kind
        yield Subject(f"distributions.{name}", build, False, (name,), keywords(kind, len(arrays), {}) if direct else ())
        for method, given in (
            ("log_prob", [values]),
            ("sample", [(5,)]),
            ("rsample", [(5,)]),
            ("cdf", [values]),
            ("icdf", [values]),
            ("expand", [(3, *values.shape)]),
        ):

            def ask(make: Any = make, arrays: Any = arrays, method: str = method, given: Any = given) -> Made:
                made = make(*[gl.tensor(a, dtype=gl.float32) for a in arrays])
                return getattr(made, method), [gl.tensor(g, dtype=gl.float32) if isinstance(g, np.ndarray) else g for g in given], {}

            yield Subject(f"distributions.{name}.{method}", ask, False, (name,), ())
    pair = [distributions.Normal(0.0, 1.0), distributions.Normal(1.0, 1.0)]
    yield Subject("distributions.kl_divergence", lambda: (distributions.kl_divergence, list(pair), {}))


def loaded() -> Iterator[Subject]:
    def dataset() -> Any:
        return data.TensorDataset(gl.ones(6, 2), gl.ones(6))

    def whole(*args: Any, **options: Any) -> Any:
        return list(itertools.islice(data.DataLoader(*args, **options), 9))

    cases: dict[str, Callable[[], Made]] = {
        "DataLoader": lambda: (whole, [dataset(), 2], {}),
        "TensorDataset": lambda: (data.TensorDataset, [gl.ones(6, 2), gl.ones(6)], {}),
        "random_split": lambda: (data.random_split, [dataset(), [4, 2]], {}),
        "Subset": lambda: (lambda *a: list(data.Subset(*a)), [dataset(), [0, 2]], {}),
        "ConcatDataset": lambda: (data.ConcatDataset, [[dataset(), dataset()]], {}),
        "StackDataset": lambda: (data.StackDataset, [dataset(), dataset()], {}),
        "ChainDataset": lambda: (lambda *a: list(data.ChainDataset(*a)), [[]], {}),
        "BatchSampler": lambda: (
            lambda *a: list(itertools.islice(data.BatchSampler(*a), 9)),
            [data.SequentialSampler(dataset()), 2, False],
            {},
        ),
        "RandomSampler": lambda: (lambda *a, **o: list(itertools.islice(data.RandomSampler(*a, **o), 9)), [dataset(), True, 4], {}),
        "SequentialSampler": lambda: (lambda *a: list(itertools.islice(data.SequentialSampler(*a), 9)), [dataset()], {}),
        "SubsetRandomSampler": lambda: (lambda *a, **o: list(itertools.islice(data.SubsetRandomSampler(*a, **o), 9)), [[0, 1, 2]], {}),
        "WeightedRandomSampler": lambda: (
            lambda *a, **o: list(itertools.islice(data.WeightedRandomSampler(*a, **o), 9)),
            [[0.5, 0.25, 0.25], 4, True],
            {},
        ),
        "DistributedSampler": lambda: (lambda *a, **o: list(itertools.islice(data.DistributedSampler(*a, **o), 9)), [dataset(), 2, 0], {}),
        "default_collate": lambda: (data.default_collate, [[gl.ones(2), gl.ones(2)]], {}),
        "default_convert": lambda: (data.default_convert, [np.ones(2)], {}),
        "pad_collate": lambda: (data.pad_collate, [[gl.ones(2), gl.ones(3)]], {}),
        "TensorDataset[]": lambda: (dataset().__getitem__, [1], {}),
        "ConcatDataset[]": lambda: (data.ConcatDataset([dataset()]).__getitem__, [1], {}),
    }
    optional = {
        "DataLoader": data.DataLoader,
        "RandomSampler": data.RandomSampler,
        "random_split": data.random_split,
        "DistributedSampler": data.DistributedSampler,
    }
    for name, make in cases.items():
        names = keywords(optional[name], len(make()[1]), {}) if name in optional else ()
        yield Subject(f"data.{name}", make, False, (name.strip("[]"),), tuple(n for n in names if n not in ("num_workers",)))


FAMILIES = {
    "functions": functions, "others": others, "modules": modules, "optimizers": optimizers, "schedulers": schedulers,
    "distributions": drawn, "data": loaded,
}  # fmt: skip


def subjects(families: Any = FAMILIES) -> list[Subject]:
    return [subject for family in families for subject in FAMILIES[family]()]
