"""What counting alone reaches of a text: how probable the next token is by how often it is there, and by the token before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Counts:
    """Of tokens and of pairs of them in training sequences, over a vocabulary of `size`.

    A token's probability alone is (count + 1) / (all + size). After another it is Witten and Bell's mean of the pair's share and of the
    former ("The zero-frequency problem", 1991), weighed by how often the other was there and how many different tokens have followed it.
    """

    def __init__(self, sequences: Sequence[NDArray[np.int64]], size: int) -> None:
        self.size = size
        self.counts = sum((np.bincount(tokens, minlength=size) for tokens in sequences), np.zeros(size, np.int64))
        codes = [tokens[:-1] * size + tokens[1:] for tokens in sequences if len(tokens) > 1]
        self.pairs, self.times = np.unique(np.concatenate([*codes, np.zeros(0, np.int64)]), return_counts=True)
        self.followed = np.bincount(self.pairs // size, weights=self.times, minlength=size)
        self.followers = np.bincount(self.pairs // size, minlength=size)

    def unigram(self, tokens: Any) -> NDArray[np.float64]:
        """-log p of tokens."""
        return -np.log((self.counts[tokens] + 1) / (self.counts.sum() + self.size))

    def bigram(self, before: Any, tokens: Any) -> NDArray[np.float64]:
        """-log p of tokens after those before them."""
        codes = before * self.size + tokens
        places = np.minimum(np.searchsorted(self.pairs, codes), max(len(self.pairs) - 1, 0))
        times = np.where(self.pairs[places] == codes, self.times[places], 0) if len(self.pairs) else np.zeros(len(codes))
        alone, others = np.exp(-self.unigram(tokens)), self.followers[before]
        total = self.followed[before] + others
        return -np.log(np.where(total > 0, (times + others * alone) / np.maximum(total, 1), alone))
