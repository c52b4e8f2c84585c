"""Byte-pair encoding: tokens that are learned from a text, from its bytes up.

Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units" (2016); over bytes, and within words and runs of
spaces or signs, as of Radford and others (2019).
"""

from __future__ import annotations

import codecs
import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

from gradlab.data.text.tokens import Tokenizer, Tokens

BYTES = 256
LONGEST = 24  # characters of a word; what is longer is several
KEPT = 1 << 17  # words whose tokens are remembered
# A word or a run of signs, each with the space before it, or a run of spaces without the last, which belongs to what follows.
WORDS = re.compile(rf" ?\w{{1,{LONGEST}}}| ?[^\s\w]{{1,{LONGEST}}}|\s{{1,{LONGEST}}}(?!\S)|\s{{1,{LONGEST}}}")

Pair = tuple[int, int]


class BytePairTokenizer(Tokenizer):
    """The 256 bytes of UTF-8, and a token for each of some pairs of tokens: those that, one after another, were the commonest of a text.

    Every text can be written, so `decode` is the inverse of `encode` for all. merges: the pairs, of which number i is token 256 + i.

    >>> tokenizer = gl.data.BytePairTokenizer.of("low lower lowest " * 9, size=260)
    >>> [tokenizer.decode([token]) for token in tokenizer.encode("lower slow")]
    ['low', 'e', 'r', ' ', 's', 'low']
    """

    kind = "bpe"

    def __init__(self, merges: Sequence[Sequence[int]]) -> None:
        self.bytes = [bytes([value]) for value in range(BYTES)]
        self.ranks: dict[Pair, int] = {}
        for first, second in merges:
            if not (0 <= first < len(self.bytes) and 0 <= second < len(self.bytes)):
                number = len(self.bytes) - BYTES
                raise ValueError(f"BytePairTokenizer: merge {number} joins {first} and {second}, which are no tokens before it")
            self.ranks[first, second] = len(self.bytes)
            self.bytes.append(self.bytes[first] + self.bytes[second])
        self.size = len(self.bytes)
        # A character counts where it begins: UTF-8's other bytes are 10xxxxxx.
        self.characters = np.array([sum(byte & 0xC0 != 0x80 for byte in token) for token in self.bytes], np.int64)
        self._known: dict[str, list[int]] = {}

    @classmethod
    def of(cls, text: str, size: int = 1024) -> Self:
        """Learned from a text. size: how many tokens at most; there are fewer where no pair is left that is there twice."""
        if size < BYTES:
            raise ValueError(f"BytePairTokenizer.of: the {BYTES} bytes are tokens already, so size={size} is too few")
        return cls(_learned(Counter(match.group() for match in WORDS.finditer(text)), size - BYTES))

    def encode(self, text: str) -> Tokens:
        known, found = self._known, []
        for match in WORDS.finditer(text):
            word = match.group()
            tokens = known.get(word)
            if tokens is None:
                if len(known) >= KEPT:
                    known.clear()
                tokens = known[word] = self._word(word)
            found += tokens
        return np.array(found, np.int64)

    def _word(self, word: str) -> list[int]:
        """Pairs are joined in the order in which they were learned."""
        tokens, ranks = list(_utf8(word)), self.ranks
        while len(tokens) > 1:
            joined = min(ranks.get(pair, self.size) for pair in pairwise(tokens))
            if joined == self.size:
                break
            tokens = _merged(tokens, next(pair for pair in pairwise(tokens) if ranks.get(pair) == joined), joined)
        return tokens

    def decode(self, tokens: Any) -> str:
        """The text; U+FFFD for bytes that are no UTF-8, as half of a character."""
        content = b"".join([self.bytes[token] for token in self.checked(tokens).tolist()])
        try:
            return content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return content.decode("utf-8", "replace")

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            yield decoder.decode(self.bytes[token])
        yield decoder.decode(b"", final=True)

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "merges": [list(pair) for pair in self.ranks]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(state["merges"])


def _utf8(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")


def _merged(tokens: list[int], pair: Pair, joined: int) -> list[int]:
    """Tokens with every occurrence of a pair, from the left, as one."""
    found, i, last = [], 0, len(tokens) - 1
    while i <= last:
        if i < last and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            found.append(joined)
            i += 2
        else:
            found.append(tokens[i])
            i += 1
    return found


def _learned(words: Counter[str], most: int) -> list[Pair]:
    """The commonest pair again and again; of several, that of the smallest tokens. Only words that hold it are looked at again."""
    spelled = [list(_utf8(word)) for word in words]
    counts, times, places = list(words.values()), Counter[Pair](), defaultdict[Pair, set[int]](set)
    for i, tokens in enumerate(spelled):
        for pair in pairwise(tokens):
            times[pair] += counts[i]
            places[pair].add(i)
    queue, merges = [(-count, pair) for pair, count in times.items()], list[Pair]()
    heapq.heapify(queue)
    while queue and len(merges) < most:
        count, pair = heapq.heappop(queue)
        if -count != times[pair]:  # it has become rarer since it was put here
            if times[pair] > 0:
                heapq.heappush(queue, (-times[pair], pair))
            continue
        if -count < 2:
            break
        joined, changed = BYTES + len(merges), Counter[Pair]()
        merges.append(pair)
        for i in places.pop(pair):
            old = spelled[i]
            spelled[i] = new = _merged(old, pair, joined)
            for gone in pairwise(old):
                changed[gone] -= counts[i]
            for come in pairwise(new):
                changed[come] += counts[i]
                places[come].add(i)
        for other, difference in changed.items():
            times[other] += difference
            if difference > 0:
                heapq.heappush(queue, (-times[other], other))
    return merges
