"""Guards: the conditions under which a traced program stands for the user's function.

Each condition is a Python expression over names bound to the objects it looks at. They are compiled into one function, so that a call of a
compiled step checks some hundred of them in a few microseconds. The first that fails says what changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from gradlab.graph.freeze import Same, freeze, is_plain, short

_PER_FUNCTION = 4000  # expressions that one generated function tests; Python compiles larger ones in more than linear time
_PER_LINE = 16


class Guards:
    """Collects conditions; `build()` gives the function that tests them all on (args, kwargs, mode)."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"freeze": freeze, "type": type, "len": len}
        self._by_object: dict[int, str] = {}
        self.conditions: dict[str, tuple[str, str, Any]] = {}  # test -> (label, expression of the value, what it was)

    def name(self, value: Any) -> str:
        """A name bound to an object in the tests; the object is kept alive."""
        key = id(value)
        found = self._by_object.get(key)
        if found is None:
            found = self._by_object[key] = f"o{len(self._by_object)}"
            self.names[found] = value
        return found

    def test(self, expression: str, label: str, value: str = "", was: Any = None) -> None:
        """A condition as it stands; `value` is the expression whose value the message shows."""
        self.conditions.setdefault(expression, (label, value, was))

    def same(self, expression: str, value: Any, label: str) -> None:
        """The expression gives this very object."""
        self.test(f"{expression} is {self.name(value)}", label, expression, value)

    def equal(self, expression: str, value: Any, label: str) -> None:
        """The expression gives an equal plain value, or a container or object that looks as it does now."""
        if value is None or value is True or value is False:
            self.test(f"{expression} is {value}", label, expression, value)
        elif type(value) in (int, str) or (type(value) is float and value != 0 and abs(value) < 1e300):  # ±0, NaN, inf: by their repr
            # The same object, which is what it mostly is, takes half the time to see.
            same, kind = f"{expression} is {self.name(value)}", f"type({expression}) is {self.name(type(value))}"
            self.test(f"({same} or ({expression} == {value!r} and {kind}))", label, expression, value)
        else:
            frozen = freeze(value)
            if type(frozen) is Same:
                self.same(expression, value, label)
            else:
                self.test(f"freeze({expression}) == {self.name(frozen)}", label, expression, value if is_plain(value) else None)

    def build(self) -> Callable[[Any, Any, Any], bool]:
        """The test of all conditions: True if the program may run."""
        tests = list(self.conditions)
        parts = []
        for start in range(0, len(tests), _PER_FUNCTION):
            lines = ["def check(args, kwargs, mode):", "  try:"]
            some = tests[start : start + _PER_FUNCTION]
            rows = (some[i : i + _PER_LINE] for i in range(0, len(some), _PER_LINE))
            lines += [f"    if not ({' and '.join(row)}): return False" for row in rows]
            lines += ["    return True", "  except (AttributeError, KeyError, IndexError, TypeError, ValueError): return False"]
            space = dict(self.names)
            exec(compile("\n".join(lines), "<gradlab guards>", "exec"), space)
            parts.append(space["check"])
        if len(parts) == 1:
            return parts[0]
        return lambda args, kwargs, mode: all(part(args, kwargs, mode) for part in parts)

    def words(self) -> list[str]:
        """What the conditions are about; equal ones once, with their number."""
        found = Counter(label if was is None else f"{label}: {' '.join(short(was).split())}" for label, _, was in self.conditions.values())
        return [text if n == 1 else f"{text} (×{n})" for text, n in found.items()]

    def why(self, args: Any, kwargs: Any, mode: Any) -> str:
        """What the first failing condition is about, in words; "" if all hold."""
        for test, (label, expression, was) in self.conditions.items():
            space = {**self.names, "args": args, "kwargs": kwargs, "mode": mode}
            try:
                if eval(test, space):
                    continue
            except (AttributeError, KeyError, IndexError, TypeError, ValueError):
                return f"{label} is gone"
            if not expression:
                return f"{label} changed"
            now = eval(expression, space)
            return f"{label} was {short(was)}, is {short(now)}" if was is not None or now is None or is_plain(now) else f"{label} changed"
        return ""

