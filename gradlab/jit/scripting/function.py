"""`script`: the source of a function or of a module's forward, rewritten and compiled."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import warnings
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from gradlab.autograd.mode import current
from gradlab.jit.module import ScriptModule
from gradlab.jit.scripting.check import check
from gradlab.jit.scripting.example import Calls
from gradlab.jit.scripting.names import LOOPS
from gradlab.jit.scripting.rewrite import RUNTIME, Rewriter
from gradlab.jit.scripting.runtime import Runtime, ScriptError
from gradlab.jit.trace import trace
from gradlab.nn.module import Module

_refused_stay_python = False


class ScriptFunction:
    """A function whose decisions on tensors stay in a trace. Call it as the function it was made of."""

    def __init__(self, function: FunctionType) -> None:
        self.original = function
        self.rewritten, self.code = _rewritten(function)
        self.calls: Calls | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current().tracer is None:
            self.calls = self.calls.note(args, kwargs) if self.calls else Calls(args, kwargs)
        return self.rewritten(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A scripted method."""
        return self if instance is None else MethodType(self, instance)

    def trace(self, example_inputs: Any, **options: Any) -> ScriptModule:
        """`jit.trace(self, example_inputs)`."""
        return trace(self, example_inputs, **options)

    def save(self, f: Any, example_inputs: Any = None, **options: Any) -> None:
        """Trace, and save the program: with the example, or as the script was called before. RuntimeError if there is neither."""
        _program(self, self.calls, example_inputs, options).save(f)

    def __repr__(self) -> str:
        return f"<script {self.original.__qualname__}>"


def _program(script: Any, calls: Calls | None, example_inputs: Any, options: dict[str, Any]) -> ScriptModule:
    if example_inputs is not None:
        return trace(script, example_inputs, **options)
    if calls is None:
        raise RuntimeError("save: a program has the shapes of its arguments; call the script once before, or give save(f, example_inputs)")
    return calls.traced(script)


def _save(module: Module, f: Any, example_inputs: Any = None, **options: Any) -> None:
    """A scripted module's `save`, as a ScriptFunction's."""
    calls = module.forward.__func__.calls  # type: ignore[attr-defined]
    _program(module, calls, example_inputs, options).save(f)


def script(obj: Any, example_inputs: Any = None) -> Any:
    """Rewrite a function, or the forward of a module, so that `if`, `while`, `for … in range(…)`, `and`, `or`, `not` and `a if c else b` on
    tensors stay in what is traced of it, as `gl.cond` and `gl.while_loop`.

    Called eagerly it does what the function does. Traced, by `jit.trace`, `gl.compile` or ONNX export, decisions on tensors of one element
    become part of the program, both branches included; decisions on Python's values are made while tracing, and loops over them unrolled.
    Functions that it calls are traced as they are, unless they are scripts. docs/jit.md lists what a script may say.

    obj: a function, a method in a class (as a decorator), or a module, of which a twin with the same parameters is returned; submodules
    of classes outside of gradlab are scripted too. A class is given back as it is: its objects are Python's in a trace, too.
    example_inputs: given, the result is traced with them: a ScriptModule. `save(f)` of what has been called before traces it with zeros of
    those shapes.
    Raises ScriptError for what scripts do not have, with its line; TypeError for something without Python source, and for a class of
    modules. Under `gradlab.as_torch` what scripts do not have is a UserWarning, and obj is given back as it is: libraries script their
    helpers while they are imported.

    >>> import gradlab as gl
    >>> @gl.jit.script
    ... def halved(x):
    ...     while x.abs().sum() > 1:
    ...         x = x / 2
    ...     return x
    >>> gl.jit.trace(halved, gl.ones(1))(gl.tensor([6.0]))
    tensor([0.7500])
    """
    try:
        made = _scripted(obj)
    except ScriptError as error:
        if not _refused_stay_python:
            raise
        warnings.warn(f"{error}\nIt stays Python's: a decision on a tensor in it stops a trace.", UserWarning, stacklevel=2)
        made = obj
    return made if example_inputs is None else trace(made, example_inputs)


