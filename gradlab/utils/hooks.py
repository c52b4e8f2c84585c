"""What registering a hook gives, under the name of PyTorch's file."""

from gradlab.autograd.hooks import RemovableHandle as RemovableHandle
