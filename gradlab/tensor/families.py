"""The methods of every family, one mixin each, together: the base of Tensor. A new family adds its line here."""

from __future__ import annotations

from gradlab.tensor.activation import ActivationMethods
from gradlab.tensor.assembly import AssemblyMethods
from gradlab.tensor.closeness import ClosenessMethods
from gradlab.tensor.comparison import ComparisonMethods
from gradlab.tensor.complex import ComplexMethods
from gradlab.tensor.convert import ConvertMethods
from gradlab.tensor.elementwise import PointwiseMethods
from gradlab.tensor.elementwise_in_place import PointwiseInPlaceMethods
from gradlab.tensor.factorization import FactoringMethods
from gradlab.tensor.formats import FormatMethods
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
from gradlab.tensor.math_pairs import PairMethods
from gradlab.tensor.memory import MemoryMethods
from gradlab.tensor.norms import NormMethods
from gradlab.tensor.older_functions import OlderMethods
from gradlab.tensor.product_sums import ProductSumMethods
from gradlab.tensor.products import ProductMethods
from gradlab.tensor.properties import FactMethods
from gradlab.tensor.put import PlacingMethods
from gradlab.tensor.quantiles import QuantileMethods
from gradlab.tensor.random_in_place import RandomMethods
from gradlab.tensor.reduction import ReductionMethods
from gradlab.tensor.repetition import RepetitionMethods
from gradlab.tensor.reshaping import ReshapingMethods
from gradlab.tensor.scan import ScanMethods
from gradlab.tensor.selection import SelectionMethods
from gradlab.tensor.shape import ShapeMethods
from gradlab.tensor.sharing import SharingMethods
from gradlab.tensor.solve import SolvingMethods
from gradlab.tensor.sort import SortingMethods
from gradlab.tensor.sparse import SparseMethods
from gradlab.tensor.special import SpecialMethods
from gradlab.tensor.spellings import TwinMethods
from gradlab.tensor.splitting import SplittingMethods
from gradlab.tensor.statistics import StatisticsMethods
from gradlab.tensor.storage import StorageMethods
from gradlab.tensor.subclasses import SubclassMethods
from gradlab.tensor.typed import TypeMethods
from gradlab.tensor.where import ChoiceMethods


class Families(
    ActivationMethods, SpecialMethods, PointwiseMethods, ComparisonMethods, ReductionMethods, ShapeMethods, IndexingMethods,
    GatherMethods, SortingMethods, LinalgMethods, ConvertMethods, RandomMethods, MathMethods, MathInPlaceMethods, ClosenessMethods,
    ScanMethods, StatisticsMethods, LayoutMethods, AssemblyMethods, ProductMethods, ProductSumMethods, GeometryMethods, SolvingMethods,
    FactoringMethods, GammaMethods, ReshapingMethods, PlacingMethods, PairMethods, PointwiseInPlaceMethods, ChoiceMethods, NormMethods,
    QuantileMethods, RepetitionMethods, SelectionMethods, MaskMethods, SplittingMethods, FactMethods, SparseMethods, StorageMethods,
    TypeMethods, OlderMethods, ComplexMethods, TwinMethods, InteropMethods, SharingMethods, MemoryMethods, FormatMethods,
    SubclassMethods,
):  # fmt: skip
    """Every method of a tensor that is not in `tensor.py`."""

    __slots__ = ()
