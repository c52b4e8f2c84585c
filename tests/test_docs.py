"""The examples in `docs/` and the README run and print what they say."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import shutil

import pytest

import gradlab as gl
from gradlab.autograd import graph_cuts

from repository import ROOT

PAGES = sorted(p for p in [ROOT / "README.md", *ROOT.glob("docs/*.md")] if ">>>" in p.read_text(encoding="utf-8"))

NEEDS = {"onnx.md": ("onnx", "onnxruntime")}
COMPILED = {"custom-kernels.md"}  # on the emulated GPU, which needs a C++ compiler


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_print_what_the_page_says(page):
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    if page.name in COMPILED and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("there is no C++ compiler")
    graph_cuts.forget()  # of other pages, of which an error message would speak
    failures, count = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert not failures and (count or page.name == "files-of-the-code.md")  # which is a table


def test_the_pictures_of_autograd_are_what_viz_draws():
    """`python tests/test_docs.py` draws them anew."""
    for name, picture in drawn().items():
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == picture.to_svg() + "\n", name


def drawn():
    """The pictures that docs/autograd.md makes."""
    names = {}
    for example in doctest.DocTestParser().get_examples((ROOT / "docs" / "autograd.md").read_text(encoding="utf-8")):
        if example.exc_msg is None:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(example.source, "autograd.md", "single"), names)
    return names["pictures"]


def test_the_first_script_of_the_readme_learns(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    script = text.split("```python\n")[1].split("```")[0]
    exec(compile(script, "README.md", "exec"), {"__name__": "__main__"})
    accuracy = float(capsys.readouterr().out.split("accuracy ")[1].rstrip("%\n"))
    assert accuracy > 95


# ---------------------------------------------------------------- examples in docstrings

FACES = [ROOT / "gradlab/linalg.py", ROOT / "gradlab/special.py"]
ROOMS = [*ROOT.glob("gradlab/tensor/*.py"), *ROOT.glob("gradlab/nn/functional/*.py"), *FACES]
OTHERS = [ROOT / "gradlab/optim/lion.py", ROOT / "gradlab/optim/muon.py", ROOT / "gradlab/optim/swa_utils.py"]
OTHERS += [ROOT / "gradlab/utils/words.py", *ROOT.glob("gradlab/amp/*.py"), *ROOT.glob("gradlab/models/*.py")]


def module_of(path):
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))


WITH_EXAMPLES = [p for p in sorted([*ROOMS, *OTHERS, ROOT / "gradlab/spec.py"]) if ">>>" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_examples_of_a_module(path):
    gl.manual_seed(0)
    failures, count = doctest.testmod(module_of(path), extraglobs={"gl": gl, "F": gl.nn.functional})
    assert count and not failures


def test_every_function_has_an_example():
    found = []
    for path in ROOMS:
        module = module_of(path)
        for name in getattr(module, "__all__", ()):
            function = getattr(module, name)
            if inspect.isfunction(function) and ">>>" not in (function.__doc__ or ""):
                found.append(f"{module.__name__}.{name}")
    assert not found, f"{len(found)} functions have no example: {', '.join(sorted(found))}"


def test_every_method_has_an_example():
    found = []
    for name in dir(gl.Tensor):
        value = inspect.getattr_static(gl.Tensor, name)
        method = value.fget if isinstance(value, property) else value
        if not name.startswith("_") and inspect.isfunction(method) and ">>>" not in (method.__doc__ or ""):
            found.append(name)
    assert not found, f"{len(found)} methods have no example: {', '.join(found)}"


if __name__ == "__main__":
    for name, picture in drawn().items():
        (ROOT / "docs" / "pictures" / name).write_text(picture.to_svg() + "\n", encoding="utf-8")
