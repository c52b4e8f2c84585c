"""A run's model as a file for elsewhere: ONNX, a traced program, C, or a page for browsers; and beside it what its numbers mean."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import gradlab as gl
from gradlab import Tensor, deploy, nn, onnx
from gradlab._version import __version__
from gradlab.runs.interface import Interface, Sizes
from gradlab.runs.web import page

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun

Form = Literal["onnx", "glp", "c", "web"]
FORMS: dict[Form, str] = {"onnx": ".onnx", "glp": ".glp", "c": ".c", "web": ".html"}  # with what their files end
TOLERANCE = 1e-4  # of an output's largest number, by which a file's results may be off


class ExportError(RuntimeError):
    """A model that cannot be written in that form, or a file that gives other results; nothing is written."""


@dataclass(frozen=True)
class ExportedRun:
    """What was written: the file and those beside it, shapes (numbers, and names of sizes that may differ), and how it was checked."""

    path: Path
    files: tuple[Path, ...]
    inputs: dict[str, tuple[Any, ...]]
    outputs: dict[str, tuple[Any, ...]]
    checked: str
    meaning: dict[str, str]
    command: str = ""  # that makes a program of C


def export_run(trained: TrainedRun, path: str | os.PathLike[str], form: Form | None = None) -> ExportedRun:
    """Write a run's model; form: by default what path ends with (.onnx, .glp, .c, .html). PATH.json beside it says what the numbers mean.

    It is run, and its results compared with the model's, before it is put in its place. ExportError where the model has no such form or the
    results are others; ImportError where onnx or onnxruntime is needed and missing. A page has no file beside it.
    """
    target = Path(path)
    form = form or _form(target)
    if not target.parent.is_dir():
        raise ExportError(f"there is no folder {target.parent}")
    if form == "c" and not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", target.stem):
        raise ExportError(f"{target.stem!r} is no name for functions of C: letters, digits and _")
    interface = trained.task.interface(trained.model)
    model = copy.deepcopy(interface.model or trained.model).cpu().eval()  # the run's own stays where it is
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        with gl.no_grad():
            if form == "web":
                made = _web(model, interface, Path(folder), target, trained)
            else:
                made = _WRITERS[form](model, interface, Path(folder), target)
        about = Path(folder, f"{made.file}.json")
        if form != "web":
            about.write_text(json.dumps(_about(trained, interface, made), indent=1) + "\n", encoding="utf-8")
        moved = []
        for file in sorted(Path(folder).iterdir(), key=lambda p: p.name == about.name):
            os.replace(file, target.parent / file.name)
            moved.append(target.parent / file.name)
    return ExportedRun(target, tuple(moved), made.inputs, made.outputs, made.checked, dict(interface.meaning), made.command)


def _form(target: Path) -> Form:
    for form, ending in FORMS.items():
        if target.suffix == ending:
            return form
    raise ExportError(f"{target} ends with none of {', '.join(FORMS.values())}: say which form it is to be")


def _about(trained: TrainedRun, interface: Interface, made: _Made) -> dict[str, Any]:
    """What is said in the file beside."""
    shapes = {**made.inputs, **made.outputs}

    def said(names: Sequence[str]) -> dict[str, Any]:
        return {name: {"shape": list(shapes[name]), "dtype": made.dtypes[name], "meaning": interface.meaning[name]} for name in names}

    return {
        "format": "gradlab exported run", "gradlab": __version__, "kind": trained.task.kind, "goal": trained.task.goal,
        "file": made.file, "inputs": said(list(made.inputs)), "outputs": said(list(made.outputs)), "checked": made.checked,
        "preprocessing": trained.task.state(),
    }  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """A file before it is in its place."""

    file: str
    inputs: dict[str, tuple[Any, ...]]
    outputs: dict[str, tuple[Any, ...]]
    dtypes: dict[str, str]
    checked: str
    command: str = ""


# ---------------------------------------------------------------- the forms


def _first(tries: Sequence[Sizes], write: Callable[[Sizes], Any]) -> tuple[Any, Sizes]:
    """The first sizes that a model can be written with; ExportError with what stands in the way of the last."""
    for sizes in tries:
        try:
            return write(sizes), sizes
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            fault = error
    said = str(fault).removeprefix("build: ").replace('name="model"', "for example model.c")  # a function of C has the file's name
    raise ExportError(" ".join(said.split())) from fault


def _shapes(interface: Interface, sizes: Sizes, outputs: Sequence[Tensor]) -> dict[str, Any]:
    """inputs, outputs and dtypes of a form whose outputs share the batch of its inputs."""
    inputs = {name: tuple(sizes.get(name, {}).get(i, n) for i, n in enumerate(x.shape)) for name, x in interface.example.items()}
    batch = {dimension: word for size in sizes.values() for dimension, word in size.items()}
    first = next(iter(interface.example.values()))
    found = {
        name: tuple(batch[i] if i in batch and i < first.ndim and first.shape[i] == n else n for i, n in enumerate(y.shape))
        for name, y in zip(interface.outputs, outputs, strict=True)
    }
    tensors = {**interface.example, **dict(zip(interface.outputs, outputs, strict=True))}
    return {"inputs": inputs, "outputs": found, "dtypes": {name: x.dtype.name for name, x in tensors.items()}}


def _results(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else list(found)


def _onnx(model: nn.Module, interface: Interface, folder: Path, target: Path) -> _Made:
    path, names = folder / target.name, list(interface.example)

    def write(sizes: Sizes) -> Any:
        return onnx.export(
            model, tuple(interface.example.values()), path, dynamic=sizes, input_names=names, output_names=list(interface.outputs)
        )

    done, _ = _first(interface.tries(), write)
    outputs = _results(model(*interface.example.values()))
    tensors = {**interface.example, **dict(zip(interface.outputs, outputs, strict=True))}
    off = f"{done.checked_by}, with {' and '.join(['the example', *done.sizes])}: off by {done.deviation:.1e} of the largest number"
    return _Made(target.name, dict(done.inputs), dict(done.outputs), {name: x.dtype.name for name, x in tensors.items()}, off)


def _glp(model: nn.Module, interface: Interface, folder: Path, target: Path) -> _Made:
    path, example = folder / target.name, tuple(interface.example.values())

    def write(sizes: Sizes) -> Any:
        by_number = {i: sizes[name] for i, name in enumerate(interface.example) if name in sizes}
        program = gl.jit.trace(model, example, dynamic=by_number, check_trace=False)
        program.save(path)
        cases = [example]
        if any(0 in size for size in by_number.values()):  # a batch of three, too
            cases.append(tuple(gl.cat([x, x[:1]]) for x in example))
        read = gl.jit.load(path)
        return max(_deviation(read(*case), model(*case)) for case in cases), len(cases)

    (deviation, cases), sizes = _first(interface.tries(), write)
    checked = f"gl.jit.load, with {cases} batch{'es' * (cases > 1)}: off by {deviation:.1e} of the largest number"
    return _Made(target.name, checked=checked, **_shapes(interface, sizes, _results(model(*example))))


def _c(model: nn.Module, interface: Interface, folder: Path, target: Path) -> _Made:
    one = Interface({name: x[:1] for name, x in interface.example.items()}, interface.outputs, interface.meaning)
    example = tuple(one.example.values())
    built, _ = _first([{}], lambda _: deploy.build(gl.jit.trace(model, example, check_trace=False), folder, name=target.stem))
    outputs = _results(model(*example))
    compiler = _compiler()
    checked = "nothing: there is no C compiler here (CC)"
    if compiler is not None:
        found = _ran(built, compiler, example, len(outputs))
        checked = f"a program that {compiler[0]} made of it: off by {_deviation(found, outputs):.1e} of the largest number"
    return _Made(f"{target.stem}.c", checked=checked, command=built.command, **_shapes(one, {}, outputs))


def _web(model: nn.Module, interface: Interface, folder: Path, target: Path, trained: TrainedRun) -> _Made:
    one = Interface({name: x[:1] for name, x in interface.example.items()}, interface.outputs, interface.meaning)
    example = tuple(one.example.values())
    with tempfile.TemporaryDirectory(prefix="gradlab-") as place:

        def write(_: Sizes) -> deploy.Built:
            return deploy.build(gl.jit.trace(model, example, check_trace=False), place, name="model", target="wasm32")

        try:
            built, _ = _first([{}], write)
        except ExportError as error:
            raise ExportError(str(error).removeprefix("target wasm32: ")) from error.__cause__
        assert built.program is not None and built.weights is not None
        outputs = _results(model(*example))
        checked = "nothing: there is no Node here"
        if node := shutil.which("node"):
            found = _called([node, "model.mjs"], built, Path(place), example, len(outputs))
            checked = f"Node: off by {_deviation(found, outputs):.1e} of the largest number"
        text = page(trained, interface, built.program.read_bytes(), built.weights.read_bytes(), built.module)
    Path(folder, target.name).write_text(text, encoding="utf-8")
    return _Made(target.name, checked=checked, **_shapes(one, {}, outputs))


_WRITERS: dict[Form, Callable[[nn.Module, Interface, Path, Path], _Made]] = {"onnx": _onnx, "glp": _glp, "c": _c}


def _deviation(found: Any, wanted: Any) -> float:
    """The largest difference as a share of an output's largest number; ExportError where it is more than TOLERANCE."""
    most = 0.0
    for x, y in zip(_results(found), _results(wanted), strict=True):
        x, y = x.detach().double(), y.detach().double()
        most = max(most, float((x - y).abs().max() / y.abs().max().clamp(min=1e-30)) if y.numel() else 0.0)
    if not most <= TOLERANCE:
        raise ExportError(f"the file gives other results than the model, off by {most:.1e} of the largest number")
    return most


