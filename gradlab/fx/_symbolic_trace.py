"""Tracing: a module's `forward`, or a function, runs on proxies, and what it does becomes a graph."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType, ModuleType
from typing import Any

from gradlab import nn
from gradlab.fx.graph import Graph
from gradlab.fx.graph_module import GraphModule
from gradlab.fx.node import Argument, has_side_effect, map_aggregate
from gradlab.fx.proxy import Proxy, TracerBase
from gradlab.nn import Module, Parameter
from gradlab.overrides.overridable import activate, places
from gradlab.tensor import Tensor

_wrapped: list[tuple[dict[str, Any], str]] = []
_tracing = 0


def is_fx_tracing() -> bool:
    """Whether a module is being traced."""
    return _tracing > 0


@has_side_effect
def check_concrete(value: Any, expected: Any, name: str) -> None:
    """RuntimeError where an argument is another one than the graph was made for."""
    if value != expected:
        raise RuntimeError(f"the graph was traced with {name}={expected!r} as a concrete argument; it was called with {value!r}")


def wrap(fn_or_name: Any) -> Any:
    """Keep calls of a function whole in graphs: its name, or the function, at the top of the module that calls it; also as a decorator.

    It stands in that module's code by its name, which is another one while a module is traced. NotImplementedError elsewhere.
    """
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError(f"wrap: the name of a function, or the function, not {fn_or_name!r}")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap: call it at the top of a module, not in a function or class")
    _wrapped.append((frame.f_globals, fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__))
    return fn_or_name


def _proxies(*values: Any) -> list[Proxy]:
    found: list[Proxy] = []
    map_aggregate(values, lambda a: found.append(a) if isinstance(a, Proxy) else None)
    return found


def _kept_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is noted where an argument is a proxy."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = _proxies(args, kwargs)
        return found[0].tracer.create_proxy("call_function", function, args, kwargs) if found else function(*args, **kwargs)

    return call


@contextmanager
def _exchanged(table: dict[str, Any], changes: dict[str, Any]) -> Iterator[None]:
    """Other values under some names of a table, for a while."""
    missing = object()
    before = {name: table.get(name, missing) for name in changes}
    table.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                del table[name]
            else:
                table[name] = value


class _Parameters(dict[str, Any]):
    """A module's table of parameters, in which one that is looked up is a proxy."""

    def __init__(self, table: dict[str, Any], tracer: Tracer) -> None:
        super().__init__(table)
        self.tracer = tracer

    def __getitem__(self, name: str) -> Any:
        return self.tracer.parameter_proxy(super().__getitem__(name))


