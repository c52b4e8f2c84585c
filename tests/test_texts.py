"""Texts as people keep them: files, folders, encodings and line ends; tokenizers that lose nothing; windows that meet each token once."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies

import gradlab as gl
from gradlab.data import BytePairTokenizer, CharacterTokenizer, Corpus, TextDataset, TextError, read_text
from gradlab.data.text import Windows, tokenizer_from_state
from gradlab.data.text.dataset import passages
from gradlab.data.text.tokens import KINDS

TEXT = "to be, or not to be:\nthat is the question\n" * 20
FUZZ = settings(database=None, deadline=None, max_examples=60)  # no folder of examples is left behind


# ---------------------------------------------------------------- reading

WRITTEN = {
    "plain": (b"one\ntwo\n", "one\ntwo\n", ""),
    "carriage returns and newlines": (b"one\r\ntwo\r\n", "one\ntwo\n", ""),
    "carriage returns": (b"one\rtwo\r", "one\ntwo\n", ""),
    "a byte order mark": (b"\xef\xbb\xbfone\n", "one\n", ""),
    "UTF-16, with a mark": ("one é\n".encode("utf-16"), "one é\n", ""),
    "accents": ("é – “ß”\n".encode(), "é – “ß”\n", ""),
    "another encoding": (b"one\ncaf\xe9 cr\xe8me\n", "one\ncaf\ufffd cr\ufffdme\n", "2 places are not utf-8, the first in line 2"),
    "replaced once before": ("one \ufffd\n".encode(), "one \ufffd\n", ""),
}


@pytest.mark.parametrize("hand", WRITTEN)
def test_the_same_text_in_many_hands(hand, tmp_path):
    content, text, note = WRITTEN[hand]
    (tmp_path / "t.txt").write_bytes(content)
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(content))
    for path in (tmp_path / "t.txt", str(tmp_path / "t.txt.gz")):
        found = read_text(path)
        assert found.text == text and found.source == str(path)
        assert note in "; ".join(found.notes) and bool(found.notes) == bool(note)


def test_an_encoding_that_is_said(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"caf\xe9")
    found = read_text(tmp_path / "t.txt", encoding="latin-1")
    assert found.text == "café" and not found.notes
    with pytest.raises(TextError, match="no encoding 'latin-99'"):
        read_text(tmp_path / "t.txt", encoding="latin-99")


def test_a_folder_is_its_texts_in_order(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    for name, text in {"b/2.txt": "two", "a.TXT": "one\n", "b/3.txt": "", ".git/x.txt": "no", "c.md": "no", ".h.txt": "no"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"four"))
    found = read_text(tmp_path)
    assert found.text == "one\ntwo\nfour\n"
    assert "4 files" in found.notes[0] and "3.txt: there is no text" in found.notes[1] and len(found.notes) == 2


def test_texts_from_memory():
    assert read_text(["a\r\nb", "c"]).text == "a\nb\nc\n"
    assert read_text(np.array(["a", "b"])).text == read_text(iter("ab")).text == "a\nb\n"
    corpus = Corpus("some text")
    assert read_text(corpus) is corpus
    assert len(read_text().text) > 300_000 and read_text("pydoc_data.topics").text == read_text().text


@pytest.mark.parametrize(("name", "content", "message"), [
    ("t.txt", b"", "t.txt: there is no text in it"),
    ("t.txt", b"\xef\xbb\xbf \n\r\n", "there is no text"),
    ("t.txt", b"\x89PNG\r\n\x1a\n\0\0\0", "a NUL in line 3"),
    ("t.txt", gzip.compress(TEXT.encode(), mtime=0)[:-9], "is compressed, and damaged"),
    ("t.txt", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff", "is compressed, and damaged"),
    ("missing.txt", None, "missing.txt: cannot be read"),
    ("t.md", b"words", "a folder without .txt or .txt.gz files"),
])  # fmt: skip
def test_what_is_no_text_is_said(name, content, message, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TextError, match=message) as caught:
        read_text(path if path.suffix == ".txt" else tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["two\nlines", "words " * 900])
def test_a_text_is_no_path(text):
    with pytest.raises(TextError, match=r"cannot be read .*; a text itself is given in a list: \[text\]") as caught:
        read_text(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("source", [5, b"bytes", {"text": "x"}, ["a", 3]])
def test_other_sources_are_refused(source):
    with pytest.raises(TextError, match="a path, a Corpus or a list of texts"):
        read_text(source)


# ---------------------------------------------------------------- tokenizers

LEARNED = {"characters": CharacterTokenizer.of(TEXT), "bpe": BytePairTokenizer.of(TEXT + "naïve ß – 🙂🙂🙂 ", 300)}


def test_every_kind_is_tried():
    assert set(KINDS) == set(LEARNED)


@pytest.mark.parametrize("kind", LEARNED)
def test_a_tokenizer_comes_back_from_json(kind):
    tokenizer = LEARNED[kind]
    again = tokenizer_from_state(json.loads(json.dumps(tokenizer.state())))
    assert type(again) is type(tokenizer) and again.size == tokenizer.size and again.state() == tokenizer.state()
    assert np.array_equal(again.encode(TEXT), tokenizer.encode(TEXT)) and np.array_equal(again.characters, tokenizer.characters)
    for token in (-1, tokenizer.size):
        with pytest.raises(ValueError, match="is no token"):
            tokenizer.decode([token])


@FUZZ
@given(strategies.text(strategies.sampled_from(sorted(set(TEXT)))), strategies.sampled_from(sorted(LEARNED)))
def test_nothing_is_lost(text, kind):
    tokenizer = LEARNED[kind]
    tokens = tokenizer.encode(text)
    assert tokens.dtype == np.int64 and tokens.ndim == 1
    assert tokenizer.decode(tokens) == "".join(tokenizer.stream(tokens.tolist())) == text
    assert tokenizer.characters[tokens].sum() == len(text) and not tokenizer.strangers(text)


@FUZZ
@given(strategies.text(strategies.characters(exclude_categories=())), strategies.integers(256, 300))
def test_byte_pairs_write_every_text(text, size):
    for tokenizer in (LEARNED["bpe"], BytePairTokenizer.of(text, size)):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text and tokenizer.characters[tokens].sum() == len(text)


@FUZZ
@given(strategies.text(strategies.characters(exclude_categories=())))
def test_characters_of_any_text(text):
    tokenizer = CharacterTokenizer.of(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text and tokenizer.size == len(set(text)) + 1
    known, other = LEARNED["characters"], LEARNED["characters"].encode(text)
    assert (other == 0).sum() == sum(known.strangers(text).values())
    assert known.strangers(text) == Counter(c for c in text if c not in TEXT)


def test_byte_pairs_join_the_commonest_first():
    """As in the algorithm's definition, done without shortcuts."""
    text = "low lower lowest newer newest wide wider widest " * 3
    tokenizer = BytePairTokenizer.of(text, 270)
    words = [list(word.encode()) for word in (w if i == 0 else " " + w for i, w in enumerate(text.split()))] + [[32]]
    for number, expected in enumerate(tokenizer.state()["merges"]):
        times = Counter(pair for word in words for pair in pairwise(word))
        most = max(times.values())
        assert tuple(expected) == min(pair for pair in times if times[pair] == most)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if tuple(word[i : i + 2]) == tuple(expected):
                    word[i : i + 2] = [256 + number]
                i += 1
    assert tokenizer.encode(text).tolist() == [token for word in words for token in word]


