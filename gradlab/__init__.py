"""gradlab: a GPU-accelerated tensor and autograd engine. Names and meanings follow PyTorch.

    import gradlab as gl
"""

from __future__ import annotations

from gradlab import autograd as autograd
from gradlab import backends as backends
from gradlab import nn as nn
from gradlab import ops as ops
from gradlab import optim as optim
from gradlab._version import __version__ as __version__
from gradlab.autograd import (
    enable_grad as enable_grad,
)
from gradlab.autograd import (
    inference_mode as inference_mode,
)
from gradlab.autograd import (
    is_grad_enabled as is_grad_enabled,
)
from gradlab.autograd import (
    is_inference_mode_enabled as is_inference_mode_enabled,
)
from gradlab.autograd import (
    no_grad as no_grad,
)
from gradlab.autograd import (
    set_grad_enabled as set_grad_enabled,
)
from gradlab.backends import cpu as _cpu
from gradlab.device import Device as device
from gradlab.dtype import (
    DType as dtype,
)
from gradlab.dtype import (
    bfloat16 as bfloat16,
)
from gradlab.dtype import (
    bool_ as bool,
)
from gradlab.dtype import (
    double as double,
)
from gradlab.dtype import (
    finfo as finfo,
)
from gradlab.dtype import (
    float16 as float16,
)
from gradlab.dtype import (
    float32 as float32,
)
from gradlab.dtype import (
    float64 as float64,
)
from gradlab.dtype import (
    get_default_dtype as get_default_dtype,
)
from gradlab.dtype import (
    half as half,
)
from gradlab.dtype import (
    iinfo as iinfo,
)
from gradlab.dtype import (
    int8 as int8,
)
from gradlab.dtype import (
    int16 as int16,
)
from gradlab.dtype import (
    int32 as int32,
)
from gradlab.dtype import (
    int64 as int64,
)
from gradlab.dtype import (
    long as long,
)
from gradlab.dtype import (
    set_default_dtype as set_default_dtype,
)
from gradlab.dtype import (
    short as short,
)
from gradlab.dtype import (
    uint8 as uint8,
)
from gradlab.nn.summary import summary as summary
from gradlab.tensor import Tensor as Tensor
from gradlab.tensor import generator as random  # what users call gradlab.random
from gradlab.tensor.activation import *
from gradlab.tensor.assembly import *
from gradlab.tensor.closeness import *
from gradlab.tensor.comparison import *
from gradlab.tensor.creation import *
from gradlab.tensor.einsum import *
from gradlab.tensor.generator import *
from gradlab.tensor.gather import *
from gradlab.tensor.indexing import *
from gradlab.tensor.layout import *
from gradlab.tensor.linalg import *
from gradlab.tensor.math import *
from gradlab.tensor.pointwise import *
from gradlab.tensor.products import *
from gradlab.tensor.random import *
from gradlab.tensor.reduction import *
from gradlab.tensor.scan import *
from gradlab.tensor.shape import *
from gradlab.tensor.sorting import *
from gradlab.tensor.special import *
from gradlab.tensor.statistics import *
from gradlab.utils.serialization import load as load, save as save
