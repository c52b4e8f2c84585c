"""Backends compute rows over one kind of array. They know rows (`gradlab.op`) and nothing of Tensors."""

from importlib import import_module

from gradlab import dispatch
from gradlab.backends import cudnn as cudnn, mkl as mkl, mkldnn as mkldnn, mps as mps, openmp as openmp

dispatch.register_device("meta", lambda: import_module("gradlab.backends.meta").BACKEND)
