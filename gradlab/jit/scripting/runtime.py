"""What rewritten code calls: Python's control flow for Python's values, and the staged functions for tensors while a trace goes on."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from gradlab.autograd.base import Differentiable
from gradlab.autograd.mode import current
from gradlab.dtype import BOOL, INT64
from gradlab.graph.control.functions import cond, while_loop
from gradlab.jit.scripting.values import Pieces, merged, shown
from gradlab.tensor.creation import tensor as tensor_of

_staging: ContextVar[str] = ContextVar("gradlab_script_block", default="")  # the tensor decision whose block is traced


AUGMENTED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "Add": (operator.add, operator.iadd), "Sub": (operator.sub, operator.isub), "Mult": (operator.mul, operator.imul),
    "Div": (operator.truediv, operator.itruediv), "FloorDiv": (operator.floordiv, operator.ifloordiv), "Mod": (operator.mod, operator.imod),
    "Pow": (operator.pow, operator.ipow), "MatMult": (operator.matmul, operator.imatmul), "LShift": (operator.lshift, operator.ilshift),
    "RShift": (operator.rshift, operator.irshift), "BitOr": (operator.or_, operator.ior), "BitXor": (operator.xor, operator.ixor),
    "BitAnd": (operator.and_, operator.iand),
}  # fmt: skip


class ScriptError(RuntimeError):
    """Something that a script cannot say, with its line and what to write instead."""


def place(file: str, line: int) -> str:
    """The line, for the end of a message."""
    text = linecache.getline(file, line).strip()
    return f"\n  at: {Path(file).name}:{line}: {text}" if text else f"\n  at: {Path(file).name}:{line}"


class Undefined:
    """What a variable holds before it has a value."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return "no value"


