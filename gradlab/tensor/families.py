"""The methods of every family, one mixin each, together: the base of Tensor. A new family adds its line here."""

from __future__ import annotations

from gradlab.named_errors import named_methods
from gradlab.tensor.activation import ActivationMethods
from gradlab.tensor.assembly import AssemblyMethods
from gradlab.tensor.closeness import ClosenessMethods
from gradlab.tensor.comparison import ComparisonMethods
from gradlab.tensor.complex import ComplexMethods
from gradlab.tensor.convert import ConvertMethods
from gradlab.tensor.deprecated_functions import DeprecatedMethods
from gradlab.tensor.elementwise import ElementwiseMethods
from gradlab.tensor.elementwise_in_place import ElementwiseInPlaceMethods
from gradlab.tensor.factorization import FactorizationMethods
from gradlab.tensor.gamma import GammaMethods
from gradlab.tensor.gather import GatherMethods
from gradlab.tensor.geometry import GeometryMethods
from gradlab.tensor.indexing import IndexingMethods
from gradlab.tensor.interop import InteropMethods
from gradlab.tensor.layout import LayoutMethods
from gradlab.tensor.linalg import LinalgMethods
from gradlab.tensor.masks import MaskMethods
from gradlab.tensor.math import MathMethods
from gradlab.tensor.math_in_place import MathInPlaceMethods
from gradlab.tensor.math_pairs import MathPairMethods
from gradlab.tensor.memory import MemoryMethods
from gradlab.tensor.memory_formats import MemoryFormatMethods
from gradlab.tensor.norms import NormMethods
from gradlab.tensor.product_sums import ProductSumMethods
from gradlab.tensor.products import ProductMethods
from gradlab.tensor.properties import PropertyMethods
from gradlab.tensor.put import PutMethods
from gradlab.tensor.quantiles import QuantileMethods
from gradlab.tensor.random_in_place import RandomMethods
from gradlab.tensor.reduction import ReductionMethods
from gradlab.tensor.repetition import RepetitionMethods
from gradlab.tensor.scan import ScanMethods
from gradlab.tensor.selection import SelectionMethods
from gradlab.tensor.shape import ShapeMethods
from gradlab.tensor.shape_in_place import ShapeInPlaceMethods
from gradlab.tensor.shared_memory import SharedMemoryMethods
from gradlab.tensor.solve import SolveMethods
from gradlab.tensor.sort import SortMethods
from gradlab.tensor.sparse import SparseMethods
from gradlab.tensor.special import SpecialMethods
from gradlab.tensor.spellings import SpellingMethods
from gradlab.tensor.splitting import SplittingMethods
from gradlab.tensor.statistics import StatisticsMethods
from gradlab.tensor.storage import StorageMethods
from gradlab.tensor.subclasses import SubclassMethods
from gradlab.tensor.typed_tensors import TypedTensorMethods
from gradlab.tensor.where import WhereMethods


class Families(
    ActivationMethods, SpecialMethods, ElementwiseMethods, ComparisonMethods, ReductionMethods, ShapeMethods, IndexingMethods,
    GatherMethods, SortMethods, LinalgMethods, ConvertMethods, RandomMethods, MathMethods, MathInPlaceMethods, ClosenessMethods,
    ScanMethods, StatisticsMethods, LayoutMethods, AssemblyMethods, ProductMethods, ProductSumMethods, GeometryMethods, SolveMethods,
    FactorizationMethods, GammaMethods, ShapeInPlaceMethods, PutMethods, MathPairMethods, ElementwiseInPlaceMethods, WhereMethods,
    NormMethods, QuantileMethods, RepetitionMethods, SelectionMethods, MaskMethods, SplittingMethods, PropertyMethods,
    SparseMethods, StorageMethods, TypedTensorMethods, DeprecatedMethods, ComplexMethods, SpellingMethods, InteropMethods,
    SharedMemoryMethods, MemoryMethods, MemoryFormatMethods, SubclassMethods,
):  # fmt: skip
    """Every method of a tensor that is not in `tensor.py`."""

    __slots__ = ()


for _family in Families.__mro__[1:-1]:
    named_methods(_family)
