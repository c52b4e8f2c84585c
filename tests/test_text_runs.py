"""Runs of texts: trained to fewer bits than counting pairs reaches, stopped, resumed, sampled, measured and reported."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from itertools import islice, pairwise

import numpy as np
import pytest
from test_runs import Page

import gradlab as gl
from gradlab.backends.threads import set_blas_threads
from gradlab.cli.entry import main
from gradlab.data import TextError, read_text
from gradlab.models import GPT, GPTConfig, RecurrentLanguageModel, generate
from gradlab.runs import RunError, Settings, load_run, resume, start
from gradlab.runs.ngrams import Counts
from gradlab.runs.text import TextTask

KINDS = {  # what is trained, and for how long; of the last, nothing is asked
    "gru": Settings(epochs=3, learning_rate=1e-2, data={"model": "gru", "width": 80, "layers": 1, "context": 32, "dropout": 0.0}),
    "gpt": Settings(epochs=4, learning_rate=8e-3, data={"model": "gpt", "width": 48, "layers": 2, "context": 32, "dropout": 0.0}),
    "lstm": Settings(epochs=1, batch_size=64, data={"model": "lstm", "width": 24, "context": 16, "tokens": "bpe", "vocabulary": 400}),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The first part of Python's reference, as a file."""
    path = tmp_path_factory.mktemp("text") / "topics.txt"
    path.write_text(read_text().text[:70_000], encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """A run of each kind, trained when it is asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    set_blas_threads(1)  # as the shell's commands do, for small products

    def run(kind):
        if kind not in made:
            made[kind] = start(corpus, folder / kind, KINDS[kind], lambda line: None, "text")
        return made[kind]

    return run


@pytest.mark.parametrize("kind", ["gru", "gpt"])
def test_it_foresees_more_than_pairs_do(runs, kind):
    description = runs(kind).description
    baselines, best = description["baselines"], description["result"]["best"]
    assert best < baselines["bigram"]["bits_per_character"] < baselines["unigram"]["bits_per_character"] - 0.7
    assert description["score"] == "bits_per_character" and not description["greater"]
    found = description["result"]["validation"]
    assert found["bits_per_character"] == pytest.approx(best) == pytest.approx(math.log2(found["perplexity"]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_holds_everything(runs, corpus, kind, tmp_path):
    run = runs(kind)
    assert {p.name for p in run.folder.iterdir()} == {"run.json", "checkpoints", "model.safetensors", "epochs.csv", "report.html"}
    again = gl.load_run(run.folder)
    assert not again.model.training and again.task.tokenizer.state() == run.task.tokenizer.state()
    assert again.sample("The ", 30) == run.sample("The ", 30) and run.sample("The ", 30).startswith("The ")
    part = tmp_path / "part.txt"
    part.write_text(run.task.dataset.parts[1][0], encoding="utf-8")
    assert again.evaluate(part) == run.evaluate(str(part))
    with pytest.raises(ValueError, match="this one was read back"):
        again.task.loaders(8, 0)


def test_a_text_is_measured_as_the_validation_part_was(runs):
    run = runs("gru")
    parts, found = run.task.dataset.parts[1], run.description["result"]["validation"]
    nats = run.task.surprise(run.model, run.task.windows(parts))
    assert np.nanmean(nats) == pytest.approx(math.log(found["perplexity"]), rel=1e-4)
    assert np.isfinite(nats).sum() == sum(map(len, parts)) - len(parts) - sum(map(len, map(run.task.tokenizer.strangers, parts)))
    by_line = run.predict(parts[0].split("\n"))
    assert by_line["characters"].sum() <= len(parts[0]) and (by_line["log_likelihood"] <= 0).all()
    mean = -by_line["log_likelihood"].sum() / by_line["characters"].sum()
    assert 0.7 < mean / math.log(found["perplexity"]) < 1.5  # lines by themselves, with less before them


def test_lines_by_themselves(runs):
    run = runs("lstm")
    line = "The statement is a simple one, 'import'."
    found = run.predict([line, "", "zzqz\u4e2dqzqzqz", line + " " + line])
    assert found["characters"].tolist() == [len(line), 0, 11, 2 * len(line) + 1] and np.isnan(found["perplexity"][1])
    assert found["bits_per_character"][2] > found["bits_per_character"][0]
    assert found["log_likelihood"][0] == run.predict([line])["log_likelihood"][0]
    expected = -found["log_likelihood"][0] / len(line) / math.log(2)
    assert found["bits_per_character"][0] == pytest.approx(expected)
    assert [len(column) for column in run.predict([]).values()] == [0] * 5


@pytest.mark.parametrize("kind", KINDS)
def test_sampling(runs, kind):
    run = runs(kind)
    drawn = ((1, None, 0), (1, None, 0), (1, None, 1), (0, None, 0), (1, 1, 5))
    texts = [run.sample("import", 60, temperature=t, top_k=k, seed=s) for t, k, s in drawn]
    assert texts[0] == texts[1] != texts[2] and texts[3] == texts[4] and all(len(text) == 66 for text in texts)
    assert len("".join(run.task.sample(run.model, length=100))) == 100  # beyond the context
    pieces = run.task.sample(run.model, "import", 60, temperature=0)
    assert texts[3].startswith("import" + next(pieces))


def test_what_the_prompt_has_and_the_text_has_not(runs, capsys):
    run = runs("gru")
    with pytest.warns(UserWarning, match=r"has no '中' \(2\), 'Ω' \(1\)"):
        assert run.sample("a中中Ω", 5, temperature=0)[4:] == run.sample("a", 5, temperature=0)[1:]
    assert main(["sample", str(run.folder), "--prompt", "Ω", "--length", "3"]) == 0
    said = capsys.readouterr()
    assert "note: the training text has no 'Ω' (1)" in said.err and said.out.startswith("Ω") and len(said.out) == 5


@pytest.mark.parametrize("make", [
    lambda: GPT(GPTConfig(vocab_size=11, block_size=16, n_layer=2, n_head=2, n_embd=16)),
    lambda: RecurrentLanguageModel(11, width=8, layers=2), lambda: RecurrentLanguageModel(11, width=8, layers=1, kind="gru"),
])  # fmt: skip
def test_tokens_that_are_kept_give_what_all_at_once_do(make):
    gl.manual_seed(3)
    model = make().eval()
    tokens = gl.randint(0, 11, (2, 16))
    with gl.no_grad():
        whole, parts, state = model(tokens), [], None
        for low, high in pairwise((0, 5, 6, 7, 12, 16)):
            logits, state = model.continued(tokens[:, low:high], state)
            parts.append(logits)
        assert gl.allclose(gl.cat(parts, 1), whole, atol=1e-5)
    written = [4, 2]
    for token in islice(generate(model, written, temperature=0), 12):
        with gl.no_grad():
            assert token == int(model(gl.tensor([written]))[0, -1].argmax())
        written.append(token)


def test_generating_beyond_a_context_and_wrong_settings():
    model = GPT(GPTConfig(vocab_size=5, block_size=8, n_layer=1, n_head=1, n_embd=8)).eval()
    assert len(list(islice(generate(model, [1] * 30, seed=2, never=[0]), 40))) == 40
    assert all(token != 0 for token in islice(generate(model, [1], seed=2, never=[0]), 40))
    for keywords in ({"temperature": -1.0}, {"temperature": math.nan}, {"top_k": 0}, {"tokens": []}):
        with pytest.raises(ValueError, match="generate: temperature is at least 0"):
            generate(model, **{"tokens": [1], **keywords})
    with pytest.raises(ValueError, match="9 tokens, but block_size is 8"):
        model.continued(gl.zeros(1, 9, dtype=gl.int64))
    with pytest.raises(ValueError, match="not 'rnn'"):
        RecurrentLanguageModel(5, kind="rnn")


def test_counts_are_probabilities():
    rng = np.random.default_rng(0)
    counts = Counts([rng.integers(0, 6, 50), rng.integers(0, 5, 1), rng.integers(2, 4, 9)], 8)
    everything = np.arange(8)
    assert np.exp(-counts.unigram(everything)).sum() == pytest.approx(1)
    for before in range(8):  # 6 and 7 were never there
        assert np.exp(-counts.bigram(np.full(8, before), everything)).sum() == pytest.approx(1)
    plain = Counts([np.array([0, 1, 0, 1, 0, 2])], 3)
    alone = (1 + 1) / (6 + 3)
    assert np.exp(-plain.bigram(np.array([0]), np.array([2]))) == pytest.approx((1 + 2 * alone) / (3 + 2))
    assert np.isfinite(Counts([], 3).bigram(everything[:3], everything[:3])).all()


# ---------------------------------------------------------------- from the shell


def test_train_sample_predict_evaluate(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    plain = corpus.read_text(encoding="utf-8")[:9000].encode("ascii", "replace")
    (tmp_path / "texts" / "a.txt").write_bytes(plain.replace(b"\n", b"\r\n") + b"caf\xe9\r\n")
    small = ["--dropout", "0", "--width", "16", "--layers", "1", "--context", "8", "--epochs", "1", "--device", "cpu"]
    assert main(["train", "text", "texts", *small, "--model", "gpt", "--contiguous", "--validation", "0.2"]) == 0
    out = capsys.readouterr().out
    assert "7,204 characters to train on, 1,801 held out" in out
    assert "note: 1 files are read" in out and "note: texts/a.txt: 1 places are not utf-8" in out and "epoch 1/1" in out and "bigram" in out
    assert main(["sample", "runs/text-1", "--prompt", "The ", "--length", "20", "--seed", "3"]) == 0
    assert main(["sample", "runs/text-1", "--prompt", "The ", "--length", "20", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert out[: len(out) // 2] * 2 == out and out.startswith("The ")
    (tmp_path / "lines.txt").write_text("one line\nanother \u4e2d\n", encoding="utf-8")
    assert main(["predict", "runs/text-1", "lines.txt"]) == 0
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["text"] for row in rows] == ["one line", "another \u4e2d"] and rows[1]["characters"] == "8"
    assert float(rows[0]["perplexity"]) > 1
    assert "note: not in the training text, and not measured: '中' (1)" in said.err
    assert main(["predict", "runs/text-1", "lines.txt", "texts/a.txt", "--out", "p.csv"]) == 0
    assert (tmp_path / "p.csv").read_text().splitlines()[2].startswith("lines.txt,2,another")
    assert main(["evaluate", "runs/text-1", "lines.txt"]) == 0
    out = capsys.readouterr().out
    assert "perplexity" in out and "bits per character" in out and "not measured" in out
    assert main(["runs"]) == 0 and "the next character" in capsys.readouterr().out


def test_a_compiled_run_goes_on_by_its_path_alone(corpus, tmp_path, capsys):
    """Stopped in the middle of an epoch, with the same bits as if it never had been; and changed corpora are not gone on with."""
    text = tmp_path / "text.txt"
    text.write_text(corpus.read_text(encoding="utf-8")[:12_000], encoding="utf-8")
    options = ["--width", "32", "--layers", "1", "--context", "16", "--epochs", "2", "--dropout", "0.2", "--compile", "--device", "cpu"]
    arguments = ["train", "text", str(text), *options]
    assert main([*arguments, "--out", str(tmp_path / "whole")]) == 0
    program = (
        "import os, signal, sys\nfrom gradlab.train import Checkpoint\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the tests were started in the background
        "old = Checkpoint.batch_end\n"
        "def batch_end(self, run):\n"
        "    if (run.epoch, run.batch) == (1, 3): os.kill(os.getpid(), signal.SIGINT)\n"
        "    old(self, run)\n"
        "Checkpoint.batch_end = batch_end\n"
        "from gradlab.cli.entry import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    cut = str(tmp_path / "cut")
    command = [sys.executable, "-c", program, *arguments, "--out", cut]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 128 + signal.SIGINT and f"resume with: gradlab train --resume {cut}" in ended.stdout, ended.stderr
    assert main(["train", "--resume", cut]) == 0
    a, b = (load_run(tmp_path / name) for name in ("whole", "cut"))
    assert all(gl.equal(x, y) for x, y in zip(a.model.parameters(), b.model.parameters(), strict=True))
    text.write_text("something else\n" * 900)
    with pytest.raises(RunError, match="has changed since the run was started"):
        resume(tmp_path / "cut", epochs=9)


def test_the_reference_is_found_again(tmp_path):
    settings = Settings(epochs=1, batch_size=512, data={"model": "gru", "width": 8, "layers": 1, "context": 64})
    run = start(None, tmp_path / "run", settings, lambda line: None, "text")
    assert run.description["source"] == "pydoc_data.topics"
    assert resume(tmp_path / "run", epochs=2, say=lambda line: None).description["result"]["epochs"] == 2


def test_only_what_is_read_makes_another_corpus(tmp_path):
    """A run's folder beside the texts is none of them."""
    (tmp_path / "a.txt").write_text("some text")
    before = TextTask.fingerprint(str(tmp_path))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "run.json").write_text("{}")
    (tmp_path / ".b.txt").write_text("hidden")
    assert TextTask.fingerprint(str(tmp_path)) == before
    (tmp_path / "b.txt").write_text("more")
    assert TextTask.fingerprint(str(tmp_path)) != before


