"""Backends compute rows over one kind of array. They know rows (`gradlab.op`) and nothing of Tensors."""

from gradlab.backends import cudnn as cudnn, mps as mps
