"""Every block of code in `docs/` and the README that is no `>>>` example (test_docs.py) is run as it stands, or listed with why not.

A page's blocks run in one folder and one namespace, in their order: Python, shell lines (`gradlab …` in this process), C, CUDA. What a
fragment needs stands in PREPARED; MORE is added to commands, so that trainings are short.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import gradlab as gl
from gradlab.cli import main

from repository import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
SHOWN = {"", "text", "json", "mermaid", "html"}  # what programs print, not what is run
# Blocks by page and first words: why they are not run here.
ELSEWHERE = {
    ("README.md", "python3 -m venv"): "installs from a registry; tests/test_wheel.py installs what was built",
    ("README.md", "import gradlab as gl"): "test_docs.py holds it to the accuracy it reaches",
    ("distributed.md", "pip install"): "processes are started by tests/test_launch.py, where there is an MPI",
    ("architecture.md", "matmul = Op("): "the row itself, held to the text by test_the_row_that_architecture_reads",
    ("architecture.md", "arena = driver.new_arena()"): "an outline; tests/test_emulator_capture.py and test_cuda_real_captures.py do it",
    ("deploy.md", 'pip install "gradlab-engine[deploy]"'): "installs from a registry; tests/test_deploy_targets.py builds for each target",
    ("deploy.md", "import { open }"): "for a browser; tests/test_deploy_targets.py does that in Node",
    ("deploy.md", "gradlab export runs/digits-1 --web"): "needs ziglang; tests/test_export_web.py does that",
    ("deploy.md", "gradlab build model.glp --static"): "needs ziglang; tests/test_deploy_static.py does that",
    ("install.md", "pip install gradlab-engine"): "installs from a registry; tests/test_wheel.py installs what was built",
    ("run.md", "gradlab run tests/script_idioms.py"): "those are tests themselves",
    ("scripts.md", "sed -E"): "tests/test_examples.py does that",
    ("scripts.md", "# in PyTorch"): "tests/test_torch_files_both.py does that, in both engines",
}
CLASSES = "import gradlab as gl\nfrom gradlab import nn\nF = nn.functional\n"
STEP = CLASSES + """
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = gl.optim.AdamW(model.parameters(), lr=0.02)
x = gl.randn(16, 2)
y = (x[:, :1] > 0).float()
"""
PREPARED = {
    "README.md": STEP,
    "profiler.md": STEP + "def step(x, y):\n    F.mse_loss(model(x), y).backward()\n",
    "training.md": "from gradlab import transforms\naugmented = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])\n",
    "scripts.md": STEP + "args = None\ngl.save({'state_dict': model.state_dict()}, 'best.pth.tar')\n",
    "sklearn.md": "import numpy as np\nX = np.random.default_rng(0).normal(size=(60, 3))\ny = (X[:, 0] > 0).astype(int)\n",
}
MORE = {"train": ["--epochs", "1"], "text": ["--width", "16", "--layers", "1", "--context", "16", "--epochs", "1"]}
MYMODEL = """
import gradlab as gl
from gradlab import nn
def example():
    gl.manual_seed(0)
    return nn.Linear(4, 3), (gl.randn(2, 4),), lambda out: nn.functional.cross_entropy(out, gl.tensor([0, 2]).to(out.device))
