"""The plain attributes of modules, which a traced function should leave alone: a program would not change them again."""

from __future__ import annotations

from typing import Any

from gradlab.graph.guards.freeze import freeze
from gradlab.nn.module import Module

_TABLES = ("_parameters", "_buffers", "_modules")


class Attributes:
    """What the modules of a tree hold now. `changed()` puts back what has changed since, and names it."""

    def __init__(self, module: Module | None) -> None:
        self._known: list[tuple[Module, dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]] = []
        for part in module.modules() if module is not None else ():
            plain = {k: v for k, v in part.__dict__.items() if not k.startswith("_")}
            tables = {name: dict(part.__dict__[name]) for name in _TABLES}
            self._known.append((part, plain, {k: freeze(v) for k, v in plain.items()}, tables))

    def changed(self) -> list[str]:
        """Names such as "Counter.calls"."""
        found = []
        for module, plain, pictures, tables in self._known:
            known, title = module.__dict__, type(module).__name__
            for key in [k for k in known if not k.startswith("_") and k not in plain]:
                del known[key]
                found.append(f"{title}.{key}")
            for key, value in plain.items():
                if key not in known or freeze(known[key]) != pictures[key]:
                    known[key] = value
                    found.append(f"{title}.{key}")
            for name, entries in tables.items():
                if known[name].keys() != entries.keys() or any(known[name][k] is not v for k, v in entries.items()):
                    found += [f"{title}.{k}" for k in {**known[name], **entries} if known[name].get(k) is not entries.get(k)]
                    known[name].clear()
                    known[name].update(entries)
        return found
