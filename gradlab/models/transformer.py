"""A classifier of texts by a transformer's encoder: Vaswani and others, "Attention is all you need" (2017), section 3.1."""

from __future__ import annotations

from gradlab import Tensor, arange, nn


class TransformerClassifier(nn.Module):
    """int64 tokens [batch, tokens] to logits [batch, num_classes].

    Embeddings of the tokens and of their places, `num_layers` layers in which every token looks at every other, and a linear map of the
    mean over the tokens. Shorter texts are filled up with `padding_idx`, at which nobody looks and which no mean holds. ValueError where
    there are more tokens than `max_length`.

    >>> import gradlab as gl
    >>> net = gl.models.TransformerClassifier(vocab_size=100, num_classes=5, d_model=32, dim_feedforward=64)
    >>> net(gl.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])).shape
    (2, 5)
    """

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        d_model: int = 128,
        nhead: int = 4,
        num_layers: int = 2,
        dim_feedforward: int = 256,
        max_length: int = 256,
        padding_idx: int = 0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.max_length, self.padding_idx = max_length, padding_idx
        self.tokens = nn.Embedding(vocab_size, d_model, padding_idx=padding_idx)
        self.places = nn.Embedding(max_length, d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward, dropout, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(d_model, num_classes)
        self.register_buffer("positions", arange(max_length), persistent=False)
        for parameter in self.encoder.parameters():  # layers were copied: let each begin on its own
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.max_length:
            raise ValueError(f"TransformerClassifier: {length} tokens, but max_length is {self.max_length}")
        padding = tokens == self.padding_idx
        x = self.dropout(self.tokens(tokens) + self.places(self.positions[:length]))
        x = self.encoder(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(2).to(x.dtype)
        logits: Tensor = self.classifier((x * kept).sum(1) / kept.sum(1).clamp(min=1))
        return logits
