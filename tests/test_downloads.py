"""Files from addresses: a server of this machine and folders stand for the network; small files stand for the known data sets."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import gradlab as gl
from gradlab.cli import main
from gradlab.data import DataError, DownloadError, download, read_idx
from gradlab.data.downloads import fetching

CONTENT = bytes(range(256)) * 5000  # 1.28 MB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Files by their paths, which it serves in ranges; it can break off, change a file, or answer otherwise."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/x.bin": CONTENT}
        self.asked: list[tuple[str, str | None]] = []
        self.breaks: list[int] = []  # after how many bytes each of the next answers breaks off
        self.tags, self.ranges, self.redirect, self.status = True, True, "", 200

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server: Server = self.server
        wanted = self.headers.get("Range")
        server.asked.append((self.path, wanted))
        if server.redirect:
            self.send_response(302)
            self.send_header("Location", server.redirect)
            self.end_headers()
            return
        content = server.files.get(self.path)
        if content is None or server.status != 200:
            self.send_error(404 if server.status == 200 else server.status)
            return
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if start and self.headers.get("If-Range", tag) != tag:
            start = 0
        if start >= len(content) and start:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.tags:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + server.breaks.pop(0) if server.breaks else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


class TestFetching:
    def test_once(self, server, tmp_path):
        for _ in range(2):
            path = download(f"{server.url}/x.bin", tmp_path / "kept", sha256=SHA256.upper())
            assert path == tmp_path / "kept" / "x.bin"
            assert path.read_bytes() == CONTENT
        assert server.asked == [("/x.bin", None)]
        assert names(path.parent) == ["x.bin"], "nothing else is left behind"
        assert download(f"{server.url}/x.bin", tmp_path, name="y.bin").name == "y.bin"

    def test_it_goes_on_where_it_broke_off(self, server, tmp_path):
        server.breaks = [300_000, 400_000]
        assert download(f"{server.url}/x.bin", tmp_path, sha256=SHA256).read_bytes() == CONTENT
        assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-", "bytes=700000-"]
        assert names(tmp_path) == ["x.bin"]

    @pytest.mark.parametrize("tags", [True, False])
    @pytest.mark.parametrize("sha256", [SHA256, None])
    def test_in_the_next_call(self, server, tmp_path, sha256, tags):
        server.breaks, server.tags = [200_000, 0, 0], tags
        with pytest.raises(DownloadError, match=r"x.bin cannot be had \(.*broke off after [02]\d*,?\d* of 1,280,000 bytes; call again"):
            download(f"{server.url}/x.bin", tmp_path, sha256=sha256)
        assert "x.bin" not in names(tmp_path)
        assert download(f"{server.url}/x.bin", tmp_path, sha256=sha256).read_bytes() == CONTENT
        assert names(tmp_path) == ["x.bin"]
        known = tags or sha256 is not None  # else nobody could say whether the rest is of the same file
        assert server.asked[-1][1] == ("bytes=200000-" if known else None)

    def test_a_file_that_changed_meanwhile(self, server, tmp_path):
        server.breaks = [200_000, 0, 0]
        with pytest.raises(DownloadError):
            download(f"{server.url}/x.bin", tmp_path)
        server.files["/x.bin"] = CONTENT[::-1]
        assert download(f"{server.url}/x.bin", tmp_path).read_bytes() == CONTENT[::-1]

    def test_a_server_without_ranges(self, server, tmp_path):
        server.breaks, server.ranges = [200_000], False
        assert download(f"{server.url}/x.bin", tmp_path, sha256=SHA256).read_bytes() == CONTENT

    def test_a_part_that_is_whole(self, server, tmp_path):
        (tmp_path / ".x.bin.part").write_bytes(CONTENT)
        assert download(f"{server.url}/x.bin", tmp_path, sha256=SHA256).read_bytes() == CONTENT
        (tmp_path / "x.bin").unlink()
        (tmp_path / ".x.bin.part").write_bytes(CONTENT + b"more")
        assert download(f"{server.url}/x.bin", tmp_path, sha256=SHA256).read_bytes() == CONTENT

    def test_two_at_once(self, server, tmp_path):
        threads = [threading.Thread(target=download, args=(f"{server.url}/x.bin", tmp_path), kwargs={"sha256": SHA256}) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (tmp_path / "x.bin").read_bytes() == CONTENT
        assert len(server.asked) == 1
        assert names(tmp_path) == ["x.bin"]

    def test_what_is_damaged(self, server, tmp_path):
        wrong = "0" * 64
        with pytest.raises(DownloadError, match=rf"what came has the SHA-256 {SHA256[:12]}…, not 0{{12}}…"):
            download(f"{server.url}/x.bin", tmp_path, sha256=wrong)
        assert not names(tmp_path)
        path = download(f"{server.url}/x.bin", tmp_path)
        with pytest.raises(DownloadError, match=r"x.bin is damaged, or another file: its SHA-256 is .*; remove it") as caught:
            download(f"{server.url}/x.bin", tmp_path, sha256=wrong)
        assert isinstance(caught.value, DataError)
        assert path.read_bytes() == CONTENT

    def test_several_addresses(self, server, tmp_path):
        addresses = [f"{server.url}/none.bin", f"file://{tmp_path}/none.bin", f"{server.url}/x.bin"]
        assert download(addresses, tmp_path / "kept", name="x.bin").read_bytes() == CONTENT
        with pytest.raises(DownloadError) as caught:
            download(addresses[:2], tmp_path / "kept", name="none.bin")
        assert "none.bin: there is no such file; file://" in str(caught.value)
        assert f"put it into {tmp_path / 'kept'}, or name a copy" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_files_and_paths(self, tmp_path):
        (tmp_path / "a b.bin").write_bytes(CONTENT)
        for i, address in enumerate([f"file://{tmp_path}/a%20b.bin", str(tmp_path / "a b.bin")]):
            assert download(address, tmp_path / str(i), sha256=SHA256).read_bytes() == CONTENT
        with pytest.raises(DownloadError, match="its SHA-256 is"):
            download(str(tmp_path / "a b.bin"), tmp_path / "2", sha256="1" * 64)
        assert not names(tmp_path / "2")

    def test_errors_of_a_server(self, server, tmp_path):
        server.status = 503
        with pytest.raises(DownloadError, match="the server says 503 Service Unavailable"):
            download(f"{server.url}/x.bin", tmp_path)
        assert not names(tmp_path)

    def test_no_network(self, tmp_path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(DownloadError, match=r"no answer \(Connection refused\): is there a network\?\); without a network put it"):
            download(f"http://127.0.0.1:{port}/x.bin", tmp_path / "a" / "b")
        assert not names(tmp_path / "a" / "b")

    @pytest.mark.parametrize("address", ["http://example.org/x", "ftp://example.org/x", "data:text/plain,x"])
    def test_addresses_that_are_not_safe(self, address, tmp_path, server):
        with pytest.raises(DownloadError, match=r"could be anybody's|begins with https:// or file://"):
            download(address, tmp_path)
        server.redirect = address
        with pytest.raises(DownloadError, match=r"could be anybody's|begins with https:// or file://|not allowed"):
            download(f"{server.url}/x.bin", tmp_path)

    def test_a_folder_that_cannot_be_written(self, server, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(DownloadError, match=r"choose another folder \(data_dir=, --data-dir, \$GRADLAB_DATA\)"):
            download(f"{server.url}/x.bin", tmp_path / "file" / "x")
        for name in ("https://example.org/", "https://example.org/.."):
            with pytest.raises(DownloadError, match="names no file"):
                download(name, tmp_path)

    def test_where_files_are_kept(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.delenv("GRADLAB_DATA", raising=False)
        assert gl.data.data_folder() == tmp_path / "gradlab" / "data"
        monkeypatch.setenv("GRADLAB_DATA", str(tmp_path / "own"))
        assert gl.data.data_folder() == tmp_path / "own"
        assert gl.data.data_folder("~/x") == gl.data.data_folder(os.path.expanduser("~/x"))

    def test_a_bar(self, server, tmp_path, monkeypatch):
        screen = io.StringIO()
        screen.isatty = lambda: True
        monkeypatch.setattr(fetching.sys, "stderr", screen)
        download(f"{server.url}/x.bin", tmp_path)
        assert "x.bin: 100%" in screen.getvalue()
        assert "1.28M/1.28M" in screen.getvalue()
        download(f"{server.url}/x.bin", tmp_path / "again", progress=False)
        assert screen.getvalue().count("100%") == 1

    def test_a_process_that_is_killed(self, server, tmp_path):
        server.breaks = [500_000]
        program = (
            "import gradlab as gl, os, sys\nfrom gradlab.data.downloads import fetching\n"
            "fetching.TRIES = 1\nfetching.os.replace = lambda *_: os._exit(9)\n"
            f"gl.data.download({server.url + '/x.bin'!r}, {str(tmp_path)!r})\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", program], env=environment, check=False, capture_output=True, timeout=60)
        assert download(f"{server.url}/x.bin", tmp_path).read_bytes() == CONTENT
        assert server.asked[-1][1] == "bytes=500000-"


# ---------------------------------------------------------------- known data sets


def idx(array: np.ndarray) -> bytes:
    kind = {"u1": 0x08, "i4": 0x0C, "f4": 0x0D}[array.dtype.str[1:]]
    return bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(array.dtype.newbyteorder(">")).tobytes()


def test_idx_files(tmp_path):
    path = tmp_path / "x"
    for array in (np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(4, dtype=np.int32), np.linspace(0, 1, 5, dtype=np.float32)):
        for content in (idx(array), gzip.compress(idx(array))):
            path.write_bytes(content)
            found = read_idx(path)
            assert found.dtype == array.dtype
            assert np.array_equal(found, array)
    whole = gzip.compress(idx(np.arange(6, dtype=np.uint8)))
    for content, message in (
        (b"", "is no IDX file: it begins with nothing"), (b"\x89PNG", "it begins with 89 50 4e 47"), (whole[:-9], "damaged"),
        (idx(np.arange(6, dtype=np.uint8))[:-1], r"is damaged: it is 13 bytes long, not the 14 of \(6,\)"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(DownloadError, match=message):
            read_idx(path)


IMAGES = np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8)
LABELS = np.array([3, 0, 9, 1, 2, 3, 4], np.uint8)


@pytest.fixture
def mirror(tmp_path):
    """A folder that has small files in the format of the known ones."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    for part, count in (("train", 7), ("t10k", 3)):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES[:count])))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS[:count])))
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, seed in (("data_batch_1", 1), ("data_batch_2", 2), ("test_batch", 3)):
            records = np.random.default_rng(seed).integers(0, 256, (4, 3073), np.uint8)
            records[:, 0] %= 10
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = records.nbytes
            archive.addfile(member, io.BytesIO(records.tobytes()))
    return folder


