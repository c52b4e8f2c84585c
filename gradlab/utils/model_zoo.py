"""Older names of `gradlab.hub`'s."""

from __future__ import annotations

from gradlab.hub import load_state_dict_from_url as load_url, tqdm as tqdm

__all__ = ["load_url"]
