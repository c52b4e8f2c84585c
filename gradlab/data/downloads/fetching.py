"""A file from an address: fetched once, gone on with where it was broken off, checked, and there only when it is whole."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, url2pathname

from tqdm import tqdm

from gradlab._version import __version__
from gradlab.data.errors import DataError
from gradlab.utils.addresses import UnsafeAddressError, expect_safe, opener
from gradlab.utils.atomic import replacing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 18
SILENCE = 30.0  # seconds without a byte, after which a connection counts as broken
TRIES = 3  # of an address that answers and then breaks off
ABSENT, NOT_THE_REST = frozenset({404, 410}), 416


class DownloadError(DataError):
    """A file that cannot be had, or is not what it should be; the message says why, and how to do without the network."""


class _Broken(Exception):
    """A transfer that ended too early; trying again may help."""


NOT_HAD = (DownloadError, UnsafeAddressError, _Broken, URLError, HTTPException, ssl.SSLError, TimeoutError, ConnectionError)


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where fetched files are kept: `data_dir`, or `$GRADLAB_DATA`, or `gradlab/data` among the user's caches."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("GRADLAB_DATA") or Path(caches, "gradlab", "data")).expanduser()


def download(
    url: str | Sequence[str], data_dir: str | os.PathLike[str] | None = None, *, name: str | None = None, sha256: str | None = None,
    progress: bool = True,
) -> Path:  # fmt: skip
    """The file at `url`, fetched into `data_dir` (see `data_folder`) unless it is there already.

    url: `https://…`, `file://…`, a path, or `http://` of this machine; of several the first that can be had. name: under which it is kept
    (default: the address's). sha256: what its content has to have, in hexadecimal digits; a file that is there is checked, too. progress: a
    bar on stderr, where that is a terminal. What is fetched in part is gone on with at the next call, if the server can.

    DownloadError, in one line, where it cannot be had or is not the file that was meant.
    """
    addresses = [url] if isinstance(url, str) else list(url)
    try:
        for address in addresses:
            expect_safe(address)
    except UnsafeAddressError as error:
        raise DownloadError(str(error)) from None
    name = name or os.path.basename(unquote(urlsplit(addresses[0]).path))
    if not name or name in (".", "..") or os.path.basename(name) != name:
        raise DownloadError(f"{addresses[0]} names no file; say with name= how it is to be called")
    folder = data_folder(data_dir)
    target = folder / name
    if target.is_file():
        if sha256 is not None and (found := digest(target)) != sha256.lower():
            raise DownloadError(f"{target} is damaged, or another file: its SHA-256 is {found[:12]}…, not {sha256[:12]}…; remove it")
        return target
    reasons = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for address in addresses:
            try:
                _fetched(address, target, sha256, progress)
                return target
            except NOT_HAD as error:
                reasons.append(f"{address}: {_shown(_said(error))}")
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise DownloadError(f"{error.filename or target}: {what}; choose another folder (data_dir=, --data-dir, $GRADLAB_DATA)") from error
    raise DownloadError(
        f"{name} cannot be had ({'; '.join(reasons)}); without a network put it into {folder}, or name a copy (mirror=, --mirror)"
    )


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shown(text: str) -> str:
    """A text on one line; what a server says may be anything, a terminal's commands too."""
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return plain if len(plain) < 160 else f"{plain[:156]}…"


def _said(error: Exception) -> str:
    """Why an address gave nothing, in words."""
    if isinstance(error, HTTPError):
        return "there is no such file" if error.code in ABSENT else f"the server says {error.code} {error.reason}"
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the server's certificate cannot be trusted ({reason.verify_message})"
    if isinstance(reason, (TimeoutError, OSError)) and not isinstance(error, (DownloadError, ssl.SSLError)):
        return f"no answer ({getattr(reason, 'strerror', None) or reason or type(reason).__name__}): is there a network?"
    return str(reason)


def _fetched(url: str, target: Path, sha256: str | None, progress: bool) -> None:
    """Fetch one address into `target`, by way of a part beside it, which stays where the transfer breaks off."""
    if urlsplit(url).scheme not in ("http", "https"):
        _copied(_path_of(url), target, sha256)
        return
    part = target.with_name(f".{target.name}.part")
    with _alone(part) as file:
        if target.is_file():  # another process was quicker
            part.unlink()
            return
        for attempt in range(TRIES):
            try:
                _transfer(url, file, part, sha256 is not None, progress, target.name)
                break
            except (_Broken, HTTPException, TimeoutError, ConnectionError):
                file.flush()
                if attempt == TRIES - 1:
                    raise
            except BaseException:
                if not file.tell():
                    part.unlink()  # there is nothing to go on with
                raise
        file.flush()
        os.fsync(file.fileno())
        _mark_of(part).unlink(missing_ok=True)
        if sha256 is not None and (found := digest(part)) != sha256.lower():
            part.unlink()
            raise DownloadError(f"what came has the SHA-256 {found[:12]}…, not {sha256[:12]}…")
        os.replace(part, target)


def _path_of(url: str) -> Path:
    return Path(url2pathname(urlsplit(url).path)) if urlsplit(url).scheme == "file" else Path(url).expanduser()


def _copied(source: Path, target: Path, sha256: str | None) -> None:
    try:
        if sha256 is not None and (found := digest(source)) != sha256.lower():
            raise DownloadError(f"its SHA-256 is {found[:12]}…, not {sha256[:12]}…")
        file = open(source, "rb")  # noqa: SIM115
    except OSError as error:
        raise DownloadError(error.strerror or str(error)) from None
    with file, replacing(target) as copy:
        shutil.copyfileobj(file, copy, CHUNK)


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """The part, to append to, by one process at a time; others wait, where the system has such locks."""
    while True:
        with open(part, "ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            try:  # one question: between two others may take it away
                mine = os.fstat(file.fileno()).st_ino == part.stat().st_ino
            except FileNotFoundError:
                mine = False
            if mine:  # otherwise whoever had it has finished it, or thrown it away
                yield file
                return


def _mark_of(part: Path) -> Path:
    """Beside a part: which version of the file it is a part of, as the server calls it."""
    return part.with_name(part.name + ".version")


def _transfer(url: str, file: BinaryIO, part: Path, checked: bool, progress: bool, name: str) -> None:
    """Append to the part what is missing; _Broken where the server stops too early."""
    mark = _mark_of(part)
    version = mark.read_text(encoding="ascii", errors="replace") if mark.is_file() else ""
    version = version if version.isascii() and version.isprintable() else ""
    done = file.seek(0, os.SEEK_END)
    if done and not (version or checked):  # nobody could say whether the rest is of the same file
        done = file.truncate(0)
    headers = {"User-Agent": f"gradlab/{__version__}", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        if version:
            headers["If-Range"] = version
    try:
        source = opener(url).open(Request(url, headers=headers), timeout=SILENCE)
    except HTTPError as error:
        if done and error.code == NOT_THE_REST:  # there is no rest: what is there is all of it, or too much
            if error.headers.get("Content-Range", "").endswith(f"/{done}"):
                return
            file.truncate(0)
            raise _Broken("the server has less of the file than was here") from None
        raise
    except UnsafeAddressError:
        raise
    except ValueError as error:
        raise DownloadError(f"the server sends to an address that is none ({error})") from None
    with source:
        if done and not source.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            done = file.truncate(0)
        found = source.headers.get("ETag") or source.headers.get("Last-Modified") or ""
        usable = found.isascii() and found.isprintable() and not found.startswith("W/")  # it goes back to the server, in a header
        mark.write_text(found if usable else "", encoding="utf-8")
        length = (source.headers.get("Content-Length") or "").strip()
        total = done + int(length) if length.isascii() and length.isdecimal() else None  # what is no length says nothing
        hidden = None if progress else True  # None: where stderr is no terminal
        with tqdm(total=total, initial=done, desc=name, unit="B", unit_scale=True, disable=hidden, file=sys.stderr) as bar:
            while piece := source.read(CHUNK):
                file.write(piece)
                done += len(piece)
                bar.update(len(piece))
    if total is not None and done < total:
        raise _Broken(f"the connection broke off after {done:,} of {total:,} bytes; call again to go on from there")

