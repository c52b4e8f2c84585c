"""A run's report: one HTML page without any other file, of what was learned, how well, and how to use it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from gradlab.runs.folder import Files, TrainedRun, beaten
from gradlab.runs.html import bullets, charts, metric_name, section, table
from gradlab.utils.atomic import write_text
from gradlab.viz.chart import Panel, Series

STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--soft:#5b6572;--line:#d9dee5;--good:#1a8754;--bad:#b3402a;--card:#fff;--page:#f5f6f8;
--hue:31,111,235}
@media(prefers-color-scheme:dark){:root{--ink:#e9edf2;--soft:#9aa5b1;--line:#2d343e;--good:#56d391;--bad:#ff9b85;--card:#14181f;
--page:#0c0f13;--hue:108,176,255}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:920px;margin:0 auto;padding:16px}h1{font-size:24px;margin:8px 0}h2{font-size:17px;margin:0 0 8px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:14px 0;overflow-x:auto}
p{margin:6px 0}.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}svg{max-width:100%;height:auto}
.wide{overflow-x:auto}.charts{display:flex;flex-wrap:wrap;gap:12px}.charts svg{flex:1 1 300px;min-width:0;max-width:468px}
table{border-collapse:collapse}th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--line)}th{font-weight:600}
th:first-child,td:first-child{text-align:left}.big{font-size:32px;font-weight:650}
.gallery{display:flex;flex-wrap:wrap;gap:12px}figure{margin:0;width:132px;font-size:12px;overflow-wrap:anywhere}
.gallery img{width:100%;image-rendering:pixelated;border:1px solid var(--line);border-radius:6px}
pre{background:var(--page);border-radius:6px;padding:10px;white-space:pre-wrap;overflow-wrap:anywhere}
pre.wide{white-space:pre;font-size:12px;line-height:1.4;overflow-wrap:normal}
.counts td,.counts th{min-width:34px;text-align:center}
@media(min-width:601px){td:first-child{white-space:nowrap}}
@media(max-width:600px){main{padding:8px}section{padding:12px;margin:10px 0}th,td{padding:4px 6px;font-size:13px}pre{font-size:12px}
.counts td,.counts th{padding:4px 2px;min-width:24px}.charts text{font-size:12px}.charts .title{font-size:17px}.big{font-size:28px}}
"""


def write_report(files: Files, trained: TrainedRun, history: Sequence[dict[str, float]]) -> None:
    """Write report.html, whole or not at all."""
    write_text(files.report, page(trained, history))


def page(trained: TrainedRun, history: Sequence[dict[str, float]]) -> str:
    """The report as HTML: what every run has, and between it what its kind shows."""
    description, task = trained.description, trained.task
    title = task.title(description["source"])
    sections = [
        ("Learning", _curves(trained, history)), *_comparison(trained), *task.sections(trained),
        *_search(description), *_profile(trained.folder),
        ("What was found in the data", bullets(description["notes"]) or "<p>Nothing unusual.</p>"),
        ("Using it", "".join(f"<pre>{escape(text)}</pre>" for text in task.usage(str(trained.folder)))),
        ("Settings", _settings(description)),
    ]  # fmt: skip
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>\n"
        + "\n".join([_summary(trained), *(section(*part) for part in sections)])
        + "\n</main></body></html>\n"
    )


def _summary(trained: TrainedRun) -> str:
    description = trained.description
    result, verdict = description["result"], ""
    if description["baselines"]:
        verdict = (
            '<p class="good">Better than the simpler models below.</p>'
            if beaten(description)
            else '<p class="bad">Not better than a simpler model: use that one, or give more or better data.</p>'
        )
    learned = escape(trained.task.summary().splitlines()[0])
    took = f"{description['parameters']:,} parameters, {result['epochs']} epochs in {result['seconds']:g} s"
    took += f" on {description['settings']['device']}."
    part = "validation" if trained.task.validated else "training"
    stopped = f" Stopped: {escape(result['stopped'])}." if result["stopped"] else ""
    return (
        f'<section><span class="big">{result["best"]:.4g}</span> {metric_name(description["score"])} on the {part} part{verdict}'
        f'<p class="soft">{learned}. {took}{stopped}</p></section>'
    )


def _curves(trained: TrainedRun, history: Sequence[dict[str, float]]) -> str:
    score = trained.description["score"]
    epochs = [line["epoch"] for line in history]
    loss = [Series("training", epochs, [line["loss"] for line in history])]
    if trained.task.validated:
        loss.insert(0, Series("validation", epochs, [line["validation_loss"] for line in history]))
    panels = [Panel("Loss", "epoch", loss, whole_x=True)]
    if score != "loss":
        scores = [Series("validation", epochs, [line[f"validation_{score}"] for line in history])]
        panels.append(Panel(metric_name(score), "epoch", scores, whole_x=True))
    return charts(panels, f"over the epochs; 0 is {trained.task.beginning}" if trained.task.validated else "over the epochs")


def _comparison(trained: TrainedRun) -> list[tuple[str, str]]:
    """What was measured on the validation part, beside what simpler models reach."""
    baselines, measured = trained.description["baselines"], trained.description["result"]["validation"]
    names = list(dict.fromkeys(name for values in baselines.values() for name in values)) or list(measured)
    lines = {"this run": measured, **baselines}
    shown = table(["", *map(metric_name, names)], [[name, *(values.get(m, "") for m in names)] for name, values in lines.items()])
    return [("Beside simpler models" if baselines else "Measured", shown)] if names else []


def _search(description: dict[str, Any]) -> list[tuple[str, str]]:
    """The trials of a search, the best first."""
    lines = description.get("search", [])
    names = list(dict.fromkeys(name for line in lines for name in line))
    said = '<p class="soft">The best third of each round went on. The first trial has the settings that the kind has anyway.</p>'
    return [("The search", said + table(names, [[line.get(name, "") for name in names] for line in lines]))] if lines else []


def _profile(folder: Path) -> list[tuple[str, str]]:
    """Where time and memory went, as `--profile` has left it."""
    text, picture = folder / "profile.txt", folder / "memory.svg"
    if not (text.exists() and picture.exists()):
        return []
    tables = f'<pre class="wide">{escape(text.read_text(encoding="utf-8"))}</pre>'
    found = f'{tables}<div class="charts">{picture.read_text(encoding="utf-8")}</div>'
    return [("Where time and memory go", found)]


def _settings(description: dict[str, Any]) -> str:
    """What the run was told, and where it ran."""
    told = {name: value for name, value in description["settings"].items() if name != "data" and value not in (None, False)}
    data = {name: value for name, value in description["settings"]["data"].items() if value not in (None, False)}
    told |= {name: value for name, value in data.items() if name != "seed" or value != told.get("seed")}
    memory = description["result"].get("memory")
    where = {**description["environment"], **({"most memory": f"{memory / 2**20:,.0f} MiB"} if memory else {})}
    rows = [[name.replace("_", " "), "yes" if value is True else value] for name, value in (told | where).items()]
    return table(["", ""], rows)
