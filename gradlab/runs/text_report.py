"""What a report shows of a language model: what it writes, what it did not foresee, and what a longer context is worth to it."""

from __future__ import annotations

import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.runs.html import charts
from gradlab.viz.chart import Panel, Series

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun
    from gradlab.runs.text import TextTask

TEMPERATURES = (0.5, 0.8, 1.0)
LENGTH = 400  # characters of a sample
PASSAGES = 4  # that are shown
POINTS = 32  # of the curve over the context
DARKEST = 8.0  # nats of a token, and more


def sections(task: TextTask, trained: TrainedRun) -> list[tuple[str, str]]:
    """Samples and, while the text is there, the loss by place and the passages that were foreseen worst."""
    found = [("Samples", samples(task, trained))]
    if task.dataset is not None:
        windows = task.dataset.validation
        nats = task.surprise(trained.model, windows)
        found += [("Loss by place in the context", by_place(nats)), ("Least foreseen", least_foreseen(task, nats))]
    return found


def samples(task: TextTask, trained: TrainedRun) -> str:
    """What the model writes from nothing, at several temperatures."""
    texts = ((t, "".join(task.sample(trained.model, length=LENGTH, temperature=t))) for t in TEMPERATURES)
    return "".join(f'<p class="soft">temperature {t:g}</p><pre style="white-space:pre-wrap">{escape(text)}</pre>' for t, text in texts)


def by_place(nats: Any) -> str:
    """The mean of each place's tokens over the validation part, in bits: what is seen before helps."""
    edges = np.unique(np.linspace(0, nats.shape[1], min(nats.shape[1], POINTS) + 1).astype(int))
    x, y = [], []
    for low, high in pairwise(edges.tolist()):
        part = nats[:, low:high]
        if not np.isnan(part).all():
            x.append((low + 1 + high) / 2)
            y.append(float(np.nanmean(part)) / math.log(2))
    panel = Panel("Bits for a token", "tokens seen before it, with itself", [Series("validation", x, y)])
    return charts([panel], "what is seen before helps")


def least_foreseen(task: TextTask, nats: Any) -> str:
    """The windows with the largest mean, token by token: the darker, the less foreseen."""
    windows = task.learned().validation
    full = (~np.isnan(nats)).sum(1) >= min(windows.context, 32)
    means = np.where(full, np.nanmean(nats, 1), -1.0)
    shown = []
    for i in np.argsort(-means, kind="stable")[:PASSAGES]:
        if means[i] < 0:
            continue
        _, targets = windows.arrays(np.array([i]))
        tokens = "".join(_token(task, int(t), float(n)) for t, n in zip(targets[0], nats[i], strict=True) if not math.isnan(n))
        title = f'<p class="soft">{means[i] / math.log(2):.2f} bits for a token</p>'
        shown.append(f'{title}<pre style="white-space:pre-wrap">{tokens}</pre>')
    return '<p class="soft">Passages of the validation part; the darker, the less foreseen.</p>' + "".join(shown)


def _token(task: TextTask, token: int, nats: float) -> str:
    text = escape(task.tokenizer.decode([token])).replace("\n", "⏎\n")
    return f'<span style="background:rgba(var(--hue),{min(nats / DARKEST, 1.0) * 0.8:.2f})">{text}</span>'
