"""The notebooks of `docs/notebooks` run top to bottom with no GPU, stand there as they were run, and objects show as tables and pictures.

`python tests/test_notebooks.py` runs them and writes their outputs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import gradlab as gl
from gradlab.call_site import cell_of

from repository import ROOT

BOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NEEDS = {"custom-kernel": (), "deploy-onnx": ("onnx", "onnxruntime"), "tour": ("matplotlib",)}


def executed(path):
    """A notebook, run in a process of its own, with gradlab from this checkout."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    book = nbformat.read(path, as_version=4)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), "GRADLAB_CUDA": ""}
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute(env=environment)
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    return book


def shown(book):
    """What the cells show, by kind."""
    return [(i, kind) for i, cell in enumerate(book["cells"]) for out in cell.get("outputs", ()) for kind in out.get("data", ())]


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_runs_top_to_bottom(path):
    if path.stem == "custom-kernel" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("the emulated GPU needs a C++ compiler")
    book = executed(path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert sorted(shown(book)) == sorted(shown(stored)), "it shows other things than what is stored: python tests/test_notebooks.py"


def test_there_are_six_as_they_were_run():
    assert len(BOOKS) == 6
    for path in BOOKS:
        book = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), path.name
        assert not [out for cell in code for out in cell["outputs"] if out["output_type"] == "error"], path.name
        assert str(ROOT) not in path.read_text(encoding="utf-8"), f"{path.name} names a folder of somebody's machine"
    text = (ROOT / "docs" / "notebooks" / "graph-viewer.ipynb").read_text(encoding="utf-8")
    assert "ell 4, line 2" in text and "image/svg+xml" in text


def test_objects_show_as_tables_and_pictures(tmp_path, capsys):
    model = gl.nn.Sequential(gl.nn.Linear(3, 4), gl.nn.ReLU(), gl.nn.Linear(4, 1))
    optimizer = gl.optim.SGD(model.parameters(), lr=0.1)

    @gl.compile
    def step(x):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(gl.ones(2, 3))
    with gl.profiler.profile() as prof:
        model(gl.ones(2, 3))
    tables = [model, gl.summary(model, gl.ones(2, 3)), step.stats(), prof, prof.key_averages(), prof.module_averages()]
    for thing in tables:
        assert thing._repr_html_().count("<tr>") > 2, type(thing)
    assert "<b>Sequential</b>" in model._repr_html_() and "4×3" in model._repr_html_() and "21 parameters" in model._repr_html_()
    assert step.graph._repr_svg_().startswith("<svg") and gl.viz.graph(model(gl.ones(2, 3)).sum())._repr_svg_().startswith("<svg")


def test_cells_are_named():
    class Compile:
        @staticmethod
        def format_code_name(name):
            return ("Cell", "In[3]") if name == "known" else None

    class Shell:
        compile = Compile

    module = type(sys)("IPython")
    module.get_ipython = Shell
    before = sys.modules.get("IPython")
    sys.modules["IPython"] = module
    try:
        assert cell_of("known") == "cell 3" and cell_of("other.py") == ""
    finally:
        sys.modules.pop("IPython") if before is None else sys.modules.update(IPython=before)
    assert cell_of("known") == "" or before is not None


if __name__ == "__main__":
    import nbformat

    for file in [Path(name) for name in sys.argv[1:]] or BOOKS:
        nbformat.write(executed(file), file)