@pytest.mark.parametrize("kind", [gl.data.MNIST, gl.data.FashionMNIST])
class TestDigitsAndClothes:
    @pytest.mark.parametrize("address", [lambda folder: folder, lambda folder: f"file://{folder}"])
    def test_from_a_mirror(self, kind, mirror, tmp_path, address):
        training = kind(tmp_path / "kept", mirror=address(mirror), check=False)
        assert np.array_equal(training.data, IMAGES)
        assert training.targets.tolist() == LABELS.tolist()
        image, label = training[2]
        assert image.shape == (28, 28, 1)
        assert label == 9
        assert len(training.classes) == 10
        assert training.class_to_idx[training.classes[4]] == 4
        test = kind(tmp_path / "kept", train=False, mirror=address(mirror), check=False, transform=gl.transforms.ToTensor())
        assert len(test) == 3
        images, labels = next(iter(gl.utils.data.DataLoader(test, batch_size=3)))
        assert images.shape == (3, 1, 28, 28)
        assert labels.tolist() == [3, 0, 9]
        assert "3 test images, 10 classes" in repr(test)
        again = kind(tmp_path / "kept", download=False, check=False)  # by now the files are there
        assert len(again) == 7

    def test_files_that_are_not_the_known_ones(self, kind, mirror, tmp_path):
        with pytest.raises(DownloadError, match=r"its SHA-256 is .*, or pass check=False \(--no-check\) for files of your own"):
            kind(tmp_path / "kept", mirror=mirror)
        assert not list((tmp_path / "kept").rglob("*.gz"))

    def test_files_that_are_not_there(self, kind, tmp_path):
        with pytest.raises(DownloadError, match=r"train-images-idx3-ubyte.gz is not there; pass download=True, or put the file there"):
            kind(tmp_path, download=False)
        with pytest.raises(DownloadError, match=r"train-images-idx3-ubyte.gz cannot be had .*No such file"):
            kind(tmp_path, mirror=tmp_path / "none")

    def test_files_that_are_damaged(self, kind, mirror, tmp_path):
        labels = mirror / "train-labels-idx1-ubyte.gz"
        for array, message in ((LABELS[:5], "7 images, but 5 classes"), (LABELS + 9, "classes are 0 to 9, there is 18")):
            labels.write_bytes(gzip.compress(idx(array)))
            with pytest.raises(DownloadError, match=message):
                kind(tmp_path / str(len(array)), mirror=mirror, check=False)


