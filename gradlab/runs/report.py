"""A run's report: one HTML page without any other file, of what was learned, how well, and how to use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

import gradlab as gl
from gradlab.runs.folder import Files, TrainedRun
from gradlab.utils.atomic import write_text
from gradlab.viz.chart import Panel, Series, line_chart

WORST = 10  # examples that are shown
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
table{border-collapse:collapse}th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--line)}th{font-weight:600}
th:first-child,td:first-child{text-align:left}.big{font-size:32px;font-weight:650}
pre{background:var(--page);border-radius:6px;padding:10px;overflow-x:auto}
"""


def write_report(files: Files, trained: TrainedRun, history: Sequence[dict[str, float]]) -> None:
    """Write report.html, whole or not at all."""
    write_text(files.report, page(trained, history))


def page(trained: TrainedRun, history: Sequence[dict[str, float]]) -> str:
    """The report as HTML."""
    description, task = trained.description, trained.task
    title = f"{task.target.name} from {description['source'].rsplit('/', 1)[-1]}"
    sections = [
        _summary(trained), _section("Learning", _curves(history, task.score)), _section("Beside simpler models", _comparison(trained)),
        _examples(trained), _section("What was found in the table", _list(description["notes"]) or "<p>Nothing unusual.</p>"),
        _section("Using it", _usage(trained)), _section("Settings", _settings(description)),
    ]  # fmt: skip
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>\n"
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def beaten(description: dict[str, Any]) -> bool:
    """Whether the run is better than every simpler model by its score."""
    score = description["score"]
    return all(description["result"]["best"] > values[score] + 1e-9 for values in description["baselines"].values())


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _name(metric: str) -> str:
    return {"r2": "R²", "mae": "mean absolute error", "rmse": "root mean squared error", "f1": "F1 (macro)", "roc_auc": "ROC AUC"}.get(
        metric, metric.replace("_", " ")
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cell(value: Any) -> str:
        return f"{value:,.4g}" if isinstance(value, float) else escape(str(value))

    top = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _summary(trained: TrainedRun) -> str:
    description, dataset = trained.description, trained.task.dataset
    result, score = description["result"], description["score"]
    verdict = (
        '<p class="good">Better than the simpler models below.</p>'
        if beaten(description)
        else '<p class="bad">Not better than a simpler model: use that one, or give more or better data.</p>'
    )
    rows = f"{len(dataset.training_rows):,} training and {len(dataset.validation_rows):,} validation rows; " if dataset is not None else ""
    took = f"{result['epochs']} epochs in {result['seconds']:g} s on {description['settings']['device']}."
    stopped = f" Stopped: {escape(result['stopped'])}." if result["stopped"] else ""
    return (
        f'<section><span class="big">{result["best"]:.4g}</span> {_name(score)} on the validation rows{verdict}'
        f'<p class="soft">{rows}{took}{stopped}</p></section>'
    )


def _curves(history: Sequence[dict[str, float]], score: str) -> str:
    epochs = [line["epoch"] for line in history]
    loss = [
        Series("validation", epochs, [line["validation_loss"] for line in history]),
        Series("training", epochs, [line["loss"] for line in history]),
    ]
    scores = [Series("validation", epochs, [line[f"validation_{score}"] for line in history])]
    panels = [Panel("Loss", "epoch", loss, whole_x=True), Panel(_name(score), "epoch", scores, whole_x=True)]
    return line_chart(panels, "Over the epochs; 0 is the linear model")


def _comparison(trained: TrainedRun) -> str:
    description = trained.description
    validation = {name: value for name, value in description["result"]["validation"].items() if name != "loss"}
    rows = [["this run", *validation.values()]]
    rows += [[name, *(values[metric] for metric in validation)] for name, values in description["baselines"].items()]
    return _table(["", *map(_name, validation)], rows)


def _examples(trained: TrainedRun) -> str:
    """The table of confusions, or residuals; and the rows that are farthest off."""
    task, dataset = trained.task, trained.task.dataset
    if dataset is None:
        return ""
    numbers, categories, _ = (t[dataset.validation_rows.tolist()] for t in dataset.tensors)
    outputs = _outputs(trained, numbers, categories)
    true = dataset.tensors[2].numpy()[dataset.validation_rows]
    if task.classes:
        chances = outputs.softmax(1).numpy()
        off = 1 - chances[np.arange(len(true)), true]
        found = [(task.classes[int(i)], f"{c:.3f}") for i, c in zip(chances.argmax(1), chances.max(1), strict=True)]
        wanted = [task.classes[int(t)] for t in true]
        shown = _section("Confusions", _confusions(task.classes, true, chances.argmax(1)))
    else:
        decoded, real = task.target.decoded(outputs.numpy()), task.target.decoded(true)
        off = abs(decoded - real)
        found = [(f"{v:.5g}", f"{v - r:+.4g}") for v, r in zip(decoded, real, strict=True)]
        wanted = [f"{v:.5g}" for v in real]
        shown = _section("Residuals", _residuals(decoded, real))
    worst = np.argsort(-off, kind="stable")[:WORST]
    columns = list(task.coding.kinds)[:8]
    rows = []
    for i in worst:
        row = int(dataset.validation_rows[i])
        cells = ["" if (c := dataset.table.columns[name][row]) is None else c for name in columns]
        rows.append([dataset.table.where(row).rsplit(", ", 1)[-1], wanted[i], *found[i], *cells])
    head = ["row", "true", "predicted", "probability" if task.classes else "residual", *columns]
    return shown + _section("Farthest off", _table(head, rows))


def _outputs(trained: TrainedRun, numbers: Any, categories: Any) -> Any:
    device = next(trained.model.parameters()).device
    with gl.no_grad():
        return trained.model(numbers.to(device), categories.to(device)).cpu()


def _confusions(classes: Sequence[str], true: Any, found: Any) -> str:
    """Rows are true classes; the more, the darker."""
    many = len(classes)
    if many > 30:
        return f"<p>{many} classes are too many to show.</p>"
    counts = np.bincount(true * many + found, minlength=many * many).reshape(many, many)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    head = "".join(f"<th>{escape(name)}</th>" for name in classes)
    body = "".join(
        f"<tr><td>{escape(classes[i])}</td>"
        + "".join(f'<td style="background:rgba(var(--hue),{share[i, j] * 0.7:.2f})">{counts[i, j]}</td>' for j in range(many))
        + "</tr>"
        for i in range(many)
    )
    return f'<p class="soft">Rows are true classes, columns predictions.</p><table><tr><th></th>{head}</tr>{body}</table>'


def _residuals(found: Any, true: Any) -> str:
    """Predictions over true values, as points."""
    low, high = float(min(found.min(), true.min())), float(max(found.max(), true.max()))
    size, edge = 320, 34

    def place(value: float) -> float:
        return edge + (value - low) / ((high - low) or 1) * size

    keep = np.linspace(0, len(true) - 1, min(len(true), 600)).astype(int)
    dots = "".join(f'<circle cx="{place(true[i]):.1f}" cy="{2 * edge + size - place(found[i]):.1f}" r="3"/>' for i in keep)
    whole = size + 2 * edge
    return (
        f'<svg width="{whole}" height="{whole}" viewBox="0 0 {whole} {whole}" role="img" fill="rgba(var(--hue),.55)">'
        f"<title>Predictions over true values</title>"
        f'<line x1="{edge}" y1="{edge + size}" x2="{edge + size}" y2="{edge}" stroke="var(--soft)" stroke-dasharray="5 4"/>{dots}'
        f'<g fill="var(--soft)" font-size="11"><text x="{edge}" y="{whole - 12}">true: {low:.4g}</text>'
        f'<text x="{edge + size}" y="{whole - 12}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{edge}" y="{edge - 14}">predicted: {high:.4g}</text></g></svg>'
    )


def _usage(trained: TrainedRun) -> str:
    folder = escape(str(trained.folder))
    return (
        f"<pre>gradlab predict {folder} new.csv --out predictions.csv\ngradlab evaluate {folder} other.csv</pre>"
        f'<pre>import gradlab as gl\n\nrun = gl.load_run("{folder}")\nrun.predict("new.csv")["prediction"]\nrun.model  # an nn.Module</pre>'
    )


def _settings(description: dict[str, Any]) -> str:
    settings = {name: value for name, value in description["settings"].items() if value not in (None, {})}
    rows = [[name.replace("_", " "), str(value)] for name, value in (settings | description["environment"]).items()]
    return _table(["", ""], rows)
