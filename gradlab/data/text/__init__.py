"""Texts as people keep them: read from files and folders, cut into tokens by a tokenizer, and given to a model window by window.

`reading` decodes files, `tokens` and `pairs` hold the tokenizers, and `dataset` splits a text and makes windows of it for a DataLoader.
"""

from __future__ import annotations

from gradlab.data.text.dataset import TextDataset, Windows
from gradlab.data.text.pairs import BytePairTokenizer
from gradlab.data.text.reading import REFERENCE, Corpus, TextError, read_text
from gradlab.data.text.tokens import CharacterTokenizer, Tokenizer, tokenizer_from_state

__all__ = [
    "REFERENCE", "BytePairTokenizer", "CharacterTokenizer", "Corpus", "TextDataset", "TextError", "Tokenizer", "Windows", "read_text",
    "tokenizer_from_state",
]  # fmt: skip