class TestCIFAR10:
    def test_from_a_mirror(self, mirror, tmp_path, server):
        server.files["/sets/cifar-10-binary.tar.gz"] = (mirror / "cifar-10-binary.tar.gz").read_bytes()
        training = gl.data.CIFAR10(tmp_path / "kept", mirror=f"{server.url}/sets/", check=False)
        records = np.concatenate([np.random.default_rng(seed).integers(0, 256, (4, 3073), np.uint8) for seed in (1, 2)])
        assert training.data.shape == (8, 32, 32, 3)
        assert np.array_equal(training.data, records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        assert training.targets.tolist() == (records[:, 0] % 10).tolist()
        assert training.classes[3] == "cat"
        assert len(gl.data.CIFAR10(tmp_path / "kept", train=False, check=False)) == 4

    def test_what_is_damaged(self, mirror, tmp_path):
        whole = (mirror / "cifar-10-binary.tar.gz").read_bytes()
        for content in (whole[: len(whole) // 2], b"no archive", gzip.compress(b"\0" * 1024)):
            (mirror / "cifar-10-binary.tar.gz").write_bytes(content)
            with pytest.raises(DownloadError, match=r"is damaged|holds no data_batch files"):
                gl.data.CIFAR10(mirror, check=False)
        with pytest.raises(DownloadError, match="is damaged, or another file"):
            gl.data.CIFAR10(mirror)


class TestShell:
    """`gradlab train` with names and addresses; the program is called in this process."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    def test_a_known_data_set(self, mirror, capsys):
        options = ["train", "images", "fashion-mnist", "--mirror", str(mirror), "--data-dir", "kept", "--model", "mlp", "--epochs", "1"]
        assert main(options) == 1
        assert "or pass check=False (--no-check)" in capsys.readouterr().err
        assert not os.listdir("runs")
        assert main([*options, "--no-check", "--out", "run"]) == 0
        assert "7 images to train on, 3 held out; 10 classes; grey, 28x28" in capsys.readouterr().out
        assert main(["train", "--resume", "run", "--epochs", "2"]) == 0
        assert os.path.exists("kept/FashionMNIST/raw/t10k-labels-idx1-ubyte.gz")

    def test_an_address(self, server, capsys):
        lines = [f"{i},{i % 3},{'ab'[i % 2]}" for i in range(20)]
        server.files["/t.csv"] = "\n".join(["x,y,z", *lines]).encode()
        assert main(["train", "table", f"{server.url}/t.csv", "--target", "z", "--data-dir", "kept", "--epochs", "1"]) == 0
        assert "/t.csv is kept as kept/t.csv" in capsys.readouterr().out
        assert main(["train", "table", f"{server.url}/u.csv", "--target", "z", "--data-dir", "kept"]) == 1
        assert "there is no such file" in capsys.readouterr().err
        assert os.listdir("kept") == ["t.csv"]
        assert main(["train", "table", "http://example.org/t.csv", "--target", "z"]) == 1
        assert "could be anybody's" in capsys.readouterr().err


def test_known_checksums_are_checksums():
    for kind in (gl.data.MNIST, gl.data.FashionMNIST, gl.data.CIFAR10):
        assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in kind.files.values())
        assert all(mirror.startswith("https://") for mirror in kind.mirrors)
