"""gl.hub: weights from an address, kept on disk, and models that a folder's hubconf.py offers."""

import hashlib
import sys

import pytest

import gradlab as gl
from gradlab import hub
from gradlab.utils.progress import tqdm


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A folder for what is fetched, and a file of weights with an address."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(hub, "_dir", None)
    gl.save({"w": gl.arange(3.0)}, tmp_path / "weights.pt")
    return tmp_path


def test_weights_are_fetched_once(kept, capsys):
    address = (kept / "weights.pt").as_uri()
    assert hub.load_state_dict_from_url(address)["w"].tolist() == [0, 1, 2]
    (kept / "weights.pt").unlink()
    assert hub.load_state_dict_from_url(address, map_location="cpu")["w"].tolist() == [0, 1, 2]
    assert (kept / "home/hub/checkpoints/weights.pt").exists() and address in capsys.readouterr().err
    hub.set_dir(kept / "other")
    assert hub.get_dir() == str(kept / "other")
    with pytest.raises(OSError, match="No such file"):
        hub.load_state_dict_from_url(address, progress=False)


def test_check_sums(kept):
    content = (kept / "weights.pt").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    for name, right in ((f"net-{digest[:8]}.pt", True), ("net-01234567.pt", False)):
        (kept / name).write_bytes(content)
        address = (kept / name).as_uri()
        if right:
            assert list(hub.load_state_dict_from_url(address, kept / "in", check_hash=True, progress=False)) == ["w"]
        else:
            with pytest.raises(RuntimeError, match="not 01234567"):
                hub.load_state_dict_from_url(address, kept / "in", check_hash=True, progress=False)
    assert [p.name for p in (kept / "in").iterdir()] == [f"net-{digest[:8]}.pt"]  # nothing of the wrong one is left


def test_what_anybody_could_send_is_not_fetched(kept):
    for address in ("http://example.com/weights.pt", "ftp://example.com/weights.pt", "data:text/plain,x"):
        with pytest.raises(ValueError, match="https://"):
            hub.download_url_to_file(address, kept / "w.pt", progress=False)
        with pytest.raises(ValueError, match="https://"):
            hub.load_state_dict_from_url(address, kept / "in", file_name="w.pt", progress=False)
    assert not (kept / "w.pt").exists() and not list((kept / "in").iterdir())


def test_models_of_a_folder(tmp_path):
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['numpy']\nimport gradlab as gl\n\n"
        "def small(width=2):\n    'A small one.'\n    return gl.nn.Linear(width, 1)\n\ndef _hidden(): pass\n"
    )
    assert hub.load(tmp_path, "small", source="local", width=4, trust_repo=True).in_features == 4
    assert hub.list(tmp_path, source="local") == ["small"] and hub.help(tmp_path, "small", source="local") == "A small one."
    assert str(tmp_path) not in sys.path
    with pytest.raises(RuntimeError, match="no 'large'; it offers small"):
        hub.load(tmp_path, "large", source="local")
    with pytest.raises(NotImplementedError, match="clone 'pytorch/vision'"):
        hub.load("pytorch/vision", "resnet18")
    with pytest.raises(FileNotFoundError, match="no hubconf"):
        hub.list(tmp_path / "nothing", source="local")
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_package']\n")
    with pytest.raises(RuntimeError, match="no_such_package"):
        hub.list(tmp_path, source="local")


def test_progress_counts():
    with tqdm([1, 2], total=2, desc="x") as bar:
        assert list(bar) == [1, 2] and bar.n == 2
        bar.update(3)
    assert bar.n == 5
