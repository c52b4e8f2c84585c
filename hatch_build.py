"""A wheel for one system where GRADLAB_WHEEL names it: with the libraries of build/prebuilt/<system>, which
`python -m gradlab.testing.prebuilt <system>` makes before. Otherwise the wheel is pure Python, for every system.
"""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TAGS = {
    "x86_64-linux": "manylinux_2_28_x86_64",
    "aarch64-linux": "manylinux_2_28_aarch64",
    "aarch64-macos": "macosx_11_0_arm64",
    "x86_64-windows": "win_amd64",
}


class CustomBuildHook(BuildHookInterface):
    """Puts prebuilt libraries into wheels."""

    def initialize(self, version, build_data):
        system = os.environ.get("GRADLAB_WHEEL")
        if not system or version == "editable":
            return
        if system not in TAGS:
            raise ValueError(f"GRADLAB_WHEEL is {system!r}; it is one of {', '.join(TAGS)}")
        folder = Path(os.environ.get("GRADLAB_PREBUILT") or Path(self.root, "build", "prebuilt", system))
        libraries = sorted(folder.glob("*")) if folder.is_dir() else []
        if not libraries:
            raise FileNotFoundError(f"{folder} has no libraries: run python -m gradlab.testing.prebuilt {system}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{TAGS[system]}"
        build_data["force_include"].update({str(path): f"gradlab/kernels/prebuilt/{path.name}" for path in libraries})
