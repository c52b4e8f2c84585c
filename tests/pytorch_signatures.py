"""Writes tests/pytorch_signatures.txt, how PyTorch's public functions, methods and constructors are called, from the PyTorch installed.

    python tests/pytorch_signatures.py

A line is a name and its signatures, `|` between them. `=x` has a default, `*x` is taken by name only, `...x` as often as it is given.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".txt")
MODULES = """
    torch nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize nn.utils.parametrizations nn.utils.prune linalg special
    autograd autograd.functional random func utils.data optim optim.lr_scheduler optim.swa_utils utils.checkpoint amp cuda.amp
    distributions nn.parameter profiler accelerator
"""
CLASSES = """
    nn.Module nn.Sequential nn.ModuleList nn.ModuleDict nn.ParameterList nn.ParameterDict optim.Optimizer optim.lr_scheduler.LRScheduler
    amp.GradScaler distributions.Distribution autograd.graph.Node nn.utils.rnn.PackedSequence
"""
Signature = list[tuple[str, str]]  # a mark ("", "=", "*", "*=", "...") and a name


def of_arguments(arguments: ast.arguments) -> Signature:
    """Of a function in a stub."""
    plain = arguments.posonlyargs + arguments.args
    required = len(plain) - len(arguments.defaults)
    found = [("" if i < required else "=", a.arg) for i, a in enumerate(plain)]
    found += [("...", arguments.vararg.arg)] if arguments.vararg else []
    return found + [("*" if d is None else "*=", a.arg) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]


def of_stub(path: Path, name: str = "") -> dict[str, list[Signature]]:
    """Of the functions in a stub, or the methods of a class there, without self."""
    body: Any = ast.parse(path.read_text(encoding="utf-8")).body
    if name:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == name).body
    found: dict[str, list[Signature]] = {}
    for n in body:
        if isinstance(n, ast.FunctionDef):
            signature = of_arguments(n.args)
            renamed = signature[1:] if name else [(mark, "input" if word == "self" else word) for mark, word in signature]
            found.setdefault(n.name, []).append(renamed)
    return found


def of_rows(path: Path) -> dict[str, list[Signature]]:
    """Of the rows of native functions, whose `self` is called `input` from Python."""
    found: dict[str, list[Signature]] = {}
    for name, overload, text in re.findall(r"^- func: (\w+)(?:\.(\w+))?\((.*)\) ->", path.read_text(encoding="utf-8"), re.MULTILINE):
        mark, signature = "", []
        for part in re.sub(r"\[[^\]]*\]", "", text).split(","):
            if part.strip() == "*":
                mark = "*"
            elif part.strip() and "!" not in part:
                word = part.split("=")[0].split()[-1]
                signature.append((mark + ("=" if "=" in part else ""), "input" if word == "self" else word))
        if "out" not in overload and "Dimname" not in text:
            found.setdefault(name, []).append([*signature, ("*=", "out")])
    return found


def of_callable(function: Any, bound: bool) -> list[Signature]:
    marks = {
        inspect.Parameter.VAR_POSITIONAL: "...", inspect.Parameter.KEYWORD_ONLY: "*", inspect.Parameter.POSITIONAL_ONLY: "",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "",
    }  # fmt: skip
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    if [p.name for p in parameters] in (["args", "kwargs"], ["args"]):
        return []  # what it takes is said by nobody
    return [[
        (marks[p.kind] + ("=" if p.default is not p.empty else ""), p.name) for p in parameters if p.kind is not p.VAR_KEYWORD
    ]]  # fmt: skip


def table() -> dict[str, list[Signature]]:
    """Every name and its signatures."""
    torch = importlib.import_module("torch")
    home = Path(torch.__file__).parent
    rows = of_rows(home.parent / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml")
    functions, methods = of_stub(home / "_C" / "_VariableFunctions.pyi"), of_stub(home / "_C" / "__init__.pyi", "TensorBase")
    networks = {**of_stub(home / "_C" / "_nn.pyi"), **of_stub(home / "nn" / "functional.pyi")}
    found: dict[str, list[Signature]] = {}
    for module in MODULES.split():
        owner = torch if module == "torch" else importlib.import_module(f"torch.{module}")
        for name in dir(owner):
            value = getattr(owner, name)
            home_of = getattr(value, "__module__", None) or "torch"
            if name.startswith("_") or inspect.ismodule(value) or not callable(value) or not home_of.startswith("torch"):
                continue
            key = f"{module}.{name}"
            if inspect.isclass(value):
                if module != "torch" and issubclass(value, object):
                    try:
                        found[key] = of_callable(value, bound=False)
                    except (ValueError, TypeError):
                        continue
            elif inspect.isfunction(value):
                found[key] = of_callable(value, bound=False)
            elif module in ("linalg", "special") and f"{module}_{name}" in rows:
                found[key] = rows[f"{module}_{name}"]
            else:
                found[key] = (networks if module == "nn.functional" and name in networks else functions).get(name, [])
    for name in dir(torch.Tensor):
        value = inspect.getattr_static(torch.Tensor, name)
        if not name.startswith("_"):
            found[f"Tensor.{name}"] = of_callable(value, bound=True) if inspect.isfunction(value) else methods.get(name, [])
    for kind in CLASSES.split():
        owner = torch
        for part in kind.split("."):
            owner = getattr(owner, part)
        for name in dir(owner):
            value = inspect.getattr_static(owner, name)
            if not name.startswith("__") and inspect.isfunction(value):
                found[f"{kind}:{name}"] = of_callable(value, bound=True)
    return {key: signatures for key, signatures in sorted(found.items()) if signatures}


def written(found: dict[str, list[Signature]]) -> str:
    lines = []
    for key, signatures in found.items():
        unnamed = [s for s in signatures if not {"names", "dim0_name"} & {name for _, name in s}]
        texts = dict.fromkeys(" ".join(mark + name for mark, name in s) for s in unnamed)
        lines.append(f"{key}: {' | '.join(texts)}".rstrip())
    return "\n".join(lines) + "\n"


def read() -> dict[str, list[Signature]]:
    """The table as it is stored."""
    found = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        key, _, text = f"{line} ".partition(": ")
        found[key] = [[re.fullmatch(r"(\.\.\.|\*?=?)(\w+)", word).groups() for word in s.split()] for s in text.split("|")]
    return found


if __name__ == "__main__":
    TABLE.write_text(written(table()), encoding="utf-8")
