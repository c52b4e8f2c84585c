"""Writes the files of this folder, with PyTorch: `python tests/torch_files/write.py`. test_torch_files.py reads them without it."""

from argparse import Namespace
from collections import OrderedDict, defaultdict
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import nn

HERE = Path(__file__).parent


def content():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}], amsgrad=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    base = torch.arange(12.0).reshape(3, 4)
    return {
        "epoch": 3,
        "arch": "mlp",
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "args": Namespace(lr=0.1, data=["a", "b"], resume=None),
        "best": torch.tensor(0.5),
        "parameter": nn.Parameter(torch.ones(2), requires_grad=False),
        "grad": torch.ones(1, requires_grad=True),
        "views": [base, base[1:, ::2], base.T, base.expand(2, 3, 4)],
        "dtypes": {str(d): torch.tensor([0, 1, 2]).to(d) for d in (
            torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)},
        "numpy": (np.arange(6).reshape(2, 3), np.float32(1.5), np.array([1, 2], ">i4"), np.asfortranarray(np.eye(2))),
        "plain": [None, True, 2, -(2**40), 10**30, 1.5, float("inf"), "text ü", b"bytes\xff", (1, (2,)), {1, 2}, frozenset({3}), 1j,
                  slice(1, 2)],
        "torch": (torch.float32, torch.device("cpu"), torch.Size([2, 3])),
        "more": [OrderedDict(a=1), defaultdict(list, a=[1]), PurePosixPath("a/b"), range(3), bytearray(b"x")],
        "empty": torch.zeros(0, 3),
        "sparse": torch.eye(3).to_sparse(),
    }  # fmt: skip


if __name__ == "__main__":
    torch.save(content(), HERE / "archive.pt")
    torch.save(content(), HERE / "stream.pt", _use_new_zipfile_serialization=False)
    torch.save(content(), HERE / "protocol4.pt", pickle_protocol=4)
