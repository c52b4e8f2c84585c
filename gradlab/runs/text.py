"""The task of a text: a language model of its tokens, what counting them reaches, texts that it writes, and how well it foresees others."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

import gradlab as gl
from gradlab import metrics, nn
from gradlab.data.text import REFERENCE, TextDataset, TextError, Tokenizer, Windows, read_text, tokenizer_from_state
from gradlab.data.text.dataset import NOT_MEASURED, listed, windows_of
from gradlab.data.text.reading import text_files
from gradlab.models.gpt import GPT, GPTConfig
from gradlab.models.language import RecurrentLanguageModel, generate
from gradlab.runs.interface import Interface
from gradlab.runs.ngrams import Counts
from gradlab.runs.task import Baselines, Task, literal, shuffled
from gradlab.runs.text_report import sections

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun

MODELS = ("gpt", "lstm", "gru")
WIDTHS = {"gpt": 128, "lstm": 256, "gru": 256}
LAYERS = {"gpt": 4, "lstm": 2, "gru": 2}
FEW = 200_000  # training tokens; of fewer, a model would soon know some by heart
AT_ONCE = 64  # windows that are measured together


class TextTask(Task):
    """What is known of a text's tokens, and of the model's sizes; with `dataset`, the text it is learned from.

    sizes: model ("gpt", "lstm" or "gru"), context, width, layers and dropout. encoding: of its files, where it was said.
    """

    kind = "text"
    score = "bits_per_character"
    greater = False
    defaults: Mapping[str, Any] = {"epochs": 5, "batch_size": 16, "learning_rate": 2e-3, "weight_decay": 0.1}

    def __init__(
        self, tokenizer: Tokenizer, sizes: Mapping[str, Any], encoding: str | None = None, dataset: TextDataset | None = None
    ) -> None:
        self.tokenizer, self.sizes, self.encoding, self.dataset = tokenizer, dict(sizes), encoding, dataset
        self.notes: list[str] = [] if dataset is None else dataset.notes
        self.goal = "the next character" if tokenizer.kind == "characters" else f"the next of {tokenizer.size} {tokenizer.kind} tokens"

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> TextTask:
        """From a text; settings: what TextDataset takes, model, width, layers, dropout. TextError where it cannot be learned from."""
        given = dict(settings)
        named: dict[str, Any] = {name: given.pop(name, None) for name in ("model", "width", "layers", "dropout")}
        kind = named["model"] or "gpt"
        if kind not in MODELS:
            raise ValueError(f"TextTask: the models of texts are {', '.join(MODELS)}, not {kind!r}")
        dataset = TextDataset(source, **given)
        few = sum(map(len, dataset.training_tokens)) < FEW
        sizes = {
            "model": kind, "context": dataset.context, "width": named["width"] or WIDTHS[kind], "layers": named["layers"] or LAYERS[kind],
            "dropout": named["dropout"] if named["dropout"] is not None else 0.1 if few else 0.0,
        }  # fmt: skip
        return cls(dataset.tokenizer, sizes, given.get("encoding"), dataset)

    def variants(self) -> Mapping[str, Sequence[Any]]:
        return {"width": (64, 128, 256), "dropout": (0.0, 0.1, 0.2)}

    @classmethod
    def located(cls, source: Any) -> str | None:
        return REFERENCE if source is None or (isinstance(source, str) and source == REFERENCE) else super().located(source)

    @classmethod
    def fingerprint(cls, source: str) -> str:
        return hashlib.sha256(read_text().text.encode()).hexdigest() if source == REFERENCE else super().fingerprint(source)

    @classmethod
    def files_of(cls, path: Path) -> Iterable[Path]:
        return text_files(path) if path.is_dir() else [path]

    def state(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer.state(), "sizes": self.sizes, "encoding": self.encoding}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> TextTask:
        sizes = state["sizes"]
        if sizes["model"] not in MODELS or not all(type(sizes[n]) is int and sizes[n] > 0 for n in ("context", "width", "layers")):
            raise ValueError(f"no model has the sizes {sizes}")
        return cls(tokenizer_from_state(state["tokenizer"]), sizes, state["encoding"])

    # ------------------------------------------------------------ learning

    def facts(self) -> str:
        data, sizes = self.learned(), self.sizes
        tokens, many = sum(map(len, data.training_tokens)), sum(map(len, data.parts[0]))
        parts = f"{many:,} characters to train on, {sum(map(len, data.parts[1])):,} held out"
        vocabulary = f"{tokens:,} tokens of {self.tokenizer.size:,}" if tokens != many else f"{self.tokenizer.size - 1} different ones"
        model = f"{sizes['model']}, {sizes['layers']} layers of {sizes['width']}, context {sizes['context']}"
        return f"{parts}; {vocabulary}; {model}"

    def model(self) -> nn.Module:
        sizes, vocabulary = self.sizes, self.tokenizer.size
        if sizes["model"] != "gpt":
            return RecurrentLanguageModel(vocabulary, sizes["width"], sizes["layers"], sizes["model"], sizes["dropout"])
        heads = next(n for n in range(max(1, sizes["width"] // 32), 0, -1) if sizes["width"] % n == 0)
        return GPT(GPTConfig(vocabulary, sizes["context"], sizes["layers"], heads, sizes["width"], sizes["dropout"]))

    def step(self, model: nn.Module, batch: Any) -> Any:
        inputs, targets = batch
        outputs = model(inputs)
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=NOT_MEASURED), outputs, targets

    def metrics(self) -> dict[str, metrics.Metric]:
        return {"bits_per_character": metrics.BitsPerCharacter(self.tokenizer.characters), "perplexity": metrics.Perplexity()}

    def loaders(self, batch_size: int, seed: int) -> tuple[Any, Any]:
        data = self.learned()
        # A last batch of another size would be one more program to compile, for a few windows.
        return shuffled(data.training, batch_size, seed, drop_last=True), gl.utils.data.DataLoader(data.validation, AT_ONCE)

    def learned(self) -> TextDataset:
        """The text that is learned from."""
        if self.dataset is None:
            raise ValueError("TextTask: only a task made of a text can be learned; this one was read back")
        return self.dataset

    def baselines(self, model: nn.Module) -> Baselines:
        """What tokens by their numbers alone, and after the token before them, are foreseen by: the same targets, the same measures."""
        data = self.learned()
        inputs, targets = data.validation.arrays(np.arange(len(data.validation)))
        there = targets != NOT_MEASURED
        before, tokens = inputs[there], targets[there]
        counts = Counts(data.training_tokens, self.tokenizer.size)
        return {"unigram": self.measured(counts.unigram(tokens), tokens), "bigram": self.measured(counts.bigram(before, tokens), tokens)}

    def measured(self, nats: Any, tokens: Any) -> dict[str, float]:
        """The metrics of -log p of tokens."""
        characters = max(int(self.tokenizer.characters[tokens].sum()), 1)
        return {"bits_per_character": float(nats.sum()) / characters / math.log(2), "perplexity": math.exp(min(float(nats.mean()), 700.0))}

    # ------------------------------------------------------------ using

    def windows(self, texts: Sequence[str]) -> Windows:
        """The windows in which texts are measured."""
        return windows_of(self.tokenizer, texts, self.sizes["context"])

    def surprise(self, model: nn.Module, windows: Windows) -> np.ndarray[Any, Any]:
        """-log p of the targets of windows, float32 (windows, context); NaN where they are not measured."""
        found, device = [np.zeros((0, windows.context), np.float32)], next(model.parameters()).device
        with gl.no_grad():
            for inputs, targets in gl.utils.data.DataLoader(windows, AT_ONCE):
                outputs = model(inputs.to(device)).flatten(0, 1)
                nats = nn.functional.cross_entropy(outputs, targets.flatten().to(device), reduction="none", ignore_index=NOT_MEASURED)
                found.append(np.where(targets.numpy() == NOT_MEASURED, np.nan, nats.float().cpu().numpy().reshape(targets.shape)))
        return np.concatenate(found)

    def evaluated(self, model: nn.Module, source: str) -> tuple[dict[str, float], list[str]]:
        corpus = read_text(source, encoding=self.encoding)
        strangers = self.tokenizer.strangers(corpus.text)
        return self.evaluate(model, corpus), corpus.notes + self._unmeasured(strangers)

    def evaluate(self, model: nn.Module, source: Any) -> dict[str, float]:
        """How well another text is foreseen: loss (nats for a token), bits for a character, perplexity; `not_measured`, the share of its
        characters that are unknown. TextError where none is known."""
        corpus = read_text(source, encoding=self.encoding)
        windows = self.windows([corpus.text])
        if not len(windows):
            raise TextError(f"{corpus.source}: has none of the characters that the run learned, or one alone: nothing can be measured")
        found = gl.train.evaluate(
            model, gl.utils.data.DataLoader(windows, AT_ONCE), self.step, metrics.MetricCollection(self.metrics()),
            next(model.parameters()).device,
        )  # fmt: skip
        unknown = sum(self.tokenizer.strangers(corpus.text).values()) / len(corpus.text)
        return {**found, "loss": math.log(found["perplexity"]), **({"not_measured": unknown} if unknown else {})}

    def predict(self, model: nn.Module, source: Any) -> dict[str, Any]:
        """How well each line is foreseen, by itself: columns text, characters, log_likelihood (natural), bits_per_character, perplexity.

        source: a path, whose lines these are, or a list of texts. Characters that are unknown are not measured and not counted.
        """
        texts = lines(read_text(source, encoding=self.encoding).text) if isinstance(source, (str, os.PathLike)) else list(source)
        lead = [token for token in self.tokenizer.encode("\n").tolist() if token != self.tokenizer.unknown]
        sequences = [np.concatenate([np.array(lead, np.int64), self.tokenizer.encode(text)]) for text in texts]
        windows = Windows(sequences, self.sizes["context"], None, self.tokenizer.unknown)
        nats = self.surprise(model, windows)
        _, targets = windows.arrays(np.arange(len(windows)))
        characters = np.where(targets == NOT_MEASURED, 0, self.tokenizer.characters[np.maximum(targets, 0)])
        columns = [np.nansum(nats, 1), (~np.isnan(nats)).sum(1), characters.sum(1)]
        total, count, length = (np.bincount(windows.owners, weights=column, minlength=len(texts)) for column in columns)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return {
                "text": np.array(texts, object), "characters": length.astype(np.int64), "log_likelihood": 0.0 - total,
                "bits_per_character": total / length / math.log(2), "perplexity": np.exp(total / count),
            }  # fmt: skip

    def predicted(self, model: nn.Module, sources: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        parts, notes, strangers = [], list[str](), Counter[str]()
        for source in sources:
            corpus = read_text(source, encoding=self.encoding)
            notes += corpus.notes
            strangers += self.tokenizer.strangers(corpus.text.replace("\n", ""))
            found = self.predict(model, lines(corpus.text))
            many = len(found["text"])
            place = {"file": np.array([source] * many, object)} if len(sources) > 1 else {}
            parts.append(place | {"line": np.arange(1, many + 1)} | found)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, notes + self._unmeasured(strangers)

    def _unmeasured(self, strangers: Counter[str]) -> list[str]:
        return [f"not in the training text, and not measured: {listed(strangers)}"] if strangers else []

    def begun(self, prompt: str) -> tuple[list[int], list[str]]:
        """The tokens from which the model goes on after a prompt, at least one, and what is to be said of them."""
        strangers = self.tokenizer.strangers(prompt)
        tokens = [token for token in self.tokenizer.encode(prompt).tolist() if token != self.tokenizer.unknown]
        if not tokens:
            tokens = self.tokenizer.encode("\n").tolist()
            tokens = [1] if tokens == [self.tokenizer.unknown] else tokens
        return tokens, [f"the training text has no {listed(strangers)}: the model does not see that of the prompt"] if strangers else []

    def sample(
        self, model: nn.Module, prompt: str = "", length: int = 500, *, temperature: float = 0.8, top_k: int | None = None, seed: int = 0
    ) -> Iterator[str]:
        """What the model writes after a prompt, piece by piece: `length` characters (see `models.language.generate`)."""
        never = [] if self.tokenizer.unknown is None else [self.tokenizer.unknown]
        tokens = generate(model, self.begun(prompt)[0], temperature=temperature, top_k=top_k, seed=seed, never=never)
        left = length
        for piece in self.tokenizer.stream(tokens):
            if left <= 0:
                break
            yield piece[:left]
            left -= len(piece)

    def interface(self, model: nn.Module) -> Interface:
        context = self.sizes["context"]
        batch: dict[int, str] = {0: "batch"}
        return Interface(
            {"tokens": gl.arange(2 * context).reshape(2, context) % self.tokenizer.size}, ["scores"],
            {
                "tokens": f"numbers of {self.tokenizer.kind} tokens, {context} at most; a shorter text is filled up behind it with any",
                "scores": "at each place a score for every token that may be next: softmax makes probabilities of them",
            },
            [{"tokens": {**batch, 1: "tokens"}}, {"tokens": batch}],
        )  # fmt: skip

    # ------------------------------------------------------------ the report

    def title(self, source: str) -> str:
        return f"A language model of {Path(source).name}"

    def sections(self, trained: TrainedRun) -> list[tuple[str, str]]:
        return sections(self, trained)

    def usage(self, folder: str) -> list[str]:
        return [
            f'gradlab sample {quote(folder)} --prompt "The " --length 500 --temperature 0.8\ngradlab evaluate {quote(folder)} other.txt\n'
            f"gradlab predict {quote(folder)} lines.txt --out lines.csv",
            f'import gradlab as gl\n\nrun = gl.load_run({literal(folder)})\nprint(run.sample("The ", length=500))\n'
            'run.evaluate("other.txt")["perplexity"]\nrun.task.tokenizer.encode("text")  # and run.model, an nn.Module: tokens to logits',
        ]


def lines(text: str) -> list[str]:
    """The lines of a text, without their ends."""
    return text.removesuffix("\n").split("\n")
