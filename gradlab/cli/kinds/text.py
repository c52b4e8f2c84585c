"""`gradlab train text [corpus.txt]`."""

from __future__ import annotations

import argparse
from typing import Any

from gradlab.cli.arguments import Parser, file_or_address, positive_integer, share, share_from_0
from gradlab.cli.failure import Failure

SUMMARY = "a text file (also .gz), or a folder of .txt files: learn to write on; without one the reference that comes with Python"
# For the help; what is taken is the task\'s `defaults`.
USUAL = {"epochs": 5, "batch": 16, "lr": 0.002}
REFERENCE = "pydoc_data.topics"  # as in gradlab/data/text/reading.py, which needs the engine


def configure(parser: Parser) -> None:
    parser.add_argument("file", nargs="?", help="a text file (also .gz), or a folder of .txt files (default: Python's own reference)")
    parser.add_argument("--model", choices=["gpt", "lstm", "gru"], help="a transformer, or a recurrent network (default: gpt)")
    parser.add_argument("--tokens", choices=["characters", "bpe"], help="what texts are cut into: bpe are byte pairs (default: characters)")
    parser.add_argument("--vocabulary", type=positive_integer, metavar="N", help="byte-pair tokens, at least 256 (default: 1024)")
    parser.add_argument("--context", type=positive_integer, metavar="N", help="tokens that are seen at once (default: 128)")
    parser.add_argument("--width", type=positive_integer, metavar="N", help="numbers for each token (default: 128; lstm, gru: 256)")
    parser.add_argument("--layers", type=positive_integer, metavar="N", help="(default: 4; lstm, gru: 2)")
    parser.add_argument("--dropout", type=share_from_0, metavar="SHARE", help="(default: 0.1 for short texts, otherwise none)")
    parser.add_argument("--validation", type=share, metavar="SHARE", help="of the text is held out (default: 0.1)")
    parser.add_argument("--contiguous", action="store_true", help="hold out the end of the text, not passages of it by chance")
    parser.add_argument("--encoding", metavar="NAME", help="of the files (default: UTF-8, or what a byte order mark says)")


def source(options: argparse.Namespace) -> str:
    if options.file is None:
        return REFERENCE
    return file_or_address(options.file)


def data(options: argparse.Namespace) -> dict[str, Any]:
    if options.vocabulary is not None and (options.tokens != "bpe" or options.vocabulary < 256):
        raise Failure("--vocabulary: the number of byte-pair tokens, of which 256 are bytes; it belongs to --tokens bpe and is 256 or more")
    names = ("model", "tokens", "vocabulary", "context", "width", "layers", "dropout", "encoding")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    given |= {"fraction": options.validation} if options.validation else {}
    return {**given, "seed": options.seed or 0, "contiguous": options.contiguous}
