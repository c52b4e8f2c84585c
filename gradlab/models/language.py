"""Recurrent language models, and text that is written by any language model, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

import gradlab as gl
from gradlab import Tensor, nn


class RecurrentLanguageModel(nn.Module):
    """int64 tokens [batch, tokens] to logits [batch, tokens, vocab_size] for the token after each, by an LSTM or a GRU over embeddings.

    After Mikolov and others, "Recurrent neural network based language model" (2010); the LSTM is of Hochreiter and Schmidhuber, "Long
    short-term memory" (1997), with the forget gate of Gers and others (2000), whose bias begins with 1 (Jozefowicz and others, 2015); the
    GRU of Cho and others, "Learning phrase representations using RNN encoder-decoder for statistical machine translation" (2014). Dropout
    is between layers and not over time (Zaremba and others, "Recurrent neural network regularization", 2014).

    >>> model = gl.models.RecurrentLanguageModel(vocab_size=50, width=16)
    >>> model(gl.zeros(2, 7, dtype=gl.int64)).shape
    (2, 7, 50)
    """

    def __init__(
        self, vocab_size: int, width: int = 256, layers: int = 2, kind: Literal["lstm", "gru"] = "lstm", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if kind not in ("lstm", "gru"):
            raise ValueError(f'RecurrentLanguageModel: kind is "lstm" or "gru", not {kind!r}')
        self.embedding, self.dropout = nn.Embedding(vocab_size, width), nn.Dropout(dropout)
        recurrent: Any = nn.LSTM if kind == "lstm" else nn.GRU
        self.recurrent = recurrent(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = nn.Linear(width, vocab_size)
        nn.init.normal_(self.embedding.weight, 0.0, 0.1)
        if kind == "lstm":
            with gl.no_grad():
                for name, bias in self.recurrent.named_parameters():
                    if name.startswith("bias_ih"):
                        bias[width : 2 * width] += 1.0  # the gates are input, forget, cell and output

    def forward(self, tokens: Tensor) -> Tensor:
        return self.continued(tokens)[0]

    def continued(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits, and the state after the tokens, with which the next ones go on."""
        found, state = self.recurrent(self.dropout(self.embedding(tokens)), state)
        return self.head(self.dropout(found)), state


def generate(
    model: Any, tokens: Sequence[int], *, temperature: float = 1.0, top_k: int | None = None, seed: int = 0, never: Sequence[int] = ()
) -> Iterator[int]:
    """Tokens that a language model writes after others, one by one without an end.

    model: has `continued`, as GPT and RecurrentLanguageModel, and so looks at each token once. tokens: at least one, to begin with.
    temperature: what the logits are divided by; 0 takes the likeliest. top_k: only so many of the likeliest are drawn from. never: tokens
    that are not drawn. A seed gives the same tokens again. A GPT whose context is full begins anew with the last half of it.

    >>> model = gl.models.RecurrentLanguageModel(5, width=8, layers=1).eval()
    >>> [next(gl.models.generate(model, [1, 2], temperature=0, never=[0, 1, 3, 4])) for _ in range(3)]
    [2, 2, 2]
    """
    if not temperature >= 0 or (top_k is not None and top_k < 1) or not len(tokens):
        given = f"temperature={temperature}, top_k={top_k}, {len(tokens)} tokens"
        raise ValueError(f"generate: temperature is at least 0, top_k at least 1, and there is a token to begin with; got {given}")
    return _generated(model, list(tokens), temperature, top_k, np.random.Generator(np.random.Philox(seed)), list(never))


def _generated(
    model: Any, written: list[int], temperature: float, top_k: int | None, random: np.random.Generator, never: list[int]
) -> Iterator[int]:
    config, device = getattr(model, "config", None), next(model.parameters()).device
    limit = None if config is None else int(config.block_size)
    new, state, seen = written if limit is None else written[-limit:], None, 0
    while True:
        if limit is not None and seen + len(new) > limit:
            new, state, seen = written[-max(1, limit // 2) :], None, 0
        with gl.no_grad():
            logits, state = model.continued(gl.tensor([new], device=device), state)
        seen += len(new)
        token = _drawn(logits[0, -1].float().cpu().numpy().astype(np.float64), temperature, top_k, random, never)
        written.append(token)
        if limit is not None:
            del written[:-limit]
        new = [token]
        yield token


def _drawn(scores: Any, temperature: float, top_k: int | None, random: np.random.Generator, never: list[int]) -> int:
    scores[never] = -np.inf
    if temperature == 0:
        return int(scores.argmax())
    if top_k is not None and top_k < len(scores):
        scores[scores < np.partition(scores, -top_k)[-top_k]] = -np.inf
    chances = np.exp((scores - scores.max()) / temperature)
    sums = np.cumsum(chances)
    return int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