class Tracer(TracerBase):
    """Traces modules. `is_leaf_module` says which submodules stay calls; every method may be overridden.

    autowrap_modules: modules whose functions are kept whole; autowrap_functions: functions that are, in the code that is traced.
    """

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,), autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        self._autowrap_modules, self._autowrap_functions = autowrap_modules, autowrap_functions
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self._paths: dict[Module, str] = {}
        self._attributes: dict[int, str] = {}
        self._parameter_proxies: dict[str, Any] = {}

    # ------------------------------------------------------------ what may be overridden

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a module stay calls: those of gradlab's own classes, but Sequential."""
        return type(m).__module__.startswith("gradlab.nn") and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted name of a submodule of the root. NameError where it is none."""
        try:
            return self._paths[mod]
        except KeyError:
            raise NameError(f"{type(mod).__name__} is no submodule of the module that is traced") from None

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a submodule gives: a node, or what `forward`, traced through, returns."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a parameter is where the code that is traced looks it up: a proxy of a get_attr node, one for each."""
        path = self._attributes.get(id(attr_val))
        if not isinstance(attr_val, Parameter) or path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {})
        return parameter_proxy_cache[path]

    def parameter_proxy(self, parameter: Any) -> Any:
        """A parameter that is looked up."""
        return parameter if parameter is None else self.getattr("", parameter, self._parameter_proxies)

    def _one_arg(self, a: Any) -> Argument:
        if isinstance(a, (Tensor, Module)):
            path = self._paths.get(a) if isinstance(a, Module) else self._attributes.get(id(a))
            if path is None:
                path = self.get_fresh_qualname("_tensor_constant" if isinstance(a, Tensor) else "_module_constant")
                if isinstance(a, Tensor):
                    self.root.__dict__[path] = a
                    self._attributes[id(a)] = path
                else:
                    self.root.add_module(path, a)
                    self._paths[a] = path
            return self.create_node("get_attr", path, (), {})
        return super()._one_arg(a)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that the root has no attribute of."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """The function to run, and its arguments: a placeholder for each parameter, but for those that are concrete."""
        concrete = concrete_args or {}
        parameters = list(inspect.signature(root_fn).parameters.values())
        args: list[Any] = [self.root] if is_module else []
        by_name: dict[str, Any] = {}
        for parameter in parameters[1:] if is_module else parameters:
            name = parameter.name
            if parameter.kind is parameter.VAR_POSITIONAL:
                args.append(_Rest(self.create_proxy("placeholder", f"*{name}", (), {})))
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                by_name["**"] = self.create_proxy("placeholder", f"**{name}", (), {})
                continue
            default = () if parameter.default is parameter.empty else (parameter.default,)
            value = self.create_proxy("placeholder", name, default, {})
            if name in concrete and concrete[name] is not PH:
                self.create_proxy("call_function", check_concrete, (value, concrete[name], name), {})
                value = concrete[name]
            if parameter.kind is parameter.KEYWORD_ONLY:
                by_name[name] = value
            else:
                args.append(value)
        unknown = set(concrete) - {parameter.name for parameter in parameters}
        if unknown:
            raise RuntimeError(f"concrete_args: {', '.join(sorted(unknown))} is no parameter of {getattr(root_fn, '__name__', root_fn)}")
        return functools.partial(_call, root_fn, by_name), args

    # ------------------------------------------------------------ the trace

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's forward, or of a function. TraceError where what it does depends on values.

        concrete_args: arguments by name that are as given in this graph; it checks them when it runs.
        """
        global _tracing
        activate()
        function, of_class = root, False
        self.root = Module()
        if isinstance(root, Module):
            self.root, of_class = root, "forward" not in vars(root)
            function = type(root).forward if of_class else root.forward
        self.graph = Graph(tracer_cls=type(self))
        self._paths = {module: path for path, module in reversed(list(self.root.named_modules()))}
        tensors = (*self.root.named_parameters(remove_duplicate=False), *self.root.named_buffers(remove_duplicate=False))
        self._attributes = {id(tensor): path for path, tensor in reversed(tensors)}
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self._attributes.setdefault(id(value), f"{path}.{name}" if path else name)
        self._parameter_proxies = {}
        call, args = self.create_args_for_root(function, of_class, concrete_args)
        with ExitStack() as stack:
            for module in self.root.modules():
                self._watch(module, stack, root is module)
            self._keep_whole(function, stack)
            _tracing += 1
            try:
                found = call(args)
            finally:
                _tracing -= 1
        self.create_node("output", "output", (self.create_arg(found),), {})
        return self.graph

    def _watch(self, module: Module, stack: ExitStack, is_root: bool) -> None:
        """Let a module's calls and parameters come here, while the trace lasts."""
        known = module.__dict__
        hooked, plain = known["_hooked"], known.get("forward")
        stack.enter_context(_exchanged(known, {"_parameters": _Parameters(known["_parameters"], self)}))
        if is_root:
            return

        def inside(*args: Any, **kwargs: Any) -> Any:
            own = module.forward if plain is None else plain
            if not hooked:
                return own(*args, **kwargs)
            return module._call_hooked(args, kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:
            def through(*args: Any, **kwargs: Any) -> Any:
                before = known.pop("forward")
                if plain is not None:
                    known["forward"] = plain
                try:
                    return inside(*args, **kwargs)
                finally:
                    known["forward"] = before

            return self.call_module(module, through, args, kwargs)

        stack.enter_context(_exchanged(known, {"forward": forward, "_hooked": False}))

    def _keep_whole(self, function: Any, stack: ExitStack) -> None:
        """Functions that stay calls, by the names under which the code that is traced has them."""
        spaces = {id(space): space for space in self._spaces(function)}
        for space, name in _wrapped:
            whole = space.get(name, getattr(sys.modules["builtins"], name, None))
            if callable(whole):
                stack.enter_context(_exchanged(space, {name: _kept_whole(whole)}))
        theirs = {id(f): f for module in self._autowrap_modules for f in vars(module).values() if callable(f) and not isinstance(f, type)}
        theirs.update({id(f): f for f in self._autowrap_functions})
        asking = {id(f.plain): f for table in places().values() for f in table.values()}
        for space in (*spaces.values(), *map(vars, self._autowrap_modules)):
            changes = {name: _kept_whole(value) for name, value in space.items() if id(value) in theirs}
            changes |= {name: asking[id(value)] for name, value in space.items() if id(value) in asking}
            stack.enter_context(_exchanged(space, changes))

    def _spaces(self, function: Any) -> list[dict[str, Any]]:
        found = [inspect.unwrap(function)] if callable(function) else []
        found += [type(module).forward for module in self.root.modules() if not type(module).__module__.startswith("gradlab.")]
        return [f.__globals__ for f in found if isinstance(f, FunctionType) and not (f.__module__ or "").startswith("gradlab.")]


class _Rest:
    """The parameter that takes the other arguments."""

    def __init__(self, proxy: Any) -> None:
        self.proxy = proxy


def _call(function: Callable[..., Any], by_name: dict[str, Any], args: list[Any]) -> Any:
    by_name = dict(by_name)
    options = by_name.pop("**", None)
    given = [a for a in args if not isinstance(a, _Rest)]
    rest = next((a.proxy for a in args if isinstance(a, _Rest)), None)
    if rest is None and options is None:
        return function(*given, **by_name)
    # Python would take the proxies apart to give them: a twin of the function gets them as they are.
    plain = inspect.unwrap(function)
    code = plain.__code__
    code = code.replace(
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        co_argcount=code.co_argcount + code.co_kwonlyargcount + (rest is not None) + (options is not None),
        co_kwonlyargcount=0, co_posonlyargcount=0,
    )  # fmt: skip
    twin = FunctionType(code, plain.__globals__, plain.__name__, None, plain.__closure__)
    names = code.co_varnames[len(given) : len(given) + len(by_name)]
    return twin(*given, *(by_name[name] for name in names), *(x for x in (rest, options) if x is not None))


PH: Any = type("_Placeholder", (), {"__repr__": lambda self: "PH"})()


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module that does what the module or function does, as a graph that can be read and changed.

    >>> from gradlab.fx import symbolic_trace
    >>> traced = symbolic_trace(lambda x, y: gl.relu(x + y).sum())
    >>> print(traced.code, end="")
    def forward(self, x, y):
        add = x + y;  x = y = None
        relu = gradlab.relu(add);  add = None
        sum_1 = relu.sum();  relu = None
        return sum_1
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