class TensorRange:
    """range() of tensors, in a trace."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("the range of a tensor has no length while tracing")


class Runtime:
    """Of one scripted function: `_script` in its rewritten code."""

    def __init__(self, file: str, title: str) -> None:
        self.file, self.title = file, title

    def error(self, line: int, message: str) -> ScriptError:
        """An error that names a line of the script."""
        return ScriptError(f"{self.title}: {message}{place(self.file, line)}")

    # ------------------------------------------------------------ small things

    def undefined(self, name: str) -> Undefined:
        """A variable without a value."""
        return Undefined(name)

    def defined(self, value: Any, name: str, line: int) -> Any:
        """The variable's value. UnboundLocalError where it has none."""
        if isinstance(value, Undefined):
            raise UnboundLocalError(
                f"cannot access local variable {name!r} where it is not associated with a value{place(self.file, line)}"
            )
        return value

    def decided(self, test: Any, what: str, line: int) -> bool:
        """A test that stays Python's."""
        if self.staged(test, line):
            raise self.error(
                line, f"{what} depends on the value of a tensor ({shown(test)}), which is not known while tracing; let the condition of a "
                f"while say when to stop, or keep the old value with where(done, old, new)",
            )  # fmt: skip
        return bool(test)

    def plain(self, iterable: Any, line: int) -> Any:
        """What a loop of Python's own goes through."""
        if isinstance(iterable, TensorRange):
            raise self.error(
                line, "a loop over a range of tensors has break, continue or return; write it as a while, whose condition says when to stop"
            )
        return iterable

    def changes(self, target: Any, line: int) -> None:
        """A statement is about to change an object."""
        block = _staging.get()
        if block and not isinstance(target, Differentiable):
            raise self.error(
                line, f"a {type(target).__name__} is changed inside of {block}, which is traced once, whatever happens then; assign "
                f"to a variable, or collect results in a tensor (gl.cat, index_put, gl.scan)",
            )  # fmt: skip

    def own(self, value: Any) -> Any:
        """What an element is about to be assigned of: in a block that is traced a copy, as tensors from outside may not change there."""
        return value.clone() if _staging.get() and isinstance(value, Differentiable) else value  # type: ignore[attr-defined]

    def raises(self, line: int) -> None:
        """A statement is about to raise."""
        block = _staging.get()
        if block:
            raise self.error(
                line, f"raise is inside of {block}, which is traced once, whatever happens then; check before it, or return what the "
                f"caller can look at (gl.where, a flag)",
            )  # fmt: skip

    def augmented(self, name: str, value: Any, other: Any) -> Any:
        """`x += y`: in place as ever, but in a block that is traced, whose tensors from outside may not change, `x + y`."""
        plain, in_place = AUGMENTED[name]
        return (plain if _staging.get() and isinstance(value, Differentiable) else in_place)(value, other)

    def staged(self, test: Any, line: int) -> bool:
        """Whether a test is a tensor of a trace. ScriptError where it has several elements."""
        mode = current()
        if not isinstance(test, Differentiable) or mode.tracer is None or mode.vmap is not None:
            return False
        if test.numel() != 1:  # type: ignore[attr-defined]
            raise self.error(
                line, f"a condition is one truth value, not a tensor {shown(test)}; use all(), any(), or where() for each element"
            )
        return True

    # ------------------------------------------------------------ expressions

    def every(self, *parts: Any) -> Any:
        """`a and b`."""
        return self._joined(parts[:-1], parts[-1], False)

    def some(self, *parts: Any) -> Any:
        """`a or b`."""
        return self._joined(parts[:-1], parts[-1], True)

    def _joined(self, parts: Sequence[Callable[[], Any]], line: int, stops: bool) -> Any:
        kept: Any = None  # the tensors so far
        value: Any = None
        for i, part in enumerate(parts):
            value = part()
            if self.staged(value, line) or kept is not None:
                flag = _truth(value)
                kept = flag if kept is None else kept.logical_or(flag) if stops else kept.logical_and(flag)
            elif i + 1 < len(parts) and bool(value) is stops:
                return value
        return value if kept is None else kept

    def negated(self, value: Any, line: int) -> Any:
        """`not a`."""
        return _truth(value).logical_not() if self.staged(value, line) else not value

    def either(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any], line: int) -> Any:
        """`a if c else b`."""
        if not self.staged(test, line):
            return yes() if test else no()
        (found,) = self._cond(test, lambda: (yes(),), lambda: (no(),), ["the value"], line)
        return found

    def range(self, *bounds: Any) -> Any:
        """`range(...)`, also of tensors."""
        if not any(isinstance(b, Differentiable) for b in bounds):
            return range(*bounds)
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if isinstance(step, Differentiable):
            raise TypeError("range: the step is an int, only start and stop may be tensors")
        if current().tracer is None:
            return [tensor_of(i, dtype=INT64) for i in range(int(start), int(stop), step)]
        return TensorRange(start, stop, step)

    # ------------------------------------------------------------ blocks

    def branch(
        self, test: Any, yes: Callable[..., Any], no: Callable[..., Any], values: Sequence[Any], results: Sequence[str], line: int
    ) -> Any:
        """An if: the variables that it gives to what follows."""
        if not self.staged(test, line):
            return (yes if test else no)(*values)
        return self._cond(test, lambda: yes(*values), lambda: no(*values), results, line)

    def ending(self, test: Any, yes: Callable[..., Any], no: Callable[..., Any], values: Sequence[Any], line: int) -> Any:
        """An if with a return in it: the function's result."""
        if not self.staged(test, line):
            return (yes if test else no)(*values)
        (found,) = self._cond(test, lambda: (yes(*values),), lambda: (no(*values),), ["the result"], line)
        return found

    def _cond(self, test: Any, yes: Callable[[], Any], no: Callable[[], Any], names: Sequence[str], line: int) -> list[Any]:
        pieces: dict[str, Pieces] = {}

        def run(key: str, block: Callable[[], Any]) -> Callable[[], Any]:
            def branch() -> tuple[Any, ...]:
                with self._block(f"the if of line {line}, which decides by a tensor"):
                    found = pieces[key] = Pieces(block(), names)
                if len(pieces) == 2 and (wrong := pieces["the if"].differs(pieces["the else"])):
                    raise self.error(line, wrong)
                return tuple(found.tensors)

            return branch

        out = cond(_truth(test), run("the if", yes), run("the else", no))
        return merged(pieces["the if"], pieces["the else"], list(out))

    def loop(self, test: Callable[..., Any], body: Callable[..., Any], names: Sequence[str], values: Sequence[Any], line: int) -> Any:
        """A while: the variables after it."""
        while True:
            flag = test(*values)
            if self.staged(flag, line):
                return self._while(test, body, names, values, line)
            if not flag:
                return values
            values = body(*values)

    def each(
        self, iterable: Iterable[Any], body: Callable[..., Any], names: Sequence[str], values: Sequence[Any], own: Sequence[str], line: int
    ) -> Any:
        """A for: the variables after it. own: those that the for itself assigns."""
        if not isinstance(iterable, TensorRange):
            for item in iterable:
                values = body(item, *values)
            return values
        if own:
            raise self.error(
                line,
                f"the loop over a range of tensors may have no turn, so that {', '.join(own)} has no value behind it; use another variable",
            )
        step = iterable.step
        if not isinstance(step, int) or step == 0:
            raise self.error(line, f"the step of a range is an int other than 0, not {step!r}")
        stop = iterable.stop

        def test(at: Any, *_: Any) -> Any:
            return at < stop if step > 0 else at > stop

        def turn(at: Any, *carried: Any) -> Any:
            return (at + step, *body(at, *carried))

        start = iterable.start
        first = start.to(INT64) if isinstance(start, Differentiable) else tensor_of(start, dtype=INT64)  # type: ignore[attr-defined]
        return self._while(test, turn, ["the loop's index", *names], [first, *values], line)[1:]

    def _while(
        self, test: Callable[..., Any], body: Callable[..., Any], names: Sequence[str], values: Sequence[Any], line: int
    ) -> list[Any]:
        before = Pieces(values, names)
        if missing := before.undefined():
            raise self.error(line, f"{missing} has no value before the loop, which may have no turn; assign it before")

        def asked(*tensors: Any) -> Any:
            with self._block(f"the loop of line {line}, which decides by a tensor"):
                return _truth(test(*before.rebuilt(tensors)))

        def turn(*tensors: Any) -> tuple[Any, ...]:
            with self._block(f"the loop of line {line}, which decides by a tensor"):
                after = Pieces(body(*before.rebuilt(tensors)), names)
            if wrong := before.changes_to(after):
                raise self.error(line, wrong)
            return tuple(after.tensors)

        if not before.tensors:
            raise self.error(line, "the loop decides by a tensor, and changes none")
        return before.rebuilt(while_loop(asked, turn, tuple(before.tensors)))

    @contextmanager
    def _block(self, what: str) -> Iterator[None]:
        token = _staging.set(what)
        try:
            yield
        finally:
            _staging.reset(token)


def _truth(value: Any) -> Any:
    if not isinstance(value, Differentiable):
        return tensor_of(bool(value))
    return value if value._array.dtype == BOOL else value.ne(0)  # type: ignore[attr-defined]
