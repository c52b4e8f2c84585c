"""`DataLoader` and what joins samples, under the name of PyTorch's file."""

from gradlab.utils.data.collate import default_collate as default_collate, default_convert as default_convert
from gradlab.utils.data.loader import DataLoader as DataLoader
from gradlab.utils.data.workers import get_worker_info as get_worker_info