def _compiler() -> list[str] | None:
    """A C compiler's command: of the variable CC, or one that is there."""
    wanted = os.environ.get("CC")
    if wanted:
        return shlex.split(wanted) if shutil.which(shlex.split(wanted)[0]) else None
    return next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def _ran(built: deploy.Built, compiler: Sequence[str], example: Sequence[Tensor], outputs: int) -> list[Tensor]:
    """What the program of a build makes of an example, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="gradlab-") as place:
        for file in (built.source, built.header, built.weights):
            assert file is not None
            shutil.copy(file, place)
        _call([*compiler, *shlex.split(built.command)[1:]], place)
        return _called([str(Path(place, built.name))], built, Path(place), example, outputs)


def _called(program: Sequence[str], built: deploy.Built, place: Path, example: Sequence[Tensor], outputs: int) -> list[Tensor]:
    """What a program in a folder makes of an example."""
    files = [f"in{i}.npy" for i in range(len(example))] + [f"out{i}.npy" for i in range(outputs)]
    for name, x in zip(files, example):
        np.save(place / name, np.ascontiguousarray(x.numpy()))
    _call([*program, f"{built.name}.weights", *files], str(place))
    return [gl.from_numpy(np.load(place / name)) for name in files[len(example) :]]


def _call(command: Sequence[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise ExportError(f"{Path(command[0]).name} fails with code {done.returncode}: {said[:300]}")
