"""A text as a dataset for a DataLoader: split into training and validation passages, and cut into windows of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

import gradlab as gl
from gradlab.data.text.pairs import BytePairTokenizer
from gradlab.data.text.reading import Corpus, TextError, read_text
from gradlab.data.text.tokens import CharacterTokenizer, Tokenizer, Tokens
from gradlab.utils.data import Dataset

TOKENIZERS: dict[str, type[Tokenizer]] = {"characters": CharacterTokenizer, "bpe": BytePairTokenizer}
NOT_MEASURED = -100  # a target that does not count, as `cross_entropy` has it
PASSAGES = 16  # that are held out, of a text that is long enough
EPOCH = 2048  # windows that an epoch has at least, where the text is long enough: those of short texts overlap


class Windows(Dataset[tuple[Any, Any]]):
    """Windows of token sequences as (inputs, targets), int64 (context,) each: the targets are the tokens that follow the inputs.

    stride: tokens from one window to the next; the last of a sequence ends with it, and a sequence that is too short has none. None: one
    after another, so that each token but a sequence's first is a target once; what is beyond a sequence's end is not measured (-100).
    unknown: a token that is not measured either.
    """

    def __init__(self, sequences: Sequence[Tokens], context: int, stride: int | None = None, unknown: int | None = None) -> None:
        self.context, self.unknown = context, unknown
        lengths = [len(sequence) for sequence in sequences]
        ends = np.cumsum(lengths, dtype=np.int64)
        starts: list[Any] = []
        for length, end in zip(lengths, ends.tolist(), strict=True):
            if stride is None:
                starts.append(end - length + np.arange(0, length - 1, context))
            elif length > context:
                starts.append(end - length + np.append(np.arange(0, length - context - 1, stride), length - context - 1))
        self.tokens = np.concatenate([*sequences, np.zeros(1, np.int64)]).astype(np.int32)
        self.starts = np.concatenate([*starts, np.zeros(0, np.int64)]).astype(np.int64)
        self.owners = np.searchsorted(ends, self.starts, side="right")  # the sequence of each window
        self.ends = ends[self.owners]
        if unknown is not None:  # a window with nothing to measure has no mean
            marks = np.concatenate([[0], np.cumsum(self.tokens[:-1] != unknown)])
            known = marks[np.minimum(self.starts + context + 1, self.ends)] > marks[self.starts + 1]
            self.starts, self.owners, self.ends = self.starts[known], self.owners[known], self.ends[known]

    def __len__(self) -> int:
        return len(self.starts)

    def arrays(self, index: Any) -> tuple[Tokens, Tokens]:
        """Inputs and targets, int64 (n, context) each, of windows by their numbers (n,)."""
        places = self.starts[index][:, None] + np.arange(self.context + 1)
        tokens = self.tokens[np.minimum(places, len(self.tokens) - 1)].astype(np.int64)
        targets = np.where(places[:, 1:] < self.ends[index][:, None], tokens[:, 1:], NOT_MEASURED)
        if self.unknown is not None:
            targets[targets == self.unknown] = NOT_MEASURED
        return tokens[:, :-1], targets

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} windows")
        inputs, targets = self.arrays(np.array([index]))
        return gl.from_numpy(inputs[0]), gl.from_numpy(targets[0])


def passages(length: int, fraction: float, context: int, seed: int, contiguous: bool) -> list[tuple[int, int, bool]]:
    """Where a text is cut: (begin, end, whether it is held out), in its order.

    The end is held out, or up to 16 passages at places that the seed decides, of several windows each where the text is long enough.
    """
    held_out = min(max(round(fraction * length), 2), length - 1)
    if contiguous:
        return [(0, length - held_out, False), (length - held_out, length, True)]
    many = min(max(held_out // (8 * (context + 1)), 1), PASSAGES)
    size = held_out // many
    chosen = np.zeros(length // size, bool)
    chosen[np.random.default_rng(seed).permutation(len(chosen))[:many]] = True
    edges = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), len(chosen)]
    found = [(low * size, high * size, bool(chosen[low])) for low, high in pairwise(edges)]
    low, _, last = found[-1]
    if last and len(chosen) * size < length:
        return [*found, (len(chosen) * size, length, False)]
    return [*found[:-1], (low, length, last)]


class TextDataset(Dataset[tuple[Any, Any]]):
    """Windows of a text as (inputs, targets), int64 (context,) each: the targets are the tokens that follow the inputs.

    source: a file, a folder, or texts (see `read_text`); None is the reference that comes with Python. context: tokens that a model sees.
    tokens: "characters", "bpe" (byte pairs, learned from the training part; vocabulary: how many), or a Tokenizer. fraction: of the text is
    held out, in passages that `seed` decides or, contiguous, as its end. stride: tokens from one training window to the next; None is the
    context, or less where that would make few windows. `training` and `validation` are the two parts; of the latter each token is a target
    once, but for characters that are not in the training part, which are not measured. The dataset itself is the training part.

    `notes` says what was found in the text. TextError where it is too short.

    >>> dataset = gl.data.TextDataset(["to be or not to be, that is the question"] * 9, context=8)
    >>> inputs, targets = dataset.training[0]
    >>> dataset.tokenizer.decode(inputs), dataset.tokenizer.decode(targets)
    ('to be or', 'o be or ')
    """

    def __init__(
        self, source: Any = None, *, context: int = 128, tokens: Literal["characters", "bpe"] | Tokenizer = "characters",
        vocabulary: int = 1024, fraction: float = 0.1, seed: int = 0, contiguous: bool = False, stride: int | None = None,
        encoding: str | None = None,
    ) -> None:  # fmt: skip
        if context < 1 or not 0 < fraction < 1 or (stride is not None and stride < 1):
            given = f"context={context}, fraction={fraction}, stride={stride}"
            raise ValueError(f"TextDataset: context and stride are at least 1, and fraction between 0 and 1; got {given}")
        if isinstance(tokens, str) and tokens not in TOKENIZERS:
            raise ValueError(f"TextDataset: tokens are {' or '.join(TOKENIZERS)}, or a Tokenizer, not {tokens!r}")
        self.corpus: Corpus = read_text(source, encoding=encoding)
        self.notes, self.context, self.seed = list(self.corpus.notes), context, seed
        text = self.corpus.text
        if len(text) < 4:
            raise self._too_short(len(text), len(text))
        for whole in dict.fromkeys((contiguous, True)):  # what passages would cut to pieces may be long enough in one
            cuts = passages(len(text), fraction, context, seed, whole)
            self.parts = [[text[low:high] for low, high, held_out in cuts if held_out is wanted] for wanted in (False, True)]
            self.tokenizer = TOKENIZERS[tokens].of("".join(self.parts[0]), vocabulary) if isinstance(tokens, str) else tokens
            sequences = [self.tokenizer.encode(part) for part in self.parts[0]]
            if (longest := max(map(len, sequences))) > context:
                break
        else:
            raise self._too_short(len(text), longest)
        self.training_tokens = sequences
        stride = stride or max(1, min(context, sum(map(len, sequences)) // EPOCH))
        self.training = Windows(sequences, context, stride)
        self.validation = windows_of(self.tokenizer, self.parts[1], context)
        if not len(self.validation):
            many = f"none of the {sum(map(len, self.parts[1])):,} characters that are held out is in the training part"
            away = "give a longer text, or hold out another share (--validation, fraction=)"
            raise TextError(f"{self.corpus.source}: {many}, so nothing can be measured; {away}")
        strangers = sum((self.tokenizer.strangers(part) for part in self.parts[1]), Counter[str]())
        if strangers:
            self.notes.append(f"not in the training part, and not measured in the other: {listed(strangers)}")
        if isinstance(tokens, str) and tokens == "bpe" and self.tokenizer.size < vocabulary:
            self.notes.append(f"there are {self.tokenizer.size} byte-pair tokens, not {vocabulary}: no other pair is there twice")

    def _too_short(self, characters: int, longest: int) -> TextError:
        away = "give a longer text" + (f", or a smaller context (--context {longest // 2}, context=)" if longest > 3 else "")
        what = f"of its {characters:,} characters {longest:,} tokens in a row are to be trained on"
        return TextError(f"{self.corpus.source}: is too short for a context of {self.context} tokens and the next one: {what}; {away}")

    def __len__(self) -> int:
        return len(self.training)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.training[index]


def windows_of(tokenizer: Tokenizer, texts: Sequence[str], context: int) -> Windows:
    """The windows in which texts are measured: each token once, but for the first of each text and those without a name."""
    return Windows([tokenizer.encode(text) for text in texts], context, None, tokenizer.unknown)


def listed(strangers: Counter[str], most: int = 8) -> str:
    """Characters and how often they are there, the commonest first, for a message."""
    shown = ", ".join(f"{character!r} ({count})" for character, count in strangers.most_common(most))
    return shown + (f" and {len(strangers) - most} others" if len(strangers) > most else "")
