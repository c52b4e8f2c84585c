"""Files of weights from addresses, kept where PyTorch keeps them, and models that a folder of source code offers in its `hubconf.py`."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse as urlparse  # timm takes it from here, and HASH_REGEX
from urllib.request import Request

from gradlab.utils.addresses import expect_safe, opener
from gradlab.utils.serialization import load as read

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

try:
    from tqdm.auto import tqdm as tqdm  # PyTorch's users take it from here
except ImportError:
    from gradlab.utils.progress import tqdm as tqdm

HASH_REGEX = re.compile(r"-([a-f0-9]{8,})\.")  # in a file's name: the beginning of its SHA-256
_CHUNK = 1 << 20
_dir: str | None = None


def _get_torch_home() -> str:
    """The folder of PyTorch's that `TORCH_HOME` names, or `torch` among the user's caches."""
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(caches, "torch")))


def get_dir() -> str:
    """The folder in which files are kept: what `set_dir` said, else `hub` in `$TORCH_HOME` or in `~/.cache/torch`."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keep files in the folder `d`, which begins with `~` for the home folder."""
    global _dir
    _dir = os.path.expanduser(os.fspath(d))


def download_url_to_file(url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetch `url` into the file `dst`, which is there only when all of it has arrived.

    hash_prefix: how the SHA-256 of the content begins, in hexadecimal digits; RuntimeError where it does not. progress: say on stderr
    what is fetched. ValueError for http:// of other machines, whose answer could be anybody's; what `urllib` raises where nothing is found.
    """
    expect_safe(url)
    target = Path(dst).expanduser()
    if progress:
        print(f"{url} -> {target}", file=sys.stderr)
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as part:
        try:
            with opener(url).open(Request(url, headers={"User-Agent": "gradlab.hub"})) as source:
                while piece := source.read(_CHUNK):
                    digest.update(piece)
                    part.write(piece)
            part.flush()
            os.fsync(part.fileno())
            part.close()
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f"download_url_to_file: {url} has the SHA-256 {digest.hexdigest()}, not {hash_prefix}…")
            os.replace(part.name, target)
        finally:
            Path(part.name).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """`gl.load` of the file at `url`, which is fetched once and then kept in `model_dir` (default: `checkpoints` in `get_dir()`).

    check_hash: the file's name ends with the beginning of its SHA-256, as `resnet18-5c106cde.pth` does, and it has to be so; RuntimeError
    where it is not. file_name: under which name it is kept (default: that of the address). The rest as in `gl.load`.
    """
    folder = Path(get_dir(), "checkpoints") if model_dir is None else Path(model_dir)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / (file_name or Path(urlparse(url).path).name)
    if not kept.exists():
        said = HASH_REGEX.search(kept.name) if check_hash else None
        download_url_to_file(url, kept, said.group(1) if said else None, progress)
    return read(kept, map_location, weights_only=weights_only)


def _offered(name: str, repo_or_dir: str | os.PathLike[str], source: str) -> dict[str, Callable[..., Any]]:
    """What a folder's `hubconf.py` offers: its functions whose names have no `_` in front."""
    if source != "local":
        raise NotImplementedError(
            f"hub.{name}: code of others is not fetched and run; clone {os.fspath(repo_or_dir)!r} with git, look at it, and pass the "
            "folder with source='local'"
        )
    folder = Path(repo_or_dir).expanduser().resolve()
    module = _hubconf(name, folder)
    missing = [package for package in getattr(module, "dependencies", ()) if package not in sys.modules and find_spec(package) is None]
    if missing:
        raise RuntimeError(f"hub.{name}: {folder} needs packages that are not installed: {', '.join(missing)}")
    return {key: value for key, value in vars(module).items() if callable(value) and not key.startswith("_")}


def _hubconf(name: str, folder: Path) -> ModuleType:
    file = folder / "hubconf.py"
    if not file.exists():
        raise FileNotFoundError(f"hub.{name}: there is no hubconf.py in {folder}")
    spec = spec_from_file_location("hubconf", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def load(repo_or_dir: str | os.PathLike[str], model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """What the function `model` of the folder's `hubconf.py` returns for the other arguments.

    source: "local"; NotImplementedError for "github". PyTorch's `trust_repo`, `force_reload`, `verbose` and `skip_validation` change
    nothing here. FileNotFoundError without a `hubconf.py`, RuntimeError for packages that it needs and a function that it has not.
    """
    offered = _offered("load", repo_or_dir, source)
    for name in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(name, None)
    return _entry("load", offered, model)(*args, **kwargs)


def _entry(name: str, offered: dict[str, Callable[..., Any]], model: str) -> Callable[..., Any]:
    if model not in offered:
        raise RuntimeError(f"hub.{name}: hubconf.py offers no {model!r}; it offers {', '.join(offered)}")
    return offered[model]


def list(
    github: str | os.PathLike[str], force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None, verbose: bool = True,
    source: str = "github",
) -> Any:  # fmt: skip
    """The names that a folder's `hubconf.py` offers. As `load`, only with source="local", which PyTorch has not here."""
    return [*_offered("list", github, source)]


def help(
    github: str | os.PathLike[str], model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None,
    source: str = "github",
) -> str | None:  # fmt: skip
    """What the function `model` of a folder's `hubconf.py` says of itself. As `load`, only with source="local"."""
    return _entry("help", _offered("help", github, source), model).__doc__
