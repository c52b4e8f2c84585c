"""The task of images: folders of classes, or the digits that come with gradlab; their networks, and what simpler models reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

import gradlab as gl
from gradlab import Tensor, metrics, nn
from gradlab.data import ImageError, ImageFolder, image_folders, read_image
from gradlab.data.downloads import KNOWN, KnownImages, is_known
from gradlab.data.images.folder import fitted, hidden, named_as_image
from gradlab.data.images.reading import image_array
from gradlab.data.tables import split_rows
from gradlab.data.tables.dataset import alone
from gradlab.nn import functional as F
from gradlab.runs import html
from gradlab.runs.classes import class_weights, commonest, linear_classifier
from gradlab.runs.images_networks import NETWORKS, Standardize
from gradlab.runs.interface import Interface
from gradlab.runs.task import Baselines, Task, literal, shuffled

if TYPE_CHECKING:
    from gradlab.runs.folder import TrainedRun

SMALLEST_SIDE = 8
LARGEST_SIDE = 64  # of images, unless more is asked for
LINEAR_SIDE = 16  # of the images that the linear model sees
SAMPLES = 90_000  # that a run sees unless it is told its epochs
WORST = 16  # images that the report shows
AUGMENTATIONS = ("crop", "flip", "jitter")


class ImagesTask(Task):
    """Images of one size and their classes; with `images` and `labels`, what is learned: uint8 (n, height, width, channels), int64 (n,).

    A model takes float32 (n, channels, height, width) from 0 to 1.
    """

    kind = "images"
    goal = "the class of an image"
    greater = True
    networks: ClassVar = NETWORKS

    def __init__(
        self, classes: Sequence[str], size: tuple[int, int], channels: int, network: str, *, fit: str = "crop",
        mean: Sequence[float] | None = None, deviation: Sequence[float] | None = None, augment: Sequence[str] = (),
        weights: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        self.classes, self.size, self.channels, self.network, self.fit = list(classes), size, channels, network, fit
        self.mean, self.deviation, self.augment, self.weights = mean, deviation, list(augment), weights
        self.score = "accuracy" if weights is None else "balanced_accuracy"
        self.images: NDArray[np.uint8] | None = None
        self.files: list[str] = []

    @classmethod
    def of(cls, source: Any, settings: Mapping[str, Any]) -> Self:
        """From a folder as `gl.data.image_folders` reads it.

        settings: model (a name of NETWORKS), size (of a side, or (height, width)), fit ("crop", "stretch"), channels, augment (of
        AUGMENTATIONS), fraction and seed of the split, where the folder has none of its own. Or source is a name in
        `gradlab.data.downloads.KNOWN` ("mnist", …), and data_dir, mirror and check in the settings are as of `gl.data.MNIST`.
        """
        training, validation = _parts(source, settings)
        size = _size(training, settings.get("size"))
        parts = [folder.arrays(size, settings.get("fit", "crop")) for folder in (training, validation) if folder is not None]
        images, labels = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        if settings.get("channels") == 1 and images.shape[-1] == 3:
            images = gl.transforms.functional.rgb_to_grayscale(images)
        rows: tuple[NDArray[Any], NDArray[Any]]
        if validation is None:
            rows = split_rows(len(labels), settings.get("fraction", 0.2), seed=settings.get("seed", 0), classes=labels)
        else:
            rows = np.arange(len(training)), np.arange(len(training), len(labels))
        if len(rows[0]) < 2:
            few = f"{len(rows[0])} of {len(labels)} images is to be trained on, and two are the least"
            raise ImageError(f"{source}: {few}; give more images of each class")
        augment = settings.get("augment")
        seen = images[rows[0]].reshape(-1, images.shape[-1]) / 255
        task = cls(
            training.classes, size, images.shape[-1], settings.get("model") or "cnn", fit=settings.get("fit", "crop"),
            mean=seen.mean(0).tolist(), deviation=(seen.std(0) + 1e-3).tolist(),
            augment=augment if augment is not None else ("crop",) if images.shape[-1] == 1 else ("crop", "flip"),
            weights=class_weights(labels[rows[0]], len(training.classes)),
        )  # fmt: skip
        folders = [folder for folder in (training, validation) if isinstance(folder, ImageFolder)]
        task.notes = [note for folder in folders for note in folder.notes]
        task.notes += [note] if validation is None and (note := alone(labels, training.classes, "image")) else []
        task.files = [path for folder in folders for path, _ in folder.samples]
        return task.learning(images, labels, rows)

    @classmethod
    def located(cls, source: Any) -> str | None:
        return str(source) if is_known(source) else super().located(source)

    @classmethod
    def fingerprint(cls, source: str) -> str:
        return KNOWN[source].fingerprint() if is_known(source) else super().fingerprint(source)

    def learning(self, images: NDArray[np.uint8], labels: NDArray[np.int64], rows: tuple[NDArray[Any], NDArray[Any]]) -> Self:
        """With the images to learn from, of which `rows` are for training and validation."""
        self.images, self.labels, self.rows = images, labels, rows
        epochs = int(np.clip(SAMPLES // len(rows[0]), 3, 60))
        self.defaults = {"epochs": epochs, "batch_size": 64, "learning_rate": 3e-3, "weight_decay": 0.01}
        return self

    def variants(self) -> Mapping[str, Sequence[Any]]:
        return {"model": tuple(self.networks)}

    def state(self) -> dict[str, Any]:
        return {
            "classes": self.classes, "size": list(self.size), "channels": self.channels, "network": self.network, "fit": self.fit,
            "mean": self.mean, "deviation": self.deviation, "augment": self.augment, "weights": self.weights,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(**{**state, "size": tuple(state["size"])})

    # ------------------------------------------------------------ learning

    def facts(self) -> str:
        training, validation = self.rows
        height, width = self.size
        kind = "grey" if self.channels == 1 else "colour"
        changed = f"; each time changed by {', '.join(self.augment)}" if self.augment else ""
        weighed = "" if self.weights is None else "; rare classes weigh as much as common ones"
        head = f"{len(training):,} images to train on, {len(validation):,} held out; {len(self.classes)} classes"
        return f"{head}; {kind}, {height}x{width}{changed}{weighed}"

    def model(self) -> nn.Module:
        network = self.networks[self.network](len(self.classes), self.channels, self.size)
        return network if self.mean is None or self.deviation is None else nn.Sequential(Standardize(self.mean, self.deviation), network)

    def step(self, model: nn.Module, batch: Any) -> Any:
        images, labels = batch
        logits = model(images)
        weights = None if self.weights is None else gl.tensor(self.weights, device=logits.device)
        return F.cross_entropy(logits, labels, weight=weights), logits, labels

    def metrics(self) -> dict[str, metrics.Metric]:
        found: dict[str, metrics.Metric] = {
            "accuracy": metrics.Accuracy(), "balanced_accuracy": metrics.Accuracy(average="macro"), "f1": metrics.F1("macro")
        }  # fmt: skip
        return found | ({"top_5_accuracy": metrics.Accuracy(top_k=5)} if len(self.classes) > 9 else {})

    def tensors(self, rows: NDArray[Any]) -> tuple[Tensor, Tensor]:
        """Images as a model takes them, and their classes."""
        if self.images is None:
            raise ValueError("ImagesTask: only a task made of images can be learned; this one was read back for predicting")
        return inputs(self.images[rows]), gl.from_numpy(self.labels[rows])

    def loaders(self, batch_size: int, seed: int) -> tuple[Any, Any]:
        if batch_size == 1:
            raise ImageError("a batch of one image cannot be normalised; take two at least (--batch-size, batch_size)")
        training, validation = (gl.utils.data.TensorDataset(*self.tensors(rows)) for rows in self.rows)
        samples: Any = Changed(training, self._augmentation()) if self.augment else training
        return shuffled(samples, batch_size, seed), gl.utils.data.DataLoader(validation, 256)

    def _augmentation(self) -> Any:
        transforms, side = gl.transforms, min(self.size)
        known = {
            "crop": transforms.RandomCrop(self.size, padding=max(1, side // 8), padding_mode="edge"),
            "flip": transforms.RandomHorizontalFlip(),
            "jitter": transforms.ColorJitter(0.3, 0.3, *((0.3, 0.05) if self.channels == 3 else ())),
        }
        return transforms.Compose([known[name] for name in self.augment])

    def baselines(self, model: nn.Module) -> Baselines:
        """What the commonest class and a linear model of the pixels (shrunk to 16x16 at most) reach on the validation images."""
        (x, y), (x_new, y_new) = (self.tensors(rows) for rows in self.rows)
        small = tuple(min(side, LINEAR_SIDE) for side in self.size)
        if small != self.size:
            x, x_new = F.adaptive_avg_pool2d(x, small), F.adaptive_avg_pool2d(x_new, small)
        classes = len(self.classes)
        outputs = linear_classifier(x.flatten(1), y, x_new.flatten(1), classes, self.weights)
        simplest = self.measured(commonest(y, len(y_new), classes), y_new)
        return {"commonest class": simplest, "linear model": self.measured(outputs, y_new)}

    def measured(self, outputs: Tensor, labels: Tensor) -> dict[str, float]:
        """What the metrics say of logits (n, classes)."""
        found = metrics.MetricCollection(self.metrics()).update(outputs, labels).compute()
        return {name: float(value) for name, value in found.items()}

    # ------------------------------------------------------------ using

    def read(self, source: Any) -> tuple[list[str], NDArray[np.uint8], list[str]]:
        """Names, images and notes of what is to be predicted: files, folders of files, or arrays uint8 ([n, ]height, width[, channels])."""
        sources = list(source) if isinstance(source, (list, tuple)) else [source]
        names, found, notes = [], [], []
        for number, one in enumerate(sources):
            if hasattr(one, "getexif"):  # an image of Pillow's
                one = image_array(one, self.channels)
            if isinstance(one, np.ndarray) or hasattr(one, "__array_interface__"):
                array = np.asarray(one)
                arrays = array if array.ndim == 4 or (array.ndim == 3 and array.shape[2] not in (1, 3)) else array[None]
                found += [self._shaped(image) for image in arrays]
                names += [f"image {number + i}" for i in range(len(arrays))]
                continue
            for path in _images_of(Path(one)):
                try:
                    found.append(fitted(read_image(path, self.channels), *self.size, self.fit))
                except ImageError as error:
                    notes.append(f"left out: {error}")
                    continue
                names.append(str(path))
        if not found:
            raise ImageError("; ".join(notes) or f"{', '.join(map(str, sources))}: there are no images")
        return names, np.stack(found), notes

    def _shaped(self, image: NDArray[Any]) -> NDArray[np.uint8]:
        image = image[..., None] if image.ndim == 2 else image
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, self.channels):
            wanted = f"uint8 (height, width, {self.channels})"
            raise ImageError(f"an image of dtype {image.dtype} and shape {image.shape}: arrays are {wanted}; files may be of any mode")
        return fitted(np.repeat(image, self.channels, 2) if image.shape[2] < self.channels else image, *self.size, self.fit)

    def outputs(self, model: nn.Module, images: NDArray[np.uint8]) -> Tensor:
        """A model's logits for images as `read` gives them."""
        batches: Any = gl.utils.data.DataLoader(gl.utils.data.TensorDataset(inputs(images)), 256)
        return gl.train.predict(model, batches, next(model.parameters()).device, targets=False)

    def predict(self, model: nn.Module, source: Any) -> dict[str, Any]:
        """Columns: image, prediction, a probability for each class. source: files, folders, or uint8 arrays (height, width, channels)."""
        names, images, _ = self.read(source)
        return self._columns(model, names, images)

    def _columns(self, model: nn.Module, names: list[str], images: NDArray[np.uint8]) -> dict[str, Any]:
        chances = self.outputs(model, images).softmax(1).numpy()
        found = {"image": np.array(names), "prediction": np.array(self.classes)[chances.argmax(1)]}
        return found | {f"probability of {name}": chances[:, i] for i, name in enumerate(self.classes)}

    def predicted(self, model: nn.Module, sources: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        names, images, notes = self.read(list(sources))
        return self._columns(model, names, images), notes

    def evaluated(self, model: nn.Module, source: str) -> tuple[dict[str, float], list[str]]:
        folder = ImageFolder(source, channels=self.channels, classes=self.classes)
        images, labels = folder.arrays(self.size, self.fit)  # type: ignore[arg-type]
        return self.measured(self.outputs(model, images), gl.from_numpy(labels)), folder.notes

    def evaluate(self, model: nn.Module, source: Any) -> dict[str, float]:
        """The metrics on a folder with a folder for each class."""
        return self.evaluated(model, source)[0]

    def interface(self, model: nn.Module) -> Interface:
        colours = {1: "grey", 3: "red, green and blue", 4: "red, green, blue and alpha"}.get(self.channels, f"{self.channels} channels")
        height, width = self.size
        return Interface(
            {"images": gl.rand(2, self.channels, height, width)}, ["scores"],
            {
                "images": f"{colours} from 0 to 1, of {height} rows and {width} columns",
                "scores": f"a score for each of {', '.join(map(str, self.classes))}: softmax makes probabilities of them",
            },
        )  # fmt: skip

    # ------------------------------------------------------------ the report

    def title(self, source: str) -> str:
        return f"Images of {Path(source).name}"

    def sections(self, trained: TrainedRun) -> list[tuple[str, str]]:
        """Confusions, and the images that are farthest off."""
        rows = self.rows[1]
        if self.images is None:
            return []
        chances = self.outputs(trained.model, self.images[rows]).softmax(1).numpy()
        true = self.labels[rows]
        off = 1 - chances[np.arange(len(true)), true]
        cards = []
        for i in np.argsort(-off, kind="stable")[:WORST]:
            found = int(chances[i].argmax())
            name = os.path.basename(self.files[rows[i]]) if self.files else f"image {rows[i]}"
            said = f"{self.classes[true[i]]}, taken for {self.classes[found]} ({chances[i, found]:.2f})" if found != true[i] else (
                f"{self.classes[found]} ({chances[i, found]:.2f})"
            )
            cards.append((self.images[rows[i]], name, said))
        return [("Confusions", html.confusions(self.classes, true, chances.argmax(1))), ("Farthest off", html.gallery(cards))]

    def usage(self, folder: str) -> list[str]:
        return [
            f"gradlab predict {quote(folder)} photo.png other-folder/ --out predictions.csv\n"
            f"gradlab evaluate {quote(folder)} folder-of-classes/",
            f'import gradlab as gl\n\nrun = gl.load_run({literal(folder)})\nrun.predict(["photo.png"])["prediction"]\n'
            "run.model  # an nn.Module of float32 (n, channels, height, width) from 0 to 1",
        ]


class Changed(gl.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Images and their classes, each image changed by a transform of its own draw."""

    def __init__(self, samples: Any, transform: Callable[[Tensor], Tensor]) -> None:
        self.samples, self.transform = samples, transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        image, label = self.samples[index]
        return self.transform(image), label


def inputs(images: NDArray[np.uint8]) -> Tensor:
    """Images (n, height, width, channels) as a model takes them: float32 (n, channels, height, width) from 0 to 1."""
    return gl.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / 255)


def _parts(source: Any, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """The images for training and those for validation, or None for these."""
    if not is_known(source):
        return image_folders(source, channels=settings.get("channels"))
    where = {"root": settings.get("data_dir"), "mirror": settings.get("mirror"), "check": settings.get("check", True)}
    return KNOWN[source](train=True, **where), KNOWN[source](train=False, **where)


def _size(folder: ImageFolder | KnownImages, asked: Any) -> tuple[int, int]:
    """(height, width): what is asked for, or that of the images where it is one and small, or a square; 8 at least."""
    if asked is not None:
        height, width = (asked, asked) if isinstance(asked, int) else (int(asked[0]), int(asked[1]))
        if min(height, width) < SMALLEST_SIDE:
            raise ImageError(f"images of {height}x{width} are too small to learn from; a size is {SMALLEST_SIDE} at least (--size, size)")
        return height, width
    if not isinstance(folder, ImageFolder):
        return int(folder.data.shape[1]), int(folder.data.shape[2])
    step = max(1, len(folder) // 200)
    sizes = {folder.loader(path).shape[:2] if folder.loader else read_image(path).shape[:2] for path, _ in folder.samples[::step]}
    if len(sizes) == 1 and max(next(iter(sizes))) <= LARGEST_SIDE:
        height, width = next(iter(sizes))
        return max(int(height), SMALLEST_SIDE), max(int(width), SMALLEST_SIDE)
    side = int(np.median([min(size) for size in sizes]))
    side = min(max(side, SMALLEST_SIDE), LARGEST_SIDE)
    return side, side


def _images_of(path: Path) -> list[Path]:
    """A file, or the images in a folder and in those in it."""
    if not path.is_dir():
        return [path]
    return sorted(
        p for p in path.rglob("*") if p.is_file() and named_as_image(str(p)) and not any(map(hidden, p.relative_to(path).parts))
    )