"""


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks(page):
    text = page.read_text(encoding="utf-8")
    found = [Block(page.name, text[: m.start()].count("\n") + 1, m[1], m[2]) for m in FENCE.finditer(text)]
    return [b for b in found if b.language not in SHOWN and not (b.language == "python" and ">>>" in b.text)]


def reason(block):
    return next((why for (page, words), why in ELSEWHERE.items() if block.page == page and block.text.startswith(words)), None)


def files(folder):
    """The data that the pages speak of."""
    random = np.random.default_rng(0)
    rows = ["rooms,area,town,price", *(f"{i % 5 + 1},{40 + i},{'AB'[i % 2]},{1000 * (40 + i) + 10 * (i % 5)}" for i in range(80))]
    for name in ("houses.csv", "new-houses.csv", "other-houses.csv"):
        (folder / name).write_text("\n".join(rows) + "\n")
    spots = ["YEAR,SUNACTIVITY", *(f"{1700 + i},{50 + 40 * np.sin(i / 1.75) + random.normal():.1f}" for i in range(200))]
    for name in ("sunspots.csv", "newest.csv", "other.csv"):
        (folder / name).write_text("\n".join(spots) + "\n")
    for name in ("novel.txt", "other.txt", "lines.txt"):
        (folder / name).write_text("It was the best of times. The worst of times, a line another text.\n" * 60)
    (folder / "lines.txt").write_text("a line\nanother\n")
    (folder / "mymodel.py").write_text(MYMODEL)
    (folder / "train.py").write_text("import sys, torch\nprint(torch.ones(2).sum().item(), sys.argv[1:])\n")
    (folder / "package").mkdir()
    shutil.copy(folder / "train.py", folder / "package" / "train.py")
    program = gl.jit.trace(gl.nn.Sequential(gl.nn.Linear(4, 8), gl.nn.ReLU(), gl.nn.Linear(8, 2)).eval(), gl.ones(3, 4))
    program.save(str(folder / "model.glp"))
    np.save(folder / "input.npy", np.ones((3, 4), np.float32))


def pictures(folder):
    pillow = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    for top in ("photos", "other-photos", "flowers/train", "flowers/val"):
        for name, shade in (("cats", 40), ("dogs", 200)):
            (folder / top / name).mkdir(parents=True)
            for i in range(6):
                pixels = random.integers(shade - 30, shade + 30, (16, 16, 3)).astype(np.uint8)
                pillow.fromarray(pixels).save(folder / top / name / f"{i}.png")
    shutil.copytree(folder / "photos" / "cats", folder / "new")
    shutil.copy(folder / "new" / "0.png", folder / "one.jpg")


def shell(line, folder, emulated):
    """One line of a shell block; its exit code has to be 0."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if words[0] == "gradlab":
        if words[1] == "train" and "--resume" not in words:
            words += MORE["text" if words[2] == "text" else "train"] if "--epochs" not in words else []
            if words[2] == "text" and len(words) > 3 and words[3].startswith("-"):
                words.insert(3, "novel.txt")  # not all of Python's reference
        if words[1] == "parity" and "--emulated" not in words:
            words += ["--device", "cpu"]  # no GPU here
        if words[1] == "run":  # it takes PyTorch's name for the rest of its process
            return shell(f"python -m {line}", folder, emulated)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words[1:])
        assert code == 0, f"{line}\n{out.getvalue()}{err.getvalue()}"
        return
    words = [sys.executable, *words[1:]] if words[0].startswith("python") else words
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def run(block, names, folder):
    if block.language == "python" and "import gradlab.as_torch" in block.text:  # PyTorch's name is taken for good
        (folder / "taking.py").write_text(block.text)
        shell("python taking.py", folder, names)
    elif block.language == "python":
        text = re.sub(r'"flowers"', "str(FLOWERS)", block.text)
        exec(compile(text, f"{block.page}, line {block.line}", "exec"), names)
    elif block.language == "sh":
        for line in block.text.splitlines():
            shell(line, folder, names)
    elif block.language == "c":
        (folder / "main.c").write_text(block.text)
        shell("cc -std=c11 -O1 -Wall -Werror main.c model.c -lm -o main", folder, names)
        shell("./main", folder, names)
    elif block.language == "cuda":
        body = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = by * x[i]; }"
        (folder / "block.cu").write_text(block.text.replace("{ … }", body))
        shell("gradlab kernels block.cu --emulate", folder, names)
    else:
        raise AssertionError(f"{block.page}:{block.line}: a block of {block.language or 'no language'}: say how it is run")


WITH_BLOCKS = [page for page in PAGES if any(reason(b) is None for b in blocks(page))]
NEEDS = {"sklearn.md": "sklearn"}


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda p: p.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    mine = [b for b in blocks(page) if reason(b) is None]
    if any(b.language in ("c", "cuda") for b in mine) and not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mymodel", raising=False)
    files(tmp_path)
    for block in mine:
        if match := re.match(r"# (\w+\.py)\n", block.text):
            (tmp_path / match[1]).write_text(block.text)
    if page.name == "training.md":
        pictures(tmp_path)
    names = {"__name__": "__main__", "FLOWERS": tmp_path / "flowers", "gl": gl}
    exec(PREPARED.get(page.name, ""), names)
    with contextlib.redirect_stdout(io.StringIO()):
        for block in mine:
            try:
                run(block, names, tmp_path)
            except Exception as error:
                raise AssertionError(f"{block.page}, line {block.line}: {error}\n{block.text}") from error
    sys.modules.pop("mymodel", None)


def test_what_is_not_run_is_known():
    every = [b for page in PAGES for b in blocks(page)]
    found = {(page, words) for page, words in ELSEWHERE if any(b.page == page and b.text.startswith(words) for b in every)}
    assert found == set(ELSEWHERE), set(ELSEWHERE) - found
    assert sum(reason(b) is None for b in every) >= 24


def test_the_row_that_architecture_reads():
    block = next(b for b in blocks(ROOT / "docs" / "architecture.md") if b.text.startswith("matmul = Op("))
    assert "".join(block.text.split()) in "".join((ROOT / "gradlab/ops/linalg.py").read_text(encoding="utf-8").split())
