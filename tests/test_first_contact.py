"""`bench/first_contact.sh`: its sections, limits and files; the whole of it, shortened, on the emulated GPU."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from xml.etree import ElementTree

import pytest

from gradlab.ops import ROWS

from repository import ROOT
from samples import SAMPLES

CONTACT = ROOT / "bench" / "contact"


def module(name):
    spec = importlib.util.spec_from_file_location(f"contact_{name}", CONTACT / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def contact():
    return module("sections")


def test_its_parts_are_there(contact, tmp_path):
    assert all(name in ROWS and SAMPLES.get(name) for name in contact.FAMILIES)
    for emulated in (True, False):
        found = contact.sections(tmp_path, emulated, tmp_path)
        assert len({s.name for s in found}) == len(found)
        for section in found:
            assert all(os.path.exists(part if os.path.isabs(part) else ROOT / part) for part in section.command if part.endswith(".py"))
    assert sum(s.limit for s in contact.sections(tmp_path, True, tmp_path) if s.name.startswith("ladder")) <= 600


def test_limits_failures_and_files(contact, tmp_path, monkeypatch, capsys):
    def python(name, code, limit=30):
        return contact.Section(name, limit, [sys.executable, "-c", code], {"SAID": "yes"})

    fork = "import os, time; os.fork(); time.sleep(60)"
    made = [
        python("good", "import os; print('@' + '{\"us\": 3}'); print('well', os.environ['SAID'])"),
        python("bad", "print('first'); raise ValueError('what it <was>'); "),
        python("slow", fork, 1),
        contact.Section("missing", 5, ["no such program of ours"]),
        python("late", "pass"),
    ]
    monkeypatch.setattr(contact, "sections", lambda *_: made)
    monkeypatch.setattr(contact, "ROOT", tmp_path)
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    run, seconds = contact.run, time.monotonic

    def late(section, limit, environment):
        found = run(section, limit, environment)
        if section.name == "missing":  # now there is no time left
            monkeypatch.setattr(contact.time, "monotonic", lambda: seconds() + 1e4)
        return found

    monkeypatch.setattr(contact, "run", late)
    monkeypatch.setattr(sys, "argv", ["sections.py", "--emulated"])
    assert contact.main() == 1
    printed = capsys.readouterr().out
    failed, summary = printed.split("--- failed")[1].split("--- summary")
    assert [line.split()[0] for line in failed.strip().splitlines()] == ["bad", "slow", "missing", "late"]
    assert "ValueError: what it <was>" in failed and "TIME" in failed and "SKIPPED" in failed and "EXIT 127" in failed
    assert printed.index("bad ") < printed.index("--- failed") and summary.strip().splitlines()[-1].startswith("5 sections, 4 failed")
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} == {"log.txt.gz", "results.jsonl", "sections.xml", "summary.txt"}
    lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {"us": 3} in lines and [line["exit"] for line in lines if "exit" in line] == [0, 1, 124, 127, 125]
    suite = ElementTree.parse(out / "sections.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "3", "1")


@pytest.mark.slow
def test_steps_of_jax_say_where_they_ran():
    pytest.importorskip("jax")
    pytest.importorskip("torch")  # the networks' parameters are named by it
    command = [sys.executable, "bench/contact/steps.py", "jax", "float32", "tiny"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@")]
    assert (line["engine"], line["way"], line["on"]) == ("jax", "jit", "cpu") and line["us"] > 0
    command[3] = "bfloat16"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and "measure float32 or tf32" in done.stdout


@pytest.mark.slow
def test_all_of_it_on_the_emulated_gpu(tmp_path):
    """Two to four minutes."""
    environment = os.environ | {"OUT": str(tmp_path), "PYTHON": sys.executable}
    command = ["bash", "bench/first_contact.sh", "--emulated"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.iterdir())) <= 8
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    steps = {line["way"]: line for line in lines if line.get("engine") == "gradlab"}
    assert steps["compiled"]["launches"] == 1 and steps["compiled"]["why"] == "" and steps["eager"]["us"] > 0
    assert {line["rung"] for line in lines if "rung" in line} >= {"driver", "copies", "kernel", "thread", "gemm", "epilogues", "capture"}
