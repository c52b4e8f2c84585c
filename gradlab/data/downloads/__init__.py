"""Data from addresses: files that are fetched once, checked and kept, and the known data sets that are made of such files."""

from __future__ import annotations

from gradlab.data.downloads.cifar import CIFAR10
from gradlab.data.downloads.fetching import DownloadError, data_folder, download
from gradlab.data.downloads.mnist import MNIST, FashionMNIST, read_idx

__all__ = ["CIFAR10", "MNIST", "DownloadError", "FashionMNIST", "data_folder", "download", "read_idx"]
