"""Data: sets that travel inside the package, as NumPy arrays, so that the first run needs no network; and one's own, from untidy tables,
folders of images, and texts.

The room is not loaded by `import gradlab`. Each data file has a `.SOURCE.txt` beside it with its origin and licence.
"""

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

__all__ = [
    "BytePairTokenizer", "CharacterTokenizer", "Corpus", "DataError", "ImageError", "ImageFolder", "SeriesError", "Table", "TableDataset",
    "TableError", "TextDataset", "TextError", "TimeSeriesDataset", "digits", "digits_split", "image_folders", "read_image", "read_table",
    "read_text",
]  # fmt: skip
