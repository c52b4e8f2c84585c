"""Data sets that travel inside the package, as NumPy arrays: the first run needs no network.

Any program may use this room; it knows nothing of tensors and is not loaded by `import gradlab`. Each data file has a
`.SOURCE.txt` beside it with its origin and licence.
"""

from gradlab.data.optical_digits import DataError as DataError, digits as digits, digits_split as digits_split

__all__ = ["DataError", "digits", "digits_split"]
