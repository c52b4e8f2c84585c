"""Pages of runs: their scripts in Node, what a face makes of drawings, rows and prompts compared with Python's; looked at in Chromium."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from deployed import compiler

import gradlab as gl
from gradlab import models
from gradlab.cli.entry import main
from gradlab.data.images.folder import fitted
from gradlab.runs import Settings, start
from gradlab.runs.web import ASSETS, POLICY

node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
FACES = ("page", "images", "table", "text", "series", "arrays")


def ran(code, folder, **given):
    """What a script prints as JSON; `given` are its constants."""
    head = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
    script = folder / "script.cjs"
    script.write_text('"use strict";\n' + head + code, encoding="utf-8")
    done = subprocess.run(["node", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def faces():
    return "\n".join((ASSETS / f"{name}.js").read_text() for name in FACES) + "\n"


@node
def test_pictures_are_fitted_as_pillow_fits_them(tmp_path):
    pytest.importorskip("PIL")
    rng = np.random.default_rng(0)
    cases = ((33, 20, 3), (8, 8), "crop"), ((9, 30, 1), (16, 12), "stretch"), ((5, 4, 3), (11, 9), "crop")
    for (high, wide, channels), size, fit in cases:
        image = rng.integers(0, 256, (high, wide, channels), np.uint8)
        code = """
        const picture = { data: Uint8Array.from(data), width, height, channels };
        console.log(JSON.stringify([...faces.images.fitted(picture, { size, fit }).data]));"""
        about = {"width": wide, "height": high, "channels": channels, "size": size, "fit": fit}
        found = ran(faces() + code, tmp_path, data=image.ravel().tolist(), **about)
        # A step of 255: newer Pillows go down the columns first where that is less work.
        assert np.abs(np.array(found) - fitted(image, *size, fit).ravel()).max() <= 1


@node
def test_tokens_are_those_of_python(tmp_path):
    text = "Der Bär aß 12 süße_Kekse,\n\n  und nächtens… 日本語 😀 Geschichten. " * 3
    for tokenizer in (gl.data.CharacterTokenizer.of(text[:40] + "�"), gl.data.BytePairTokenizer.of(text, 330)):
        for prompt in (text, "neu: ünd Bär\t…", ""):
            wanted = tokenizer.encode(prompt).tolist()
            code = """
            const own = faces.text.tokenizer(state), tokens = own.encode(prompt);
            console.log(JSON.stringify([tokens, own.decode(tokens)]));"""
            found, back = ran(faces() + code, tmp_path, state=tokenizer.state(), prompt=prompt)
            assert found == wanted
            assert back == tokenizer.decode(wanted)


@node
def test_draws_are_those_of_the_chances(tmp_path):
    code = """
    const { chances, drawn, random, first } = faces.text, number = random(3);
    const found = chances(scores, 0.5, 3, 0), counts = scores.map(() => 0);
    for (let i = 0; i < 20000; ++i) ++counts[drawn(found, number())];
    console.log(JSON.stringify([found, counts, chances(scores, 0, undefined, 0), first(0, 8, 8), first(0, 9, 8)]));"""
    scores = [9.0, 1.0, 2.0, -1.0, 1.5, 0.0]
    found, counts, likeliest, *begins = ran(faces() + code, tmp_path, scores=scores)
    kept = np.array([0, 1, 1, 0, 1, 0]) * np.exp(np.array(scores) / 0.5)
    assert np.allclose(found, kept / kept.sum())
    assert np.allclose(np.array(counts) / 20000, found, atol=0.02)
    assert likeliest == [0, 0, 1, 0, 0, 0] and begins == [0, 5]


def test_the_command_takes_a_page_or_a_form(tmp_path, capsys):
    for options, said in (
        (["--web", "page.htm"], "ends with .htm, and --web was asked for"), (["--web", "page.html", "--c"], "one at a time"),
        ([], "--glp, --c or --web"),
    ):  # fmt: skip
        assert main(["export", str(tmp_path), *options]) == 2
        assert said in capsys.readouterr().err


DIGITS = {  # as one would draw them: strokes of points in a square of 320
    0: [[(160, 40), (90, 100), (90, 220), (160, 280), (230, 220), (230, 100), (160, 40)]],
    1: [[(130, 90), (170, 40), (170, 280)]],
    2: [[(95, 90), (125, 50), (190, 45), (220, 90), (200, 140), (95, 275), (235, 275)]],
    3: [[(95, 60), (170, 40), (220, 85), (190, 140), (140, 152), (200, 165), (228, 220), (180, 275), (95, 262)]],
    4: [[(150, 40), (85, 190), (235, 190)], [(195, 110), (190, 280)]],
    7: [[(90, 50), (230, 50), (150, 280)], [(120, 160), (220, 160)]],
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A run of each kind, and its page."""
    pytest.importorskip("ziglang")
    folder = tmp_path_factory.mktemp("pages")
    days = [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(60)]
    table = {
        "size": np.linspace(0, 3, 60), "age": [None if i % 9 == 0 else str(i % 17) for i in range(60)], "day": days,
        "town": [f"t{i % 3}" for i in range(60)], "grade": [("good", "poor </script>", "rare")[i % 3] for i in range(60)],
        "price": np.sin(np.arange(60)) * 3,
    }  # fmt: skip
    (folder / "own.py").write_text(
        "import gradlab as gl\n\ndef recipe():\n    batch = gl.randn(4, 3), gl.randn(4, 2)\n"
        "    return gl.nn.Linear(3, 2), [batch], gl.nn.functional.mse_loss\n"
    )
    sources = {
        "digits": ("digits", None, {"model": "cnn"}, 6),
        "table": ("table", {k: v for k, v in table.items() if k != "price"}, {"target": "grade"}, 1),
        "number": ("table", {k: v for k, v in table.items() if k != "grade"}, {"target": "price"}, 1),
        "text": ("text", ["the cat sat on the mat and the dog. " * 9], {"model": "gpt", "width": 32, "layers": 1, "context": 16}, 1),
        "series": ("series", {"y": np.sin(np.arange(80) / 2)}, {"value": "y", "horizon": 3, "window": 6}, 1),
        "function": ("function", f"{folder}/own.py:recipe", {}, 1),
    }  # fmt: skip
    found = {}
    for name, (kind, source, settings, epochs) in sources.items():
        run = start(source, folder / name, Settings(data=settings, epochs=epochs, device="cpu"), lambda text: None, kind)
        found[name] = run, run.export(folder / f"{name}.html")
    return found


