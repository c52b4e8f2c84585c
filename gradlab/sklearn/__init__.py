"""Models for scikit-learn: `Classifier` and `Regressor`, estimators that are trained by `gradlab.train.fit`.

scikit-learn is imported when one of them is first asked for: `pip install gradlab-engine[sklearn]`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from gradlab.tensor.missing_names import absent as _absent

if TYPE_CHECKING:
    from gradlab.sklearn.estimators import Classifier as Classifier, Regressor as Regressor

_NAMES = ("Classifier", "Regressor")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise _absent("gradlab.sklearn", name)
    if importlib.util.find_spec("sklearn") is None:
        raise ImportError(f"gradlab.sklearn.{name} is an estimator of scikit-learn, which is not installed: pip install scikit-learn")
    return getattr(importlib.import_module("gradlab.sklearn.estimators"), name)


def __dir__() -> list[str]:
    return sorted({*vars(sys.modules[__name__]), *(_NAMES if importlib.util.find_spec("sklearn") is not None else ())})