def let_refused_stay_python(allowed: bool) -> None:
    """Say whether `script` gives back, with a warning, what it cannot rewrite: so in PyTorch's scripts (as_torch)."""
    global _refused_stay_python
    _refused_stay_python = allowed


def _scripted(obj: Any) -> Any:
    if isinstance(obj, Module):
        return _module(obj)
    if isinstance(obj, ScriptFunction):
        return obj
    if isinstance(obj, MethodType):
        return MethodType(ScriptFunction(_function(obj.__func__)), obj.__self__)
    if isinstance(obj, type) and not issubclass(obj, Module):
        return obj
    return ScriptFunction(_function(obj))


def _function(obj: Any) -> FunctionType:
    if not isinstance(obj, FunctionType):
        if isinstance(obj, type):
            raise TypeError(f"jit.script: {obj.__name__} is a class of modules; script an instance, jit.script({obj.__name__}(...))")
        raise TypeError(f"jit.script: expected a function or a module, not {type(obj).__name__}")
    if obj.__name__ == "<lambda>":
        raise ScriptError("jit.script: a lambda has no statements to rewrite; define a function with def")
    if obj.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise ScriptError(f"jit.script: {obj.__qualname__} is a generator or a coroutine; return the values instead")
    return obj


def _rewritten(function: FunctionType) -> tuple[FunctionType, str]:
    """The function of the rewritten source, in the same globals and with the same closure; and its text."""
    file = function.__code__.co_filename
    try:
        lines, start = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise ScriptError(
            f"jit.script: the source of {function.__qualname__} is not to be found; define it in a file (or a notebook's cell)"
        ) from None
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, start - 1)
    (definition,) = tree.body
    if not isinstance(definition, ast.FunctionDef):
        raise ScriptError(f"jit.script: {function.__qualname__} is no plain def")
    _mangle(function, definition)
    check(file, definition)
    Rewriter(file, definition)
    free = list(function.__code__.co_freevars)
    arguments = ast.arguments([], [ast.arg(n) for n in (RUNTIME, *free)], None, [], [], None, [])
    outer = ast.FunctionDef("_outer", arguments, [definition], [], None)
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(outer, definition)], []))
    text = ast.unparse(definition)
    code = _inner(_inner(compile(module, file, "exec"), "_outer"), definition.name)
    cells = dict(zip(free, function.__closure__ or (), strict=True)) | {RUNTIME: CellType(Runtime(file, function.__qualname__))}
    made = FunctionType(
        code.replace(co_qualname=function.__qualname__), function.__globals__, function.__name__, function.__defaults__,
        tuple(cells[n] for n in code.co_freevars),
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return made, text


def _mangle(function: FunctionType, definition: ast.FunctionDef) -> None:
    """A class's private names (`self.__x`) as the class has them: the source is compiled outside of it."""
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2].lstrip("_")
    if not owner or owner == "<locals>":
        return
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{owner}{node.attr}"


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _module(module: Module) -> Module:
    """A twin of a module, with the same tensors, whose forward is a script."""
    if isinstance(module, ScriptModule):
        return module
    twin: Module = object.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    children = {n: _child(m) for n, m in module._modules.items()}
    if any(children[n] is not m for n, m in module._modules.items()):
        twin.__dict__["_modules"] = children
    twin.__dict__["forward"] = MethodType(ScriptFunction(_function(_forward(module))), twin)
    twin.__dict__["save"] = MethodType(_save, twin)
    return twin


def _forward(module: Module) -> Callable[..., Any]:
    found = type(module).forward
    return found.original if isinstance(found, ScriptFunction) else found


def _child(module: Any) -> Any:
    """A submodule: scripted where it is the user's own and decides something, or holds such a module."""
    if module is None or isinstance(module, ScriptModule):
        return module
    if not type(module).__module__.startswith("gradlab.") and _decides(_forward(module)):
        return _module(module)
    children = {n: _child(m) for n, m in module._modules.items()}
    if all(children[n] is m for n, m in module._modules.items()):
        return module
    twin: Module = object.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    twin.__dict__["_modules"] = children
    return twin


def _decides(function: Any) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(isinstance(n, (ast.If, ast.IfExp, ast.BoolOp, *LOOPS)) for n in ast.walk(tree))
