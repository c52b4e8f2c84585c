"""Tokenizers: what turns a text into numbers and back; here the base class, and the one whose tokens are characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]
KINDS: dict[str, type[Tokenizer]] = {}  # by the name that states have


class Tokenizer:
    """Base class. size: how many tokens there are, 0 to size - 1. unknown: the token of what cannot be written otherwise, or None.

    characters: int64 (size,), how many characters each token stands for; over a whole text they add up to its length.
    """

    kind: ClassVar[str]
    size: int
    unknown: int | None = None
    characters: Tokens

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        KINDS[cls.kind] = cls

    @classmethod
    def of(cls, text: str, size: int = 1024) -> Self:
        """Learned from a text. size: the most tokens, where that can be chosen."""
        raise NotImplementedError

    def encode(self, text: str) -> Tokens:
        """The tokens of a text, int64 (n,)."""
        raise NotImplementedError

    def decode(self, tokens: Any) -> str:
        """The text of tokens; ValueError where one is not of the vocabulary."""
        raise NotImplementedError

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text of tokens as they come, piece by piece."""
        return (self.decode([token]) for token in tokens)

    def strangers(self, text: str) -> Counter[str]:
        """The characters of a text that have no token of theirs, and how often each is there."""
        return Counter()

    def state(self) -> dict[str, Any]:
        """For JSON; `tokenizer_from_state` is the inverse."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        raise NotImplementedError

    def checked(self, tokens: Any) -> Tokens:
        """Tokens as int64 (n,); ValueError where one is not of the vocabulary."""
        found = np.asarray(tokens, np.int64).reshape(-1)
        if found.size and (found.min() < 0 or found.max() >= self.size):
            wrong = found[(found < 0) | (found >= self.size)][0]
            raise ValueError(f"{type(self).__name__}.decode: {wrong} is no token; there are {self.size}, from 0")
        return found


def tokenizer_from_state(state: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer whose `state` this is. KeyError where it is none's."""
    return KINDS[state["kind"]].from_state(state)


class CharacterTokenizer(Tokenizer):
    """A token for each of some characters, in the order of their code points from 1; 0 stands for every other.

    `decode` is the inverse of `encode` for texts of those characters; others come back as U+FFFD.

    >>> tokenizer = gl.data.CharacterTokenizer.of("banana")
    >>> tokenizer.encode("nab?").tolist(), tokenizer.decode([3, 1, 2])
    ([3, 1, 2, 0], 'nab')
    """

    kind = "characters"
    unknown = 0

    def __init__(self, characters: str) -> None:
        self.codes = np.unique(_codes(characters))
        self.size = len(self.codes) + 1
        self.characters = np.ones(self.size, np.int64)
        self._written = np.concatenate([np.array([0xFFFD], "<u4"), self.codes])

    @classmethod
    def of(cls, text: str, size: int = 1024) -> Self:
        """Of the characters of a text; `size` decides nothing."""
        return cls("".join(set(text)))

    def encode(self, text: str) -> Tokens:
        codes = _codes(text)
        places = np.searchsorted(self.codes, codes)
        known = self._written[np.minimum(places + 1, self.size - 1)] == codes
        return np.where(known & (places + 1 < self.size), places + 1, 0).astype(np.int64)

    def decode(self, tokens: Any) -> str:
        return self._written[self.checked(tokens)].tobytes().decode("utf-32-le", "surrogatepass")

    def strangers(self, text: str) -> Counter[str]:
        known = set(self.decode(np.arange(1, self.size)))
        return Counter({character: count for character, count in Counter(text).items() if character not in known})

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": self.decode(np.arange(1, self.size))}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(state["characters"])


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