def test_byte_pairs_of_long_words_and_bad_sizes():
    tokenizer = BytePairTokenizer.of("a" * 20_000 + "字" * 20_000, 280)
    assert tokenizer.decode(tokenizer.encode("a" * 9999 + "字")) == "a" * 9999 + "字"
    assert BytePairTokenizer.of("abc", 5000).size == 256  # no pair is there twice
    with pytest.raises(ValueError, match="size=255 is too few"):
        BytePairTokenizer.of("abc", 255)
    with pytest.raises(ValueError, match="merge 0 joins 1 and 256"):
        BytePairTokenizer([(1, 256)])
    assert tokenizer.decode([0xE5, 0xAD]) == "\ufffd"  # half of a character


# ---------------------------------------------------------------- windows


@FUZZ
@given(strategies.lists(strategies.integers(0, 40), min_size=1, max_size=5), strategies.integers(1, 12), strategies.integers(1, 15))
def test_windows_of_any_lengths(lengths, context, stride):
    sequences = [np.arange(n) + 100 * i for i, n in enumerate(lengths)]
    whole, known = Windows(sequences, context), Windows(sequences, context, unknown=103)
    seen = [token for i in range(len(whole)) for token in whole[i][1].tolist() if token != -100]
    assert seen == [token for sequence in sequences for token in sequence[1:].tolist()]  # each but the first, once
    assert [t for i in range(len(known)) for t in known[i][1].tolist() if t != -100] == [t for t in seen if t != 103]
    assert all((known[i][1] != -100).any() for i in range(len(known)))
    strided = Windows(sequences, context, stride)
    pairs = [(inputs.tolist(), targets.tolist()) for inputs, targets in map(strided.__getitem__, range(len(strided)))]
    assert all(targets == [t + 1 for t in inputs] and len(inputs) == context for inputs, targets in pairs)
    if stride <= context:
        assert {t for _, targets in pairs for t in targets} == {t for s in sequences if len(s) > context for t in s[1:].tolist()}


