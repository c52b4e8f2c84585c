"""Rewrites declarations of shared memory and of clusters, the parts of CUDA C++ that a header cannot turn into C++.

Works on preprocessed text, so that macros and included files are covered and comments are gone. `__shared__ float tile[16][17];` becomes
a reference to storage that the runtime hands out afresh in each block; `extern __shared__ float work[];` a pointer to the launch's
dynamic shared memory. `__cluster_dims__(8, 1, 1)` becomes a line of a table that the library holds. Line numbers stay what they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradlab.backends.native.toolchain import CompileError

_SHARED = re.compile(r'\b__shared__\b|"(?:[^"\\\n]|\\.)*"')
_MARKER = re.compile(r"^#.*$", re.MULTILINE)  # line markers and pragmas
_ALIGNED = re.compile(r"\balignas\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
_DROPPED = re.compile(r"\b(?:__shared__|extern|static)\b|" + _ALIGNED.pattern)
_NAME = re.compile(r"\w+$")
_CLUSTER = re.compile(r"\b__cluster_dims__\s*\(([^()]*)\)")
_KERNEL = re.compile(r"\b(\w+)\s*\(")


class _Declarator(NamedTuple):
    pointers: str
    name: str
    dimensions: str


def with_exports(source: str, names: Sequence[str], label: str) -> str:
    """The program's text: the kernels as they are, then one entry point for each name."""
    exports = "".join(f"GRADLAB_EXPORT({index}, {name})\n" for index, name in enumerate(names))
    return f'#line 1 "{_quoted(label)}"\n{source}\n#line 1 "kernel names"\n{exports}'


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def rewrite_shared(text: str) -> str:
    """Preprocessed text with every `__shared__` declaration replaced. Raises CompileError."""
    pieces: list[str] = []
    done = 0
    for match in _SHARED.finditer(text):
        if match[0] != "__shared__" or match.start() < done:
            continue
        start, end = _statement(text, match.start())
        pieces += [text[done:start], _replacement(text[start:end])]
        done = end + 1
    return "".join([*pieces, text[done:]]) if pieces else text


def rewrite_clusters(text: str) -> str:
    """Preprocessed text without `__cluster_dims__`, and with a table of what it said: "kernel x y z" in lines. Raises CompileError."""
    lines = []
    for match in _CLUSTER.finditer(text):
        kernel = _KERNEL.search(_MARKER.sub("", text[match.end() :]))
        sizes = [part.strip() for part in match[1].split(",")]
        if kernel is None or not all(size.isdigit() and int(size) for size in sizes) or not 1 <= len(sizes) <= 3:
            raise CompileError(f"cannot read __cluster_dims__({match[1]}): up to three numbers, in front of the kernel's name")
        lines.append(" ".join([kernel[1], *(*sizes, "1", "1")[:3]]))
    table = "\\n".join(lines)
    return f'{_CLUSTER.sub("", text)}\nextern "C" __attribute__((visibility("default"))) const char gradlab_clusters[] = "{table}";\n'


def _statement(text: str, position: int) -> tuple[int, int]:
    """Where the declaration around a position begins, and where its semicolon is."""
    start = 1 + max(text.rfind(mark, 0, position) for mark in ";{}")
    for marker in _MARKER.finditer(text, start, position):
        start = marker.end() + 1  # with its newline
    end = text.find(";", position)
    if end < 0:
        raise CompileError("a __shared__ declaration without a semicolon")
    return start, end


def _replacement(declaration: str) -> str:
    plain = _MARKER.sub("", declaration)
    dynamic = re.search(r"\bextern\b", plain) is not None
    body = " ".join(_DROPPED.sub(" ", plain).split())
    specifiers, declarators = _parsed(body)
    alignment = " ".join(_ALIGNED.findall(plain))
    written = [(_dynamic if dynamic else _static)(specifiers, alignment, one) for one in declarators]
    return " " + " ".join(written) + "\n" * declaration.count("\n")


def _static(specifiers: str, alignment: str, one: _Declarator) -> str:
    name, kind = one.name, f"gradlab_type_of_{one.name}"
    return (
        f"typedef {specifiers} {one.pointers}{kind}{one.dimensions}; {_place(alignment, one, kind)} "
        f"static ::gradlab_emulator::Variable gradlab_storage_of_{name}; {kind}& {name} = *static_cast<{kind}*>("
        f'gradlab_storage_of_{name}.of_block("{name}", sizeof({kind}), alignof(gradlab_place_of_{name})));'
    )


def _place(alignment: str, one: _Declarator, kind: str) -> str:
    """A type that is aligned as the declaration says."""
    return f"struct {alignment} gradlab_place_of_{one.name} {{ {kind} all; }};"


def _dynamic(specifiers: str, alignment: str, one: _Declarator) -> str:
    match = re.match(r"\[\s*\]", one.dimensions)
    if not match:
        raise CompileError(f"dynamic shared memory is declared as an array without a size: extern __shared__ {specifiers} {one.name}[];")
    name, kind = one.name, f"gradlab_type_of_{one.name}"
    return (
        f"typedef {specifiers} {one.pointers}{kind}{one.dimensions[match.end() :]}; {_place(alignment, one, kind)} "
        f'{kind}* {name} = static_cast<{kind}*>(::gradlab_emulator::dynamic_shared("{name}", alignof(gradlab_place_of_{name})));'
    )


def _parsed(body: str) -> tuple[str, list[_Declarator]]:
    """`const Pack<T, 4> a[2], *b` as its specifiers and its declarators."""
    parts = list(_split_at_commas(body))
    head, dimensions = _before_dimensions(parts[0])
    found = _NAME.search(head)
    if not found or not head[: found.start()].strip(" *"):
        raise CompileError(f"cannot read the shared memory declaration `{body}`")
    before = head[: found.start()].rstrip()
    specifiers = before.rstrip("* ")
    declarators = [_Declarator(before[len(specifiers) :].strip(), found[0], dimensions)]
    for part in parts[1:]:
        head, dimensions = _before_dimensions(part)
        name = head.lstrip("* ")
        declarators.append(_Declarator(head[: len(head) - len(name)].strip(), name, dimensions))
    for one in declarators:
        if not one.name.isidentifier() or (one.dimensions and not one.dimensions.startswith("[")):
            raise CompileError(f"cannot read the shared memory declaration `{body}`; it may have no initial value")
    return specifiers, declarators


def _split_at_commas(text: str) -> Iterator[str]:
    depth = start = 0
    for index, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[start:index].strip()
            start = index + 1
    yield text[start:].strip()


def _before_dimensions(declarator: str) -> tuple[str, str]:
    """Split at the first bracket outside template arguments (or at `=`, which is then reported)."""
    depth = 0
    for index, character in enumerate(declarator):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character in "[={" and depth <= 0:
            return declarator[:index].rstrip(), declarator[index:]
    return declarator, ""
