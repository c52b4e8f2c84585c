"""What users choose about matrix products. Imported with gradlab, so it imports nothing."""

from __future__ import annotations

PRECISIONS = ("highest", "high", "medium")


class Settings:
    """Read at each product: a changed setting holds from the next call on.

    precision    of float32 products, see `set_float32_matmul_precision`.
    candidates   how many of the library's algorithms are timed when a problem is first met; 1 takes its first choice untimed. A timed
                 choice may differ from run to run, and with it the last bits of results.
    number       a multiple of 256 that stands for all of these: part of what a plan looks up.
    """

    __slots__ = ("candidates", "number", "precision")

    def __init__(self) -> None:
        self.choose("highest", 1)

    def choose(self, precision: str, candidates: int) -> None:
        """Set all."""
        self.precision, self.candidates = precision, candidates
        self.number = 256 * (PRECISIONS.index(precision) + len(PRECISIONS) * candidates)


SETTINGS = Settings()


def set_float32_matmul_precision(precision: str) -> None:
    """How exactly float32 matrices are multiplied on a GPU: "highest" (in float32, the default); "high" and "medium" let tensor cores round
    the factors to TensorFloat32, 10 bits behind the binary point, and add in float32. float16, bfloat16, float64 and the CPU are not
    affected. ValueError for anything else.
    """
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(f"set_float32_matmul_precision: {precision!r} is none of {', '.join(map(repr, PRECISIONS))}")
    SETTINGS.choose(precision, SETTINGS.candidates)


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` has set."""
    return SETTINGS.precision


class Matmul:
    """`gl.backends.cuda.matmul`, as PyTorch's scripts set it.

    >>> gl.backends.cuda.matmul.allow_tf32
    False
    """

    __slots__ = ("allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation", "allow_fp16_reduced_precision_reduction")

    def __init__(self) -> None:
        """Sums of half types are float32, whatever PyTorch's scripts set these to."""
        self.allow_fp16_reduced_precision_reduction = self.allow_bf16_reduced_precision_reduction = self.allow_fp16_accumulation = False

    @property
    def allow_tf32(self) -> bool:
        """Whether tensor cores may round factors of float32 products to TensorFloat32: `set_float32_matmul_precision("high")`."""
        return SETTINGS.precision != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")


matmul = Matmul()


def set_candidates(number: int) -> None:
    """Time that many algorithms for each new product and keep the fastest. 1, the default, keeps results the same from run to run."""
    if number < 1:
        raise ValueError(f"set_candidates: at least 1 algorithm, not {number}")
    SETTINGS.choose(SETTINGS.precision, number)