@FUZZ
@given(strategies.integers(4, 5000), strategies.floats(0.01, 0.9), strategies.integers(1, 200), strategies.integers(0, 9))
@pytest.mark.parametrize("contiguous", [False, True])
def test_passages_are_the_whole_text(contiguous, length, fraction, context, seed):
    found = passages(length, fraction, context, seed, contiguous)
    assert found[0][0] == 0 and found[-1][1] == length and all(a[1] == b[0] for a, b in pairwise(found))
    held_out = sum(high - low for low, high, held in found if held)
    assert 0 < held_out < length and all(high > low for low, high, _ in found)
    assert held_out <= max(2, round(fraction * length))
    assert found == passages(length, fraction, context, seed, contiguous)


def test_a_dataset_of_a_text():
    dataset = TextDataset([TEXT], context=16, fraction=0.2)
    inputs, targets = next(iter(gl.utils.data.DataLoader(dataset.training, 8, shuffle=True)))
    assert inputs.shape == targets.shape == (8, 16) and inputs.dtype == gl.int64
    assert gl.equal(inputs[:, 1:], targets[:, :-1]) and len(dataset) == len(dataset.training)
    assert all(gl.equal(a, b) for a, b in zip(dataset[0], dataset.training[0], strict=True))
    joined = Counter("".join(dataset.parts[0])) + Counter("".join(dataset.parts[1]))
    assert joined == Counter(dataset.corpus.text) and len("".join(dataset.parts[1])) == pytest.approx(0.2 * len(TEXT), abs=2)
    end = TextDataset([TEXT], context=16, fraction=0.2, contiguous=True)
    assert TEXT.startswith(end.parts[0][0]) and TEXT.endswith(end.parts[1][0]) and len(end.parts[1]) == 1
    other = TextDataset([TEXT], context=16, fraction=0.2, seed=5)
    assert other.parts != dataset.parts and TextDataset([TEXT], context=16, fraction=0.2).parts == dataset.parts
    assert TextDataset([TEXT], tokens=dataset.tokenizer, context=16).tokenizer is dataset.tokenizer
    with pytest.raises(IndexError, match="out of range"):
        dataset[len(dataset)]


def test_the_tokens_are_of_the_training_part_alone():
    text = "abc " * 300 + "xyzé"
    dataset = TextDataset([text], context=8, contiguous=True, fraction=0.02)
    assert any("'é' (1)" in note and "not measured" in note for note in dataset.notes)
    assert "x" not in dataset.tokenizer.state()["characters"]
    measured = [t for i in range(len(dataset.validation)) for t in dataset.validation[i][1].tolist() if t != -100]
    assert 0 not in measured and len(measured) == len(dataset.parts[1][0]) - 1 - len("xyzé\n")
    pairs = TextDataset([text], context=8, contiguous=True, fraction=0.02, tokens="bpe", vocabulary=300)
    assert not any("not measured" in note for note in pairs.notes) and any("byte-pair tokens" in note for note in pairs.notes)


def test_short_texts():
    assert len(TextDataset(["abcd" * 10], context=16).validation) == 1
    for text, message in {
        "abcdefgh" * 4: r"the texts: is too short for a context of 64 tokens and the next one: of its 33 characters 30 tokens in a row "
                        r"are to be trained on; give a longer text, or a smaller context \(--context 15, context=\)",
        "ab": "its 3 characters",
        "a" * 301 + "b" * 32: "none of the 33 characters that are held out",
    }.items():  # fmt: skip
        with pytest.raises(TextError, match=message) as caught:
            TextDataset([text], context=64, contiguous=True)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("keywords", "message"), [
    ({"context": 0}, "context=0"), ({"fraction": 1.0}, "fraction=1.0"), ({"stride": 0}, "stride=0"), ({"tokens": "words"}, "not 'words'"),
])  # fmt: skip
def test_settings_are_checked(keywords, message):
    with pytest.raises(ValueError, match=message):
        TextDataset([TEXT], **keywords)
