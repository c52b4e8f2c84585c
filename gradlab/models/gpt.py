"""A small GPT: a transformer that predicts the next token, with the norm before each branch (Radford et al. 2019, GPT-2)."""

import math
from dataclasses import dataclass

from gradlab import Tensor, arange, cat, nn, ones
from gradlab.nn import functional as F
from gradlab.nn.modules.residual import add_embeddings, add_norm

Past = tuple[Tensor, Tensor]  # keys and values of the tokens so far


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. The defaults are a character model of 0.8 million parameters that trains on a laptop."""

    vocab_size: int = 65
    block_size: int = 128  # the longest sequence
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ValueError(f"GPTConfig: n_embd={self.n_embd} is not divisible by n_head={self.n_head}")


class Block(nn.Module):
    """Attention to earlier tokens, then a network on each token, both added to the input: [batch, tokens, n_embd] to the same."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.n_embd
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.dropout = config.n_head, config.dropout

    def _heads(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, [batch, heads, tokens, width of one] each."""
        batch, tokens, width = x.shape
        return [part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)]

    def attention(self, x: Tensor) -> Tensor:
        """Causal self-attention of all heads."""
        q, k, v = self._heads(x)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:
        return self._after(x, self.attention(self.ln1(x)))

    def _after(self, x: Tensor, attention: Tensor) -> Tensor:
        """The rest of the block: the network on each token, and both added to the input."""
        y, x = add_norm(self.ln2, x, F.dropout(attention, self.dropout, self.training))
        y = self.out(F.gelu(self.fc(y), approximate="tanh"))
        return x + F.dropout(y, self.dropout, self.training)

    def continued(self, x: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """The same for tokens that follow others, whose keys and values are `past`; and those with the new ones."""
        q, k, v = self._heads(self.ln1(x))
        seen = None
        if past is not None:
            k, v = cat([past[0], k], 2), cat([past[1], v], 2)
            if q.shape[2] > 1:  # one token sees all
                seen = ones(q.shape[2], k.shape[2], device=x.device).tril(k.shape[2] - q.shape[2]).bool()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=past is None)
        return self._after(x, self.proj(y.transpose(1, 2).reshape(x.shape))), (k, v)


class GPT(nn.Module):
    """int64 tokens [batch, tokens] to logits [batch, tokens, vocab_size] for the token after each.

    >>> import gradlab as gl
    >>> net = gl.models.GPT(gl.models.GPTConfig(vocab_size=10, n_embd=32))
    >>> net(gl.tensor([[3, 1, 4], [1, 5, 9]])).shape
    (2, 3, 10)
    """

    def __init__(self, config: GPTConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GPTConfig()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.lnf = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.register_buffer("positions", arange(config.block_size), persistent=False)
        for name, p in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(p)
            elif p.ndim == 2:
                # What 2 * n_layer branches add to the stream keeps the size of one (GPT-2, section 2.3).
                branch = name.endswith(("proj.weight", "out.weight"))
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * config.n_layer) if branch else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.config.block_size:
            raise ValueError(f"GPT: {length} tokens, but block_size is {self.config.block_size}")
        x = add_embeddings(self.wte, tokens, self.wpe, self.positions[:length])
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.h:
            x = block(x)
        logits: Tensor = self.head(self.lnf(x))
        return logits

    def continued(self, tokens: Tensor, past: list[Past] | None = None) -> tuple[Tensor, list[Past]]:
        """Logits for tokens that follow others, and what the next ones go on with: the keys and values of all so far."""
        begin = 0 if past is None else past[0][0].shape[2]
        end = begin + tokens.shape[1]
        if end > self.config.block_size:
            raise ValueError(f"GPT.continued: {end} tokens, but block_size is {self.config.block_size}")
        x = self.wte(tokens) + self.wpe(self.positions[begin:end])
        found = []
        for i, block in enumerate(self.h):
            x, kept = block.continued(x, None if past is None else past[i])
            found.append(kept)
        return self.head(self.lnf(x)), found
