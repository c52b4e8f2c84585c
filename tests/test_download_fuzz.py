"""Servers that do everything wrong: what is fetched is the file that was meant, or there is a DownloadError and no file."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gradlab.data import DownloadError, download
from gradlab.data.downloads import fetching

CONTENT = bytes(range(256)) * 12
OTHER = CONTENT[::-1]
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TAGS = ('"a"', '"b"', 'W/"a"', "", "\x01", "a\r\n b", "ü", '"' + "x" * 300 + '"')
LENGTHS = ("", "-5", "abc", "0", "1e3", "99999999999999999999", " 7 ")
KINDS = ("right", "right", "short", "long", "other", "tag", "length", "range", "status", "redirect", "nothing", "garbage")
PLACES = ("http://example.org/x.bin", "https://127.0.0.1:1/x.bin", "file:///etc/passwd", "ftp://127.0.0.1/x", "x.bin", "http://[", "")


class Wrong(BaseHTTPRequestHandler):
    """Draws for each answer what is wrong with it."""

    def do_GET(self):
        choose = self.server.choose
        kind = choose.choice(KINDS)
        content = OTHER if kind == "other" else CONTENT
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and kind != "right" else 0
        if kind == "nothing":
            return
        if kind == "garbage":
            self.wfile.write(choose.randbytes(choose.randrange(200)))
            return
        if kind == "redirect":
            self.send_response(choose.choice((301, 302, 303, 307, 308)))
            self.send_header("Location", choose.choice(PLACES))
            self.end_headers()
            return
        if kind == "status":
            self.send_response(choose.choice((204, 304, 400, 404, 416, 429, 500, 503)))
            self.send_header("Content-Range", choose.choice(("bytes */3072", "bytes */0", "bytes */x", "")))
            self.end_headers()
            return
        body = content[start:]
        self.send_response(206 if start and kind != "range" else 200)
        if start:
            first = start + (choose.choice((0, 0, 1)) if kind == "range" else 0)
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        tag = choose.choice(TAGS) if kind == "tag" else '"a"'
        self.wfile.flush()
        self._headers_buffer.append(f"ETag: {tag}\r\n".encode("latin-1"))
        length = choose.choice(LENGTHS) if kind == "length" else str(len(body) + (choose.randrange(1, 50) if kind == "long" else 0))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body[: choose.randrange(len(body) + 1)] if kind == "short" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    found = ThreadingHTTPServer(("127.0.0.1", 0), Wrong)
    found.daemon_threads, found.choose = True, random.Random(0)
    found.handle_error = lambda *_: None  # of clients that hang up
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def attempts(server, folder, count):
    """How many of the downloads gave the file; each part is gone on with, or thrown away, by the next."""
    whole = 0
    for i in range(count):
        checked = i % 2 == 0
        name, wanted = f"{i % 4}.bin", SHA256 if checked else None
        try:
            path = download(f"http://127.0.0.1:{server.server_address[1]}/{name}", folder, sha256=wanted, progress=False)
        except DownloadError as error:
            assert str(error).isprintable()
            assert not (folder / name).exists()
            continue
        found = path.read_bytes()
        assert not checked or found == CONTENT
        whole += found == CONTENT
        path.unlink()
        if i % 50 == 49:
            shutil.rmtree(folder)
    return whole


def test_wrong_servers(server, tmp_path):
    assert 20 < attempts(server, tmp_path / "data", 100) < 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_wrong_servers(server, tmp_path, seed):
    server.choose.seed(seed)
    assert attempts(server, tmp_path / "data", 2500) > 500


def test_many_at_the_end_of_one(tmp_path):
    """Who waits for a part finds it finished, or thrown away by another who waited: 1 of 100 met it between two questions."""
    part, target, wrong = tmp_path / ".x.part", tmp_path / "x", []

    def finish():
        try:
            with fetching._alone(part) as file:
                if target.is_file():
                    part.unlink()
                else:
                    file.write(b"all of it")
                    part.rename(target)
        except OSError as error:
            wrong.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            target.unlink(missing_ok=True)
            threads = [threading.Thread(target=finish) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong and [path.name for path in tmp_path.iterdir()] == ["x"]
