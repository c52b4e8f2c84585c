"""A small GPT: a transformer that predicts the next token, with the norm before each branch (Radford et al. 2019, GPT-2)."""

import math
from dataclasses import dataclass

from gradlab import Tensor, arange, nn
from gradlab.nn import functional as F
from gradlab.nn.modules.residual import add_embeddings, add_norm


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

    def attention(self, x: Tensor) -> Tensor:
        """Causal self-attention of all heads."""
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x: Tensor) -> Tensor:
        y, x = add_norm(self.ln2, x, F.dropout(self.attention(self.ln1(x)), self.dropout, self.training))
        y = self.out(F.gelu(self.fc(y), approximate="tanh"))
        return x + F.dropout(y, self.dropout, self.training)


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
