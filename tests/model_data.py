"""The data on which the models of gradlab.models are trained in tests and benchmarks, in NumPy, and what simpler ways reach there."""

from __future__ import annotations

import pydoc_data.topics
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

import numpy as np

from gradlab.data import digits, digits_split

from repository import ROOT

Batches = Iterator[tuple[np.ndarray, ...]]


@cache
def images(scale: int = 1) -> SimpleNamespace:
    """The digits with ink as 1, each pixel `scale` times in both directions: training and held-out pictures and labels."""
    pixels, labels = digits()
    pixels = (pixels[:, None] / 16).astype("f4").repeat(scale, 2).repeat(scale, 3)
    training, held = digits_split()
    return SimpleNamespace(x=pixels[training], y=labels[training], held_x=pixels[held], held_y=labels[held])


def shuffled(*arrays: np.ndarray, batch: int = 64, seed: int = 0) -> Batches:
    """Batches of rows in an order by chance, a new one for each pass; what is left at the end of a pass is left out."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(arrays[0]))
        for start in range(0, len(order) - batch + 1, batch):
            yield tuple(a[order[start : start + batch]] for a in arrays)


def as_table(x):
    """A table of the digits: 60 pixels as numbers, four in the middle as categories of 17 grey levels."""
    rows = x.reshape(len(x), 64)
    middle = [27, 28, 35, 36]
    return np.delete(rows, middle, 1) - 0.3, (rows[:, middle] * 16).astype("i8")


def with_noise(x, seed):
    return (x + np.random.default_rng(seed).normal(0, 0.35, x.shape)).astype("f4")


def overlap(found, mask):
    """Intersection over union."""
    return float((found & mask).sum() / (found | mask).sum())


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


@cache
def neighbours(labelled: int = 3, k: int = 8):
    """Pictures as nodes, edges both ways to the `k` nearest of them, and so many labelled nodes of each digit."""
    pixels, labels = digits()
    x = (pixels.reshape(len(pixels), 64) / 16).astype("f4")
    square = (x * x).sum(1)
    distance = square[:, None] + square - 2 * x @ x.T
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argpartition(k, 1)[:, :k]
    edges = np.stack([nearest.reshape(-1), np.arange(len(x)).repeat(k)])
    edges = np.unique(np.concatenate([edges, edges[::-1]], 1), axis=1).astype("i8")
    known = np.concatenate([np.random.default_rng(0).permutation(np.flatnonzero(labels == digit))[:labelled] for digit in range(10)])
    others = np.setdiff1d(np.arange(len(x)), known)
    return SimpleNamespace(x=x, edges=edges, known=known, labels=labels, others=others)


@cache
def text():
    """The reference that ships with Python, its characters as numbers, the last tenth held out."""
    content = "".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    letters = sorted(set(content))
    codes = np.searchsorted(np.array(letters), np.array(list(content)))
    split = len(codes) * 9 // 10
    return SimpleNamespace(training=codes[:split], held=codes[split:], size=len(letters))


def bigram():
    """Nats a character on the held-out text, of a table of pairs of letters."""
    data = text()
    counts = np.ones((data.size, data.size))
    np.add.at(counts, (data.training[:-1], data.training[1:]), 1)
    chance = counts / counts.sum(1, keepdims=True)
    return float(-np.log(chance[data.held[:-1], data.held[1:]]).mean())


@cache
def topics(classes: int = 6, length: int = 32, vocabulary: int = 2000):
    """Passages of the longest topics as numbers of words, 0 for rare ones, and whose they are; of every fifth, pieces are held out."""
    chosen, seen = [], set()
    for _, content in sorted(pydoc_data.topics.topics.items(), key=lambda item: (-len(item[1]), item[0])):
        words = re.findall(r"[a-z_]+|[^\sa-z_]", content.lower())
        if (mark := " ".join(words[200:240])) not in seen and len(chosen) < classes:  # some are there under two names
            chosen.append(words)
        seen.add(mark)
    passages, held = [], []
    for label, words in enumerate(chosen):
        for number, start in enumerate(range(0, len(words) - length, 5 * length)):
            passage = words[start : start + 5 * length]
            if len(passage) < length:
                continue
            if number % 5 == 4:
                held += [(passage[i : i + length], label) for i in range(0, len(passage) - length + 1, length // 2)]
            else:
                passages.append((passage, label))
    counts = Counter(word for words, _ in passages for word in words)
    codes = {word: i + 1 for i, (word, _) in enumerate(counts.most_common(vocabulary - 1))}
    coded = [(np.array([codes.get(word, 0) for word in words]), label) for words, label in passages]
    held_x = np.array([[codes.get(word, 0) for word in words] for words, _ in held])
    return SimpleNamespace(passages=coded, held_x=held_x, held_y=np.array([label for _, label in held]), length=length, size=vocabulary)


def pieces(batch: int = 32) -> Batches:
    """Pieces of the passages, and their topics."""
    data, rng = topics(), np.random.default_rng(0)
    sizes = np.array([len(words) for words, _ in data.passages])
    while True:
        chosen = rng.choice(len(sizes), batch, p=sizes / sizes.sum())
        starts = rng.integers(0, sizes[chosen] - data.length + 1)
        rows = np.stack([data.passages[i][0][start : start + data.length] for i, start in zip(chosen, starts, strict=True)])
        yield rows, np.array([data.passages[i][1] for i in chosen])


def naive_bayes() -> float:
    """The accuracy on the pieces held out, of how often each word is in each topic."""
    data = topics()
    counts = np.ones((data.held_y.max() + 1, data.size))
    for words, label in data.passages:
        np.add.at(counts[label], words, 1)
    chance = np.log(counts / counts.sum(1, keepdims=True))[:, data.held_x].sum(2)
    return float((chance.argmax(0) == data.held_y).mean())


@cache
def sunspots(window: int = 24, horizon: int = 4):
    """Windows of the yearly numbers, in fifties, and the years after them; those after the first 245 years are held out."""
    rows = np.loadtxt(ROOT / "tests" / "data" / "sunspots.csv", delimiter=",", skiprows=1, usecols=1)
    values = (rows / 50).astype("f4")[:, None]
    count = len(values) - window - horizon + 1
    x = np.stack([values[i : i + window] for i in range(count)])
    y = np.stack([values[i + window : i + window + horizon] for i in range(count)])
    split = 245 - window - horizon
    held = slice(split + horizon, None)
    return SimpleNamespace(x=x[:split], y=y[:split], held_x=x[held], held_y=y[held], window=window, horizon=horizon)