def script_of(page):
    """A page's script with what it reads from the page, as a browser has them."""
    text = page.path.read_text(encoding="utf-8")
    parts = dict(re.findall(r'<script type="[^"]*" id="(\w+)">(.*?)</script>', text, re.DOTALL))
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    head = f"const PARTS = {json.dumps(parts)}, about = JSON.parse(PARTS.about);\n"
    return head + script + "\nconst opened = () => open(bytesOf(PARTS.wasm), bytesOf(PARTS.weights));\n"


def said(page, folder, code, **given):
    return ran(script_of(page) + f"(async () => {{ const model = await opened(); {code} }})();", folder, **given)


@pytest.mark.slow
@node
def test_a_page_is_one_file_that_loads_nothing(pages):
    for name, (_, page) in pages.items():
        text = page.path.read_text(encoding="utf-8")
        assert page.files == (page.path,)
        assert "Node: off by" in page.checked, name
        assert len(text) < 1_000_000 and POLICY in text
        assert not re.search(r'(src|href)="|https?://|@import|url\(', text), name
        assert text.count("<script") == text.count("</script>") == 4


@pytest.mark.slow
@node
def test_digits_that_are_drawn_are_known(pages, tmp_path):
    run, page = pages["digits"]
    strokes = [DIGITS[digit] for digit in DIGITS]
    code = """
    console.log(JSON.stringify(digits.map((strokes) => {
      const data = faces.images.digit(strokes), scores = model.run(...faces.images.encode(data, about))[0];
      return [[...data], [...softmax(scores)], answer(about, scores)];
    })));"""
    found = said(page, tmp_path, code, digits=strokes)
    pixels = np.array([data for data, _, _ in found], np.uint8).reshape(-1, 8, 8)
    wanted = run.predict(list(pixels))
    for i in range(len(DIGITS)):
        chances = np.array(found[i][1])
        assert np.abs(chances - [wanted[f"probability of {c}"][i] for c in range(10)]).max() < 1e-5
        assert found[i][2]["title"] == found[i][2]["pairs"][0][0]
    right = sum(int(wanted["prediction"][i]) == digit for i, digit in enumerate(DIGITS))
    assert right >= len(DIGITS) - 1, wanted["prediction"]


@pytest.mark.slow
@node
@pytest.mark.parametrize("name", ["table", "number"])
def test_rows_of_a_form_are_those_of_the_table(name, pages, tmp_path):
    run, page = pages[name]
    rows = [
        {"size": "1.25", "age": "", "day": "2024-05-17", "town": "t2"}, {"size": "400", "age": "3", "day": "", "town": ""},
        {"size": "-1", "age": "16", "day": "1999-12-31", "town": "t0"},
    ]  # fmt: skip
    code = "console.log(JSON.stringify(rows.map((row) => [...model.run(...faces.table.encode(row, about))[0]])));"
    found = said(page, tmp_path, code, rows=rows)
    table = {key: [row[key] or None for row in rows] for key in rows[0]}
    if name == "number":
        decoded = np.array(found)[:, 0] * run.task.target.deviation + run.task.target.mean
        assert np.allclose(decoded, run.predict(table)["prediction"], rtol=1e-5, atol=1e-5)
        return
    scores = np.exp(np.array(found) - np.max(found, 1, keepdims=True))
    wanted = run.predict(table)
    for i, label in enumerate(run.task.classes):
        assert np.allclose((scores / scores.sum(1, keepdims=True))[:, i], wanted[f"probability of {label}"], atol=1e-5)
    about = said(page, tmp_path, "console.log(JSON.stringify(about));")
    (size,) = [column for column in about["columns"] if column["name"] == "size"]
    assert 0 <= size["parts"][""]["low"] < size["parts"][""]["high"] <= 3


