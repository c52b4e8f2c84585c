"""The rules of the house that no linter knows: short files, imports at the top, no path of anyone's machine."""

import ast
import re
from functools import cache
from importlib import import_module

import pytest
from files_table import floors

from gradlab.above import HOOKS, above
from gradlab.ops import ROWS

from repository import ROOT, project_files

LINES = 400

# Files that are one long table, where a limit on length would only cut the table in two.
TABLES: frozenset[str] = frozenset()

# Rooms with an optional dependency may import it, and nothing else, inside a function.
OPTIONAL = {
    "gradlab/backends/cuda/": {"cupy", "cupyx", "cuda"},
    "gradlab/onnx/": {"onnx", "onnxruntime"},
    "gradlab/viz/": {"matplotlib", "graphviz", "IPython"},
}

# Built from its parts, so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w./:$}-])/(?:" + "|".join(["work", "root", "home"]) + r")(?:/|\b(?![\w/-]))")

SUFFIXES = (".py", ".cu", ".h", ".cuh")
SOURCES = [name for name in project_files("gradlab", "kernels", "tests", "bench") if name.endswith(SUFFIXES)]
MODULES = [name for name in SOURCES if name.startswith("gradlab/") and name.endswith(".py")]


def test_there_are_sources():
    assert MODULES
    assert any(name.startswith("kernels/") for name in SOURCES)


def test_files_are_short():
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in SOURCES}
    long = {name: length for name, length in lengths.items() if length >= LINES}
    assert not {name: length for name, length in long.items() if name not in TABLES}
    assert TABLES <= set(long), "a table that is short, or gone, needs no exception"


@cache
def nodes(name: str) -> list[tuple[ast.AST, bool]]:
    """A file's imports and calls, and whether each stands in a function."""
    found, waiting = [], [(ast.parse((ROOT / name).read_text(encoding="utf-8"), name), False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            found.append((node, inside))
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


def imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The top-level packages an import statement names; a relative import is gradlab itself."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0] if node.level == 0 else "gradlab"}


def hidden_imports(name: str) -> list[str]:
    allowed = {package for room, packages in OPTIONAL.items() if name.startswith(room) for package in packages}
    statements = [node for node, inside in nodes(name) if inside and isinstance(node, ast.Import | ast.ImportFrom)]
    return [f"{name}:{node.lineno}" for node in statements if not imported(node) <= allowed]


def test_imports_stand_at_the_top():
    assert not sorted(place for name in MODULES for place in hidden_imports(name))


@pytest.mark.parametrize("trick", ["globals", "__import__"])
def test_no_tricks(trick):
    """Nothing is defined where an editor cannot find it."""
    calls = [
        f"{name}:{node.lineno}"
        for name in MODULES
        for node, _ in nodes(name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == trick
    ]
    assert not calls


def machine_paths(name: str) -> list[str]:
    try:
        text = (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:  # embedded data
        return []
    return [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if MACHINE_PATH.search(line)]


def test_no_machine_paths():
    assert not [place for name in project_files() for place in machine_paths(name)]


def test_the_pattern_of_machine_paths():
    slash = "/"
    for path in ("work/main", "root", "home/someone/x.py"):
        assert MACHINE_PATH.search(f'open("{slash}{path}")'), path
    for text in (f"a{slash}work{slash}b", f"https://example.org{slash}home", "network/root cause", "and/or"):
        assert not MACHINE_PATH.search(text), text


def test_one_family_has_one_name():
    """The samples of a row of `ops/<family>.py` stand in `tests/samples/<family>.py`."""
    families = {f.stem for f in (ROOT / "tests/samples").glob("*.py")} - {"__init__", "base"}
    strays = []
    for family in sorted(families):
        there = {id(value) for value in vars(import_module(f"gradlab.ops.{family}")).values()}
        strays += [f"{family}: {name}" for name in import_module(f"samples.{family}").SAMPLES if id(ROWS[name]) not in there]
    assert not strays, f"samples of rows of other families of gradlab/ops: {', '.join(strays)}"


# Modules of gradlab that wait until somebody asks, though a plain import would be allowed: rooms and public modules that few programs use.
# What is in a file of its own room, or in a room below, is imported at the top of the file unless it stands here.
LATE = {
    "its own room, where `import gradlab` or a common use does without": """
        autograd/node backends/__init__ backends/cuda/cufft/plans backends/cuda/gemm/library backends/cuda/loading
        backends/cuda/nccl/library data/__init__
        distributed/groups fx/graph_module graph/executables/fastest graph/passes/fuse_residual_norm interchange/__init__
        interchange/einops_backend
        nn/__init__ nn/modules/__init__ optim/__init__ pytorch/finder pytorch/installing pytorch/operations runs/folder
        sklearn/__init__ tensor/deprecated_functions tensor/missing_names utils/__init__
    """,
    "a room below that few programs use": """
        __init__ graph/calls/autograd_node graph/ir/graph nn/functional/linear pytorch/duck_classes utils/serialization/torch_reading
    """,
}


def late_imports() -> list[tuple[str, str]]:
    """(file, module) of each import_module of a module of gradlab by its whole name."""
    found = []
    for name in MODULES:
        for node, _ in nodes(name):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if called == "import_module" and str(node.args[0].value).startswith("gradlab."):
                    found.append((name, node.args[0].value))
    return found


def test_no_thread_runs_upwards():
    """Rooms below ask rooms above by hooks (`gradlab/above.py`), and by nothing else."""
    height = {room: i for i, rooms in enumerate(floors()) for room in rooms}
    room = {name: name.split("/")[1].removesuffix(".py") for name, _ in late_imports()}
    up = [f"{n} -> {module}" for n, module in late_imports() if height[module.split(".")[1]] < height.get(room[n], -1)]
    assert not up, "a hook in gradlab/above.py"


def test_late_imports_are_few():
    listed = [f"gradlab/{name}.py" for names in LATE.values() for name in names.split()]
    assert sorted({name for name, _ in late_imports()}) == sorted(listed)


def test_hooks_stand_for_something_and_are_asked_for():
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in MODULES]
    assert {hook for text in texts for hook in re.findall(r"\b(?:above|_runner)\(\"([^\"]+)\"\)", text)} == set(HOOKS)
    for hook in HOOKS:
        assert above(hook) is not None
