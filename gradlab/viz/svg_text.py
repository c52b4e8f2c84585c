"""Text between the tags of SVG."""

from __future__ import annotations


def escape(text: str) -> str:
    """The text, with what would begin a tag or an entity replaced. (`xml.sax.saxutils` does it as well, and imports an HTTP client.)"""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