def test_what_a_search_tries_can_be_trained(corpus):
    task = TextTask.of(corpus, {})
    for name, values in task.variants().items():
        for value in values:
            made = TextTask.of(corpus, {name: value, "context": 8})
            assert made.sizes[name] == value and made.model()(gl.zeros(1, 8, dtype=gl.int64)).shape == (1, 8, made.tokenizer.size)


MISTAKES = {
    "no file": (["nothing.txt"], "no file 'nothing.txt'"),
    "an empty file": (["empty.txt"], "empty.txt: there is no text in it"),
    "a short text": (["short.txt"], "short.txt: is too short for a context of 128 tokens and the next one: of its 40 characters 36"),
    "no text": (["image.txt"], "holds bytes that are no text (a NUL in line 3)"),
    "an empty folder": (["folder"], "folder: a folder without .txt or .txt.gz files"),
    "another model": (["short.txt", "--model", "cnn"], "--model: invalid choice: 'cnn'"),
    "another encoding": (["short.txt", "--encoding", "latin-99"], "there is no encoding 'latin-99'"),
    "few byte pairs": (["short.txt", "--tokens", "bpe", "--vocabulary", "100"], "--vocabulary: the number of byte-pair tokens"),
    "byte pairs of characters": (["short.txt", "--vocabulary", "1000"], "belongs to --tokens bpe"),
    "no context": (["short.txt", "--context", "0"], "--context: must be at least 1, not 0"),
    "two files": (["short.txt", "short.txt"], "unexpected argument 'short.txt'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(mistake, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, content in {"empty.txt": b"", "short.txt": b"abcdefgh\r\n" * 4 + b"abcd", "image.txt": b"\x89PNG\r\n\x1a\n\0\0"}.items():
        (tmp_path / name).write_bytes(content)
    arguments, message = MISTAKES[mistake]
    assert main(["train", "text", *arguments]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and not list(tmp_path.glob("runs/*"))


def test_other_mistakes(runs, tmp_path, capsys):
    run = runs("gru")
    folder = str(run.folder)
    (tmp_path / "t.txt").write_text("\u4e2d\u4e2d", encoding="utf-8")
    assert main(["evaluate", folder, str(tmp_path / "t.txt")]) == 1 and "nothing can be measured" in capsys.readouterr().err
    assert main(["predict", folder, str(tmp_path / "none.txt")]) == 1 and "none.txt: cannot be read" in capsys.readouterr().err
    assert main(["sample", folder, "--temperature", "-1"]) == 2 and "0 or above, not -1" in capsys.readouterr().err
    assert main(["sample", str(tmp_path)]) == 1 and "is no folder of a run" in capsys.readouterr().err
    with pytest.raises(TextError, match="cannot be read"):
        run.evaluate(tmp_path / "none.txt")
    table = {"x": np.arange(40.0), "y": np.arange(40.0)}
    other = start(table, tmp_path / "table", Settings(epochs=1, data={"target": "y"}), lambda line: None)
    assert main(["sample", str(other.folder)]) == 1 and "only runs of texts write" in capsys.readouterr().err
    with pytest.raises(RunError, match="only runs of texts write"):
        other.sample()
    description = json.loads((run.folder / "run.json").read_text())
    sizes = description["task"] | {"sizes": description["task"]["sizes"] | {"width": "wide"}}
    shutil.copytree(run.folder, tmp_path / "copy")
    (tmp_path / "copy" / "run.json").write_text(json.dumps(description | {"task": sizes}))
    with pytest.raises(RunError, match=r"the task cannot be read .*no model has the sizes"):
        load_run(tmp_path / "copy")
    (tmp_path / "run.json").write_text(json.dumps(description | {"task": {"tokenizer": {"kind": "bpe", "merges": [[1, 999]]}}}))
    with pytest.raises(RunError, match="the task cannot be read"):
        load_run(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_report_is_one_whole_page(runs, kind):
    run = runs(kind)
    text = (run.folder / "report.html").read_text()
    page = Page(text)
    words = " ".join(page.words)
    assert not page.open and not page.links and "http" not in text.replace("http://www.w3.org", "")
    for part in ("Learning", "bigram", "Samples", "temperature 0.8", "Loss by place", "Least foreseen", "gradlab sample"):
        assert part in words
    assert os.path.getsize(run.folder / "report.html") < 200_000
