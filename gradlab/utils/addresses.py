"""Addresses of files that may be fetched: over TLS, or from this machine; none that others could answer in a server's place."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, build_opener

HERE = frozenset({"localhost", "127.0.0.1", "::1"})  # machines to which a connection needs no TLS


class UnsafeAddressError(ValueError):
    """An address of which anybody could send the file."""


def expect_safe(url: str) -> None:
    """UnsafeAddressError for an address that others could answer in a server's place."""
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in HERE:
        raise UnsafeAddressError(f"{url}: what comes over http could be anybody's; use https://, or a copy of the file (file://…)")
    if parts.scheme not in ("https", "http", "file", "") and len(parts.scheme) > 1:  # one letter is a drive of Windows
        raise UnsafeAddressError(f"{url}: an address begins with https:// or file://, not with {parts.scheme}://")


class _OnlySafe(HTTPRedirectHandler):
    """Follows a server to other addresses, but from none that is safe to one that is not."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        expect_safe(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener(url: str) -> OpenerDirector:
    """What opens a safe address, with the certificates that Python trusts; this machine itself without a proxy."""
    expect_safe(url)
    return build_opener(_OnlySafe, *([ProxyHandler({})] if urlsplit(url).hostname in HERE else []))