@pytest.mark.slow
@node
def test_a_prompt_goes_on_as_in_python(pages, tmp_path):
    run, page = pages["text"]
    code = """
    const own = faces.text.tokenizer(about.tokenizer), tokens = faces.text.begun(prompt, own), written = [];
    for (let i = 0, begin = 0; i < 40; ++i) {
      begin = faces.text.first(begin, tokens.length, about.context);
      tokens.push(faces.text.drawn(faces.text.chances(faces.text.next(model, tokens.slice(begin), about), 0, undefined, own.unknown), 0.5));
      written.push(tokens.at(-1));
    }
    console.log(JSON.stringify(own.decode(written)));"""
    written = said(page, tmp_path, code, prompt="the c")
    assert "the c" + written == run.sample("the c", length=40, temperature=0)
    tokens = run.task.tokenizer.encode("the cat sat on")
    scores = said(page, tmp_path, "console.log(JSON.stringify(faces.text.next(model, tokens, about)));", tokens=tokens.tolist())
    with gl.no_grad():
        wanted = run.model(gl.tensor(tokens)[None])[0, -1].numpy()
    assert np.abs(np.array(scores) - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert isinstance(run.model, models.GPT)


@pytest.mark.slow
@node
def test_forecasts_and_plain_arrays(pages, tmp_path):
    run, page = pages["series"]
    series = np.sin(np.arange(80, 90) / 2)
    code = """
    const forecast = (text) => faces.series.decode(model.run(...faces.series.encode(text, about))[0], about);
    const refused = (text) => { try { forecast(text); return ""; } catch (error) { return error.message; } };
    console.log(JSON.stringify([forecast(lines), refused("1 2"), refused("1\\n2\\nx\\n4\\n5\\n6")]));"""
    rows, short, odd = said(page, tmp_path, code, lines="\n".join(map(repr, series.tolist())))
    assert np.allclose(np.array(rows)[:, 0], run.predict({"y": series})["y"], rtol=1e-5, atol=1e-5)
    assert short == "1 steps, where the model looks at the last 6" and odd.startswith("line 3 is not of 1 numbers")
    run, page = pages["function"]
    code = """
    const encode = (text) => faces.arrays.encode([text], model.inputs, about.inputs);
    const refused = (text) => { try { encode(text); return ""; } catch (error) { return error.message; } };
    console.log(JSON.stringify([[...model.run(...encode("1, 2 3"))[0]], refused("1 2"), refused("1 2 b")]));"""
    values, short, odd = said(page, tmp_path, code)
    with gl.no_grad():
        wanted = run.model(gl.tensor([[1.0, 2.0, 3.0]]))[0].numpy()
    assert np.allclose(values, wanted, rtol=1e-5)
    assert short.startswith("input: 2 numbers, where there are 3") and odd == "input: b is no number"


def browser():
    """Chromium that playwright drives: its own, or the system's; None where there is none."""
    if importlib.util.find_spec("playwright") is None:
        return None
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="playwright or Chromium is not installed")
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_a_browser_shows_every_face_and_a_digit_can_be_drawn(size, pages, tmp_path):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        for name, (_, page) in pages.items():
            view = chromium.new_page(viewport={"width": size[0], "height": size[1]})
            faults, asked = [], []
            view.on("console", lambda message, faults=faults: faults.append(message.text) if message.type == "error" else None)
            view.on("pageerror", lambda error, faults=faults: faults.append(str(error)))
            view.on("request", lambda request, asked=asked: asked.append(request.url))
            view.goto(page.path.as_uri())
            if name == "digits":
                box = view.locator("#ink").bounding_box()
                unit = box["width"] / 320
                for stroke in DIGITS[2]:
                    view.mouse.move(box["x"] + stroke[0][0] * unit, box["y"] + stroke[0][1] * unit)
                    view.mouse.down()
                    for x, y in stroke[1:]:
                        view.mouse.move(box["x"] + x * unit, box["y"] + y * unit, steps=8)
                    view.mouse.up()
                view.wait_for_selector(".answer")
                assert view.locator(".answer").inner_text() == "2"
                assert view.locator(".bars dt").count() == 10
            elif name == "text":
                view.fill("#prompt", "the c")
                view.click("#write")
                view.locator("#written").filter(has_text=re.compile(".{21}")).wait_for()  # the page's policy forbids evaluated strings
            view.wait_for_selector(".time")
            assert "ms for" in view.locator(".time").first.inner_text()
            assert view.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert faults == [] and len(asked) == 1, (name, faults, asked)
            view.screenshot(path=tmp_path / f"{name}.png")
            view.close()
        chromium.close()
