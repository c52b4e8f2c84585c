"""A folder of images with a folder for each class, as a dataset; and such folders in two, for training and for validation."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gradlab.data.images.reading import EXTENSIONS, GREY, ImageError, check_image, image_array, opened
from gradlab.utils.data import Dataset
from gradlab.utils.pillow import pillow
from gradlab.utils.words import some

TRAINING = ("train", "training")
VALIDATION = ("val", "valid", "validation", "test", "testing")
NO_CLASSES = frozenset({"__macosx", "__pycache__", "$recycle.bin"})  # what systems and programs leave behind
NO_FILES = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db"})
NAMED = 5  # broken files that a note names


def hidden(name: str) -> bool:
    """Whether a file or folder is one that systems leave behind, and nobody's image or class."""
    return name.startswith((".", "~$")) or name.lower() in NO_CLASSES | NO_FILES


def named_as_image(path: str) -> bool:
    """Whether a file's name ends as those of images do."""
    return path.lower().endswith(EXTENSIONS)


class ImageFolder(Dataset[tuple[Any, int]]):
    """The images in the folders of `root`, each folder a class: samples are (uint8 array (height, width, channels), number of the class).

    root: holds a folder for each class; images lie in these or in folders below them. transform, target_transform: called with the image
    and the class's number. loader: reads a file (default: `read_image` with the folder's channels). is_valid_file: says which files are
    images, by their path (default: those with a usual extension). allow_empty: a folder without images is a class, too.
    channels: 1 or 3; None: 1 where all images are grey, else 3. check: read each file once now, so that those that are broken are left out
    and named in `notes`; without it none is opened before it is asked for, a broken one is an ImageError then, and None means 3 channels.
    classes: the names of the classes, in their order, where they are not to be found in the folder (of validation images).

    `classes` are sorted by name, `class_to_idx` are their numbers, `samples` (path, number) pairs in sorted order, `targets` the numbers.
    Hidden files and folders (`.DS_Store`, `Thumbs.db`, `__MACOSX`) are passed over. ImageError for a folder that is empty or has no images.

        folder = gl.data.ImageFolder("flowers", transform=gl.transforms.Resize((32, 32)))
        image, number = folder[0]
        folder.classes[number]
    """

    def __init__(
        self, root: str | os.PathLike[str], transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None, loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False, *, channels: int | None = None,
        check: bool = True, classes: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        if channels not in (None, 1, 3):
            raise ValueError(f"ImageFolder: channels is 1, 3 or None, not {channels!r}")
        self.root, self.transform, self.target_transform, self.loader = Path(root), transform, target_transform, loader
        self.notes: list[str] = []
        self._wanted = is_valid_file or named_as_image
        found = self._files(_folders(self.root))
        self.classes = list(classes) if classes is not None else [name for name, files in found.items() if files or allow_empty]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self._expect(found, classes)
        self.samples = [(file, self.class_to_idx[name]) for name, files in found.items() for file in files if name in self.class_to_idx]
        found_channels = self._checked(allow_empty or classes is not None) if check and loader is None else 3
        self.channels = found_channels if channels is None else channels

    def _files(self, folders: list[Path]) -> dict[str, list[str]]:
        """Paths of images by the class's name, both sorted; what else lies there is noted."""
        others: Counter[str] = Counter()
        found: dict[str, list[str]] = {}
        for folder in folders:
            files = [str(path) for path in _below(folder)]
            found[folder.name] = [file for file in files if self._wanted(file)]
            others.update(os.path.splitext(file)[1].lower() or "no extension" for file in files if not self._wanted(file))
        loose = [entry.name for entry in _entries(self.root) if not entry.is_dir()]
        if others:
            kinds = ", ".join(f"{count} {kind}" for kind, count in others.most_common(NAMED))
            self.notes.append(f"{sum(others.values())} files are no images by their names ({kinds}) and are passed over")
        if loose:
            self.notes.append(f"{len(loose)} files beside the classes' folders are passed over: {some(sorted(loose))}")
        return found

    def _expect(self, found: dict[str, list[str]], classes: Sequence[str] | None) -> None:
        """ImageError where there is nothing to learn from, or a class that is not known."""
        if classes is not None and (strange := [name for name, files in found.items() if files and name not in self.class_to_idx]):
            raise ImageError(f"{self.root}: {some(strange)} is no class of the training images; those are {some(self.classes, 20)}")
        if any(found.values()):
            if classes is None and (empty := [name for name in found if not found[name] and name not in self.class_to_idx]):
                self.notes.append(f"folders without images are no classes: {some(empty)}")
            return
        loose = [entry.name for entry in _entries(self.root) if not entry.is_dir() and self._wanted(entry.name)]
        if loose:
            raise ImageError(f"{self.root}: {len(loose)} images lie in the folder itself; put those of each class into a folder of its own")
        if not found and not _entries(self.root):
            raise ImageError(f"{self.root}: the folder is empty; it should hold a folder of images for each class")
        raise ImageError(
            f"{self.root}: there are no images in {'its folders' if found else 'this folder'}; each class needs a folder with images "
            f"({', '.join(EXTENSIONS[:4])} …)"
        )

    def _checked(self, keep: bool) -> int:
        """Leave out what cannot be read; the channels that the rest has."""
        grey, good, broken = True, [], []
        for path, number in self.samples:
            try:
                mode = check_image(path)
            except (ImageError, OSError) as error:
                broken.append(str(error) if isinstance(error, ImageError) else f"{path} cannot be read: {error.strerror}")
                continue
            good.append((path, number))
            grey = grey and (mode in GREY or mode.startswith("I;16"))
        if broken:
            self.notes.append(f"{len(broken)} of {len(self.samples)} files are left out: {some(broken, separator='; ')}")
            if not good:
                raise ImageError(f"{self.root}: none of {len(broken)} files can be read: {broken[0]}")
            lost = set(range(len(self.classes))) - {number for _, number in good}
            if lost and not keep:
                self._without(lost)
                good = [(path, self.class_to_idx[self._class_of(path)]) for path, _ in good]
        self.samples = good
        return 1 if grey else 3

    def _without(self, lost: set[int]) -> None:
        self.notes.append(f"no image of these classes can be read, and they are left out: {some([self.classes[i] for i in sorted(lost)])}")
        self.classes = [name for i, name in enumerate(self.classes) if i not in lost]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _class_of(self, path: str) -> str:
        return Path(path).relative_to(self.root).parts[0]

    @property
    def targets(self) -> list[int]:
        return [number for _, number in self.samples]

    @property
    def imgs(self) -> list[tuple[str, int]]:
        return self.samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        path, target = self.samples[index]
        image = self.loader(path) if self.loader is not None else self._read(path)
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def _read(self, path: str) -> NDArray[np.uint8]:
        with opened(path) as image:
            return image_array(image, self.channels)

    def arrays(
        self, size: int | tuple[int, int], fit: Literal["crop", "stretch"] = "crop"
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All images in memory at one size, uint8 (n, height, width, channels), and their classes, int64 (n,).

        size: of the sides, or (height, width). fit: "crop" keeps proportions and cuts off what is too long, the same on both sides;
        "stretch" does not. Sizes are changed by Pillow, bilinear. Neither `transform` nor `loader` is called.
        """
        height, width = (size, size) if isinstance(size, int) else size
        if fit not in ("crop", "stretch"):
            raise ValueError(f'ImageFolder.arrays: fit is "crop" or "stretch", not {fit!r}')
        found = np.empty((len(self.samples), height, width, self.channels), np.uint8)
        for place, (path, _) in zip(found, self.samples, strict=True):
            place[...] = fitted(self._read(path), height, width, fit)
        return found, np.array(self.targets, np.int64)

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}: {len(self)} images, {len(self.classes)} classes, {self.channels} channels)"


def fitted(image: NDArray[np.uint8], height: int, width: int, fit: str = "crop") -> NDArray[np.uint8]:
    """An image (height, width, channels) at another size, as `ImageFolder.arrays` says."""
    high, wide = image.shape[:2]
    box = None
    if fit == "crop":
        scale = min(high / height, wide / width)  # pixels of the file for one of the result
        across, down = width * scale, height * scale
        box = ((wide - across) / 2, (high - down) / 2, (wide + across) / 2, (high + down) / 2)
    if (high, wide) == (height, width):
        return image
    library = pillow()
    picture = library.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    found = np.asarray(picture.resize((width, height), library.Resampling.BILINEAR, box=box))
    return found if found.ndim == 3 else found[..., None]


def image_folders(root: str | os.PathLike[str], **options: Any) -> tuple[ImageFolder, ImageFolder | None]:
    """The training images in a folder and those for validation, which are None where the folder has no such parts: an `ImageFolder` each.

    root: a folder for each class, or `train/` and `val/` (or `training`, `valid`, `validation`, `test`) with a folder for each class in
    both; options are those of `ImageFolder`. ImageError as there, and for one class, from which nothing can be learned.
    """
    path = Path(root)
    folders = {folder.name.lower(): folder for folder in _folders(path)}
    first = next((folders[name] for name in TRAINING if name in folders), None)
    second = next((folders[name] for name in VALIDATION if name in folders), None)
    parts = first is not None and second is not None and bool(_folders(first)) and bool(_folders(second))
    training = ImageFolder(first if first is not None and parts else path, **options)
    _expect_classes(training)
    if second is None or not parts:
        return training, None
    return training, ImageFolder(second, **{**options, "channels": training.channels, "classes": training.classes})


def _expect_classes(folder: ImageFolder) -> None:
    if len(folder.classes) > 1:
        return
    only = folder.root / folder.classes[0]
    inner = [f.name for f in _folders(only)]
    way = (
        f'give the folder "{only}", which holds {some(inner)}' if len(inner) > 1
        else "put the images of each class into a folder of its own"
    )  # fmt: skip
    raise ImageError(f'{folder.root}: there is one class only, "{folder.classes[0]}"; at least two are needed: {way}')


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if not hidden(entry.name)]


def _folders(root: Path) -> list[Path]:
    """The folders in a folder, sorted by name; ImageError where it is none."""
    if not root.exists():
        raise ImageError(f"{root}: there is no such folder")
    if not root.is_dir():
        raise ImageError(f"{root} is a file: give a folder that holds a folder of images for each class")
    return sorted((entry for entry in _entries(root) if entry.is_dir()), key=lambda entry: entry.name)


def _below(folder: Path) -> Iterator[Path]:
    """All files in a folder and in those in it, sorted, without hidden ones; a link to a folder that was seen is not followed."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not hidden(name))
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place, name) for name in sorted(files) if not hidden(name))
