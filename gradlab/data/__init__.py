"""Data: sets that travel inside the package, as NumPy arrays, so that the first run needs no network; and one's own, from untidy tables,
folders of images, texts, and addresses.

The room is not loaded by `import gradlab`. Each data file has a `.SOURCE.txt` beside it with its origin and licence.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradlab.data.errors import DataError as DataError
from gradlab.data.images import (
    ImageError as ImageError,
    ImageFolder as ImageFolder,
    image_folders as image_folders,
    read_image as read_image,
)
from gradlab.data.optical_digits import digits as digits, digits_split as digits_split
from gradlab.data.series import SeriesError as SeriesError, TimeSeriesDataset as TimeSeriesDataset
from gradlab.data.tables import Table as Table, TableDataset as TableDataset, TableError as TableError, read_table as read_table
from gradlab.data.text import (
    BytePairTokenizer as BytePairTokenizer,
    CharacterTokenizer as CharacterTokenizer,
    Corpus as Corpus,
    TextDataset as TextDataset,
    TextError as TextError,
    read_text as read_text,
)
from gradlab.tensor.missing_names import absent as _absent

if TYPE_CHECKING:
    from gradlab.data.downloads import (
        CIFAR10 as CIFAR10,
        MNIST as MNIST,
        DownloadError as DownloadError,
        FashionMNIST as FashionMNIST,
        data_folder as data_folder,
        download as download,
        read_idx as read_idx,
    )

_FROM_ADDRESSES = ("CIFAR10", "MNIST", "DownloadError", "FashionMNIST", "data_folder", "download", "read_idx")
__all__ = [  # noqa: PLE0604
    *_FROM_ADDRESSES, "BytePairTokenizer", "CharacterTokenizer", "Corpus", "DataError", "ImageError", "ImageFolder", "SeriesError", "Table",
    "TableDataset", "TableError", "TextDataset", "TextError", "TimeSeriesDataset", "digits", "digits_split", "image_folders", "read_image",
    "read_table", "read_text",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What comes from addresses is imported when it is first used: it needs Python's network."""
    if name in _FROM_ADDRESSES:
        return getattr(import_module("gradlab.data.downloads"), name)
    raise _absent("gradlab.data", name)
