"""Pictures of graphs: what is in them, that nothing overlaps, and the page, in headless Chromium where there is one."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

import gradlab as gl
from gradlab import nn
from gradlab.viz.diagram_layout import Placer
from gradlab.viz.diagram_svg import svg
from gradlab.viz.layers import crossings, frames
from gradlab.viz.picture import diagram_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--virtual-time-budget=4000", "--window-size=1200,900"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(4, 8), nn.Linear(8, 4), nn.LayerNorm(4)

    def forward(self, x):
        return x + self.fc2(self.fc1(self.norm(x)).relu())


class Net(nn.Module):
    def __init__(self, blocks=3):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.blocks(x))


@pytest.fixture(scope="module")
def example():
    gl.manual_seed(0)
    model = Net()
    return model, nn.functional.cross_entropy(model(gl.randn(5, 4)), gl.tensor([0, 1, 0, 1, 1]))


def texts(document):
    return ["".join(e.itertext()) for e in ET.fromstring(document).iter("{http://www.w3.org/2000/svg}text")]


def rectangles(part, x=0.0, y=0.0):
    """What is drawn of a placed box: (x, y, width, height, whether it is a box around others)."""
    for entry, p in zip(part.inside.frame.entries, part.inside.parts):
        if entry[0] in ("vertex", "box"):
            found = (x + p.x - p.left, y + p.y, p.left + p.right, p.height)
            yield found, p.inside
            if p.inside is not None:
                yield from rectangles(p, found[0], found[1])


def test_what_is_in_the_picture(example):
    model, loss = example
    shown = texts(gl.viz.graph(loss, model=model, repeats=True, title="A net").to_svg())
    assert shown[0] == "A net" and "parameters" in shown[1]
    assert shown.count("relu") == 3 and shown.count("Linear fc1") == 3 and shown.count("weight 8×4") == 3
    assert {"Block 0", "Block 1", "Block 2", "Sequential blocks", "Net"} <= set(shown)
    assert {"operation", "parameter", "input", "output", "kept for backward"} <= set(shown)  # the legend


def test_repeats_are_folded_and_depth_folds(example):
    model, loss = example
    shown = texts(gl.viz.graph(loss, model=model, repeats=False).to_svg())
    assert shown.count("relu") == 1 and shown.count("built like 0 above") == 2 and "module (folded)" in shown
    shallow = texts(gl.viz.graph(loss, depth=1).to_svg())
    assert "relu" not in shallow and "Sequential blocks" in shallow and "Linear head" in shallow
    assert "Net" in texts(gl.viz.graph(loss, depth=0).to_svg())
    for wrong in (-1, "2"):
        with pytest.raises(ValueError, match="depth"):
            gl.viz.graph(loss, depth=wrong)


def test_small_pictures_show_everything_and_large_ones_repeats_once(example):
    assert not gl.viz.graph(example[1]).folded
    model = Net(20)
    assert len(gl.viz.graph(model(gl.randn(2, 4)).sum()).folded) == 19


def test_parameters_of_several_uses_and_leaves_are_vertices():
    layer = nn.Linear(3, 3)
    x = gl.ones(2, 3, requires_grad=True)
    loss = layer(layer(x)).sum()
    found = diagram_of(loss, layer)
    assert [v.title for v in found.vertices if v.kind == "parameter"] == ["weight", "bias"]
    assert [v.title for v in found.vertices if v.kind == "leaf"] == ["leaf"]
    assert "12 parameters" in found.note


@pytest.mark.parametrize("repeats", [True, False])
def test_nothing_overlaps(example, repeats):
    found = diagram_of(example[1], example[0])
    whole = Placer(found, frames(found), found.folded(None, repeats)).whole()
    drawn = list(rectangles(whole))
    assert len(drawn) > 10
    for i, ((x, y, w, h), inside) in enumerate(drawn):
        for (x2, y2, w2, h2), inside2 in drawn[i + 1 :]:
            apart = x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
            nested = (inside is not None and x <= x2 and y <= y2 and x2 + w2 <= x + w and y2 + h2 <= y + h) or (
                inside2 is not None and x2 <= x and y2 <= y and x + w <= x2 + w2 and y + h <= y2 + h2
            )
            assert apart or nested


def test_a_chain_is_straight_and_lines_do_not_cross():
    x = gl.ones(3, requires_grad=True)
    found = diagram_of(x.exp().sin().exp().sum())
    (frame,) = frames(found).values()
    part = Placer(found, {0: frame}, set()).whole()
    assert max(p.x for p in part.inside.parts) - min(p.x for p in part.inside.parts) < 0.01
    a, b = x.exp(), x.sin()
    found = diagram_of((b * a + a).sum() + b.sum())
    frame = frames(found)[0]
    assert crossings(frame, frame.layers) <= 1


def test_the_same_graph_gives_the_same_bytes(example):
    model, loss = example
    assert gl.viz.graph(loss, model=model).to_svg() == gl.viz.graph(loss, model=model).to_svg()
    assert gl.viz.graph(loss)._repr_svg_().startswith("<svg")


def test_other_languages(example):
    picture = gl.viz.graph(example[1], model=example[0], repeats=False)
    mermaid, dot = picture.to_mermaid(), picture.to_dot()
    assert mermaid.startswith("flowchart TD\n") and mermaid.count("subgraph") == mermaid.count("  end") == 3
    assert dot.count("{") == dot.count("}") and "subgraph cluster_" in dot and "weight 8×4" in dot
    assert len(re.findall(r"^  \w+ --> \w+$", mermaid, re.M)) == len(re.findall(r"^  [vb]\d+ -> [vb]\d+;$", dot, re.M))


def test_save(example, tmp_path):
    picture = gl.viz.graph(example[1])
    for name in ("a.svg", "a.html", "a.dot", "a.gv", "a.mmd"):
        picture.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 500
    with pytest.raises(ValueError, match=r"\.svg, \.html"):
        picture.save(tmp_path / "a.png")


def test_what_has_no_graph():
    with pytest.raises(TypeError, match="float"):
        gl.viz.graph(1.0)
    for tensor in (gl.ones(1), gl.ones(1, requires_grad=True)):
        with pytest.raises(RuntimeError, match="no grad_fn"):
            gl.viz.graph(tensor)


def test_a_traced_training_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    opt = gl.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss

    program = gl.graph.trace(step, gl.randn(3, 4), gl.randn(3, 2))
    shown = texts(gl.viz.graph(program, model=model).to_svg())
    assert {"input 0", "input 1", "output 0", "Linear 0", "0.weight 8×4", "mse"} <= set(shown)
    assert texts(gl.viz.graph(program.graph).to_svg())


def test_graphs_with_hooks_functions_and_freed_values(example):
    model = nn.Linear(2, 2)
    model.register_full_backward_hook(lambda *_: None)
    loss = model(gl.ones(1, 2, requires_grad=True)).sum()
    assert "BackwardHookFunction" in str(texts(gl.viz.graph(loss).to_svg()))
    loss.backward()
    assert diagram_of(loss).kept == 0
    with gl.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), gl.tensor):
        assert diagram_of((gl.ones(3, requires_grad=True).exp()).sum()).kept == 12


def test_kept_bytes_are_counted_once():
    x = gl.ones(100, requires_grad=True)
    y = x.exp()
    assert diagram_of((y * y * y).sum()).kept == 2 * 400  # y, and y * y


# ---------------------------------------------------------------- the page

CHECK = """
<script>
const g = window.gradlab, out = {ready: document.body.dataset.ready};
out.places = Object.fromEntries(Object.entries(g.spots()).map(([k, s]) => [k, s.map((v) => Math.round(v * 10) / 10)]));
out.first = [...g.folded];
const box = out.first[0];
out.hidden = document.querySelectorAll("g.part").length;
g.toggle(box); out.opened = document.querySelectorAll("g.part").length; g.toggle(box);
out.found = g.search("LayerNorm").length; out.listed = document.querySelectorAll("#found li").length;
out.hits = document.querySelectorAll("g.hit").length;
g.reveal(g.search("fc1").pop()); out.revealed = g.folded.size;
const relu = g.D.vertices.find((v) => v.title === "relu");
g.choose("vertex " + relu.id); out.details = document.getElementById("details").textContent;
document.getElementById("all").click(); out.all = g.folded.size;
document.getElementById("less").click(); out.less = g.folded.size;
const before = document.querySelector("svg > g").getAttribute("transform");
document.getElementById("stage").dispatchEvent(new WheelEvent("wheel", {deltaY: -300, clientX: 300, clientY: 300, cancelable: true}));
out.zoomed = document.querySelector("svg > g").getAttribute("transform") !== before;
out.outside = [...document.querySelectorAll("[src],link[href]")].length;
document.body.insertAdjacentHTML("beforeend", "<pre id=report></pre>");
document.getElementById("report").textContent = JSON.stringify(out);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_page_in_a_browser(example, tmp_path):
    model, loss = example
    picture = gl.viz.graph(loss, model=model, repeats=False)
    page = tmp_path / "page.html"
    page.write_text(picture.to_html().replace("</body>", CHECK + "</body>"), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    report = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.S)
    assert report, done.stdout[-2000:] + done.stderr[-2000:]
    out = json.loads(report[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert out["ready"] == "yes" and out["outside"] == 0
    found = picture.diagram
    whole = Placer(found, frames(found), picture.folded).whole()
    expected = sorted([round(v, 1) for v in place] for place, _ in rectangles(whole) if place[2] > 0)
    chips = {f"vertex {v.id}" for v in found.vertices if v.chips}
    here = sorted(v for k, v in out["places"].items() if k != "whole" and k not in chips)
    close = [any(all(abs(a - b) < 0.2 for a, b in zip(spot, place)) for place in expected) for spot in here if spot[3] != 40]
    assert close and all(close), "the page places parts as diagram_layout.py does"
    assert sorted(out["first"]) == sorted(picture.folded)
    assert out["opened"] > out["hidden"] and out["found"] == out["listed"] == 3 and out["hits"] == 1
    assert out["revealed"] < len(out["first"]) and out["all"] == 0 and out["less"] >= 4 and out["zoomed"]
    assert "relu" in out["details"] and "kept for backward" in out["details"] and "test_viz_graph.py" in out["details"]
    assert ".relu()" in out["details"]  # the line's text


def test_the_page_is_one_file(example):
    text = gl.viz.graph(example[1]).to_html()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "") and text.count("<script") == 2
    assert svg(diagram_of(example[1]), set()).count("<svg") == 1
