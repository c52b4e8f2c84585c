"""Guards: the conditions under which a traced program stands for the user's function.

Each condition is a Python expression over names bound to the objects it looks at. They are compiled into one function, so that a call of a
compiled step checks some hundred of them in a few microseconds. The first that fails says what changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Set
from typing import Any

from gradlab.graph.guards.freeze import Same, freeze, is_fixed, is_plain, is_told, short
from gradlab.graph.guards.machine_guards import Condition, Found, Word, can_watch, object_words, path, watcher

_PER_FUNCTION = 4000  # expressions that one generated function tests; Python compiles larger ones in more than linear time
_PER_LINE = 16
WATCHED = "(watch(watch_at) or watched(args, kwargs, mode))"


class _Later:
    """A test that is made when it is first needed: most never are. Where it holds all the same, machine code is told (`renew`).

    That takes as long as many tests, so it is done at the first time, the second, the fourth and so on.
    """

    def __init__(
        self, make: Callable[[list[str]], Callable[[Any, Any, Any], bool]], tests: list[str], renew: Callable[[], None]
    ) -> None:
        self.make, self.tests, self.renew = make, tests, renew
        self.made: Callable[[Any, Any, Any], bool] | None = None
        self.times = 0

    def __call__(self, args: Any, kwargs: Any, mode: Any) -> bool:
        if self.made is None:
            self.made = self.make(self.tests)
        holds = self.made(args, kwargs, mode)
        if holds:
            self.times += 1
            if not self.times & (self.times - 1):
                self.renew()
        return holds


class Guards:
    """Collects conditions; `build()` gives the function that tests them all on (args, kwargs, mode)."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"freeze": freeze, "type": type, "len": len}
        self._by_object: dict[int, str] = {}
        self.conditions: dict[str, tuple[str, str, Any]] = {}  # test -> (label, expression of the value, what it was)
        self.known_mode: Any = None  # a mode for which all tests of the mode hold
        self.found: dict[str, tuple[Condition, ...]] = {}  # test -> what it mostly is: some objects where they were

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

    def mostly(self, test: str, *found: Condition) -> None:
        """The test is known to hold where all of these do, which is quicker to see."""
        if all(not isinstance(f, Found) or path(f.expression, self.names) is not None for f in found):
            self.found.setdefault(test, found)

    def same(self, expression: str, value: Any, label: str) -> None:
        """The expression gives this very object."""
        test = f"{expression} is {value if value is None or value is True or value is False else self.name(value)}"
        self.test(test, label, expression, value)
        self.mostly(test, Found(expression, value))

    def size(self, expression: str, size: int, label: str) -> None:
        """The expression gives a container with so many entries."""
        test = f"len({expression}) == {size}" if size else f"not {expression}"
        self.test(test, label, f"len({expression})", size)
        self.mostly(test, Found(expression, None, size))

    def table(self, table: dict[Any, Any], label: str) -> None:
        """A dict, of hooks for example, has these very entries."""
        test = f"{self.name(table)} == {self.name(dict(table))}"
        self.test(test, label)
        if (words := object_words()) and all(type(key) in (int, str) for key in table):
            entries = (Found(f"{self.name(table)}[{key!r}]", value) for key, value in table.items())
            self.mostly(test, Word(table, words["entries"]), *entries)

    def equal(self, expression: str, value: Any, label: str, without: Set[tuple[int, Any]] = frozenset()) -> None:
        """The expression gives an equal plain value, or a container or object that looks as it does now, apart from entries `without`."""
        if value is None or value is True or value is False:
            self.same(expression, value, label)
            return
        frozen = freeze(value)
        if without and frozen != (picture := freeze(value, without=without)):
            self.test(f"freeze({expression}, 8, {self.name(without)}) == {self.name(picture)}", label)
            return
        if type(frozen) is Same:
            self.same(expression, value, label)
            return
        if type(value) in (int, str) or (type(value) is float and value != 0 and abs(value) < 1e300):  # ±0, NaN, inf: by their repr
            test = f"(type({expression}) is {self.name(type(value))} and {expression} == {value!r})"
        else:
            test = f"freeze({expression}) == {self.name(frozen)}"
            if type(value) is dict and not value:
                test = f"(type({expression}) is {self.name(dict)} and not {expression})"
        if is_told(value):  # the same object, which is what it mostly is, takes half the time to see
            test = f"({expression} is {self.name(value)} or {test})"
            self.mostly(test, Found(expression, value))
        self.test(test, label, expression, value if is_fixed(value) else None)

    def build(self) -> Callable[[Any, Any, Any], bool]:
        """The test of all conditions: True if the program may run."""
        watched = [test for test in self.conditions if test in self.found] if can_watch() else []
        first = watcher((found for test in watched for found in self.found[test]), self.names) if watched else None
        if first is None:
            return self._function(list(self.conditions))
        table, _ = self.names["watch_kept"] = first
        self.names["watch"], self.names["watch_at"] = table.test, table.at
        seen, self.found = self.found, {}

        def renew() -> None:
            now = watcher((found for test in watched for found in seen[test]), self.names)
            if now is not None:
                table.replace(now[0])
                self.names["watch_kept"] = table, now[1]

        self.names["watched"] = _Later(self._function, watched, renew)
        return self._function([*(test for test in self.conditions if test not in seen), WATCHED])

    def _function(self, tests: list[str]) -> Callable[[Any, Any, Any], bool]:
        """One function of some tests."""
        parts = []
        for start in range(0, len(tests), _PER_FUNCTION):
            given, some = _by_name(self._quicker(tests[start : start + _PER_FUNCTION]))
            lines = ["def check(args, kwargs, mode):", "  try:", *given]
            rows = (some[i : i + _PER_LINE] for i in range(0, len(some), _PER_LINE))
            lines += [f"    if not ({' and '.join(row)}): return False" for row in rows]
            lines += ["    return True", "  except (AttributeError, KeyError, IndexError, TypeError, ValueError): return False"]
            space = dict(self.names)
            exec(compile("\n".join(lines), "<gradlab guards>", "exec"), space)
            parts.append(space["check"])
        if len(parts) == 1:
            return parts[0]
        return lambda args, kwargs, mode: all(part(args, kwargs, mode) for part in parts)

    def _quicker(self, tests: list[str]) -> list[str]:
        """The same tests in another form: the mode is mostly the very object it was."""
        modes = [test for test in tests if test.startswith("mode.")]
        if not modes or self.known_mode is None:
            return tests
        return [*(t for t in tests if t not in modes), f"(mode is {self.name(self.known_mode)} or ({' and '.join(modes)}))"]

    def words(self) -> list[str]:
        """What the conditions are about; equal ones once, with their number."""
        found = Counter(label if was is None else f"{label}: {' '.join(short(was).split())}" for label, _, was in self.conditions.values())
        return [text if n == 1 else f"{text} (×{n})" for text, n in found.items()]

    def failing(self, args: Any, kwargs: Any, mode: Any) -> int:
        """How many conditions do not hold."""
        space, count = {**self.names, "args": args, "kwargs": kwargs, "mode": mode}, 0
        for test in self.conditions:
            try:
                count += not eval(test, space)
            except (AttributeError, KeyError, IndexError, TypeError, ValueError):
                count += 1
        return count

    def why(self, args: Any, kwargs: Any, mode: Any) -> str:
        """What the first failing condition is about, in words; "" if all hold."""
        space = {**self.names, "args": args, "kwargs": kwargs, "mode": mode}
        for test, (label, expression, was) in self.conditions.items():
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



def _by_name(tests: list[str]) -> tuple[list[str], list[str]]:
    """Lines that give positional arguments and their arrays names of their own, and the tests in these names."""
    arrays, arguments = (sorted({int(n) for test in tests for n in form.findall(test)}) for form in (_ARRAY, _ARGUMENT))
    lines = [f"    a{n} = args[{n}]" for n in arguments] + [f"    b{n} = a{n}._array" for n in arrays]
    return lines, [_ARGUMENT.sub(r"a\1", _ARRAY.sub(r"b\1", test)) for test in tests]


_ARGUMENT = re.compile(r"\bargs\[(\d+)\]")
_ARRAY = re.compile(r"\bargs\[(\d+)\]\._array\b")
