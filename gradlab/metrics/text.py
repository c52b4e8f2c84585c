"""Metrics of text: perplexity of a language model, and BLEU of translations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlab.metrics.metric import Metric, Totals, host


class Perplexity(Totals):
    """e to the mean of -log p of the true tokens, from scores that need not be normalised.

    Predictions are (..., vocabulary), targets (...): the classes come last, as a language model gives them. Targets equal to
    `ignore_index` do not count.

    >>> from gradlab.metrics import Perplexity
    >>> round(Perplexity()(gl.zeros(2, 3, 10), gl.zeros(2, 3, dtype=gl.int64)), 5)
    10.0
    """

    higher_is_better = False

    def __init__(self, *, ignore_index: int | None = -100) -> None:
        self.ignore_index = ignore_index
        super().__init__()

    def update(self, prediction: Any, target: Any) -> Metric:
        scores, true = host(prediction, "Perplexity: prediction"), host(target, "Perplexity: target")
        if scores.shape[:-1] != true.shape:
            raise ValueError(f"Perplexity: needs scores (..., vocabulary) and targets (...), got {scores.shape} and {true.shape}")
        if (true != np.trunc(true)).any():
            raise ValueError(f"Perplexity: targets are tokens, which are whole numbers; got {true[true != np.trunc(true)].flat[0]}")
        scores, true = scores.reshape(-1, scores.shape[-1]), true.reshape(-1).astype(np.int64)
        if self.ignore_index is not None:
            scores, true = scores[true != self.ignore_index], true[true != self.ignore_index]
        if true.size and (true.min() < 0 or true.max() >= scores.shape[1]):
            wrong = true[(true < 0) | (true >= scores.shape[1])][0]
            raise ValueError(f"Perplexity: a target is {wrong}, where the vocabulary is of {scores.shape[1]}")
        scores = scores.astype(np.float64)
        scores -= scores.max(1, keepdims=True)
        loss = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(true)), true]
        self.add(loss=float(loss.sum()), count=len(true))
        return self

    def compute(self) -> float:
        if not self.totals.get("count"):
            raise self.nothing()
        mean = self.totals["loss"] / self.totals["count"]
        return math.exp(mean) if mean < 700 else math.inf


class BitsPerCharacter(Perplexity):
    """The mean of -log₂ p over the characters of a text, which models of different tokens can be compared by.

    As `Perplexity`; characters, int64 (vocabulary,), says how many characters each token stands for.

    >>> from gradlab.metrics import BitsPerCharacter
    >>> round(BitsPerCharacter([1, 1, 2, 2])(gl.zeros(1, 3, 4), gl.tensor([[0, 2, 3]])), 5)
    1.2
    """

    def __init__(self, characters: Any, *, ignore_index: int | None = -100) -> None:
        self.characters = np.asarray(characters, np.int64)
        super().__init__(ignore_index=ignore_index)

    def update(self, prediction: Any, target: Any) -> Metric:
        super().update(prediction, target)
        true = host(target, "BitsPerCharacter: target").reshape(-1).astype(np.int64)
        self.add(characters=int(self.characters[true[true != self.ignore_index]].sum()))
        return self

    def compute(self) -> float:
        if not self.totals.get("characters"):
            raise self.nothing()
        return float(self.totals["loss"] / (self.totals["characters"] * math.log(2)))


class BLEU(Totals):
    """Shared n-grams of translations and their references, of a whole corpus (Papineni and others, "BLEU: a method for automatic evaluation
    of machine translation", 2002).

    `update` takes a list of translations and a list with the references of each; a text is a list of tokens, or a string, whose words are
    told apart by spaces. n: the longest n-grams. smooth: 1 is added to the counts of n-grams longer than one word (Lin and Och, 2004).

    >>> from gradlab.metrics import BLEU
    >>> round(BLEU()(["the cat sat on the mat"], [["the cat sat on a mat"]]), 6)
    0.537285
    """

    higher_is_better = True

    def __init__(self, n: int = 4, *, smooth: bool = False) -> None:
        if n < 1:
            raise ValueError(f"BLEU: n is at least 1, not {n}")
        self.n, self.smooth = n, smooth
        super().__init__()

    def update(self, prediction: Sequence[Any], target: Sequence[Any]) -> Metric:
        if isinstance(prediction, str) or isinstance(target, str) or len(prediction) != len(target):
            raise ValueError("BLEU: needs a list of translations and a list, of the same length, of lists of references")
        hits, count, length, nearest = np.zeros(self.n), np.zeros(self.n), 0, 0
        for text, references in zip(prediction, target, strict=True):
            words = _words(text)
            others = [_words(r) for r in ([references] if isinstance(references, str) else references)]
            if not others:
                raise ValueError("BLEU: a translation has no reference")
            length += len(words)
            nearest += min((abs(len(o) - len(words)), len(o)) for o in others)[1]
            for size in range(1, self.n + 1):
                own, most = _grams(words, size), Counter[tuple[Any, ...]]()
                for other in others:
                    most |= _grams(other, size)
                hits[size - 1] += sum((own & most).values())
                count[size - 1] += max(len(words) - size + 1, 0)
        self.add(hits=hits, count=count, length=length, nearest=nearest)
        return self

    def compute(self) -> float:
        if not self.totals:
            raise self.nothing()
        more = np.array([0.0] + [1.0] * (self.n - 1)) if self.smooth else 0.0
        hits, count = self.totals["hits"] + more, self.totals["count"] + more
        if not hits.all():
            return 0.0
        short = min(1 - self.totals["nearest"] / self.totals["length"], 0.0)
        return math.exp(short + float(np.log(hits / count).mean()))


def _words(text: Any) -> list[Any]:
    return text.split() if isinstance(text, str) else list(text)


def _grams(words: list[Any], size: int) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(words[i:] for i in range(size)), strict=False))
