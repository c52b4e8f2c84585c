"""What CI installs, as a bill of materials: `python -m tests.bill_of_materials FILE` writes CycloneDX 1.6 of `.ci/requirements.txt`.

Each package with its version, the SHA-256 of every file that pip may take for it, and its licence as far as it is installed and says one.
Made here and not by pip-audit, whose bill holds only what its service answered for: without one it is empty.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / ".ci/requirements.txt"


def requirements(text: str) -> dict[tuple[str, str], list[str]]:
    """(name, version) -> hashes, of a file of pinned requirements."""
    found: dict[tuple[str, str], list[str]] = {}
    hashes: list[str] = []
    for line in text.splitlines():
        if pinned := re.match(r"([\w.-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line):
            hashes = found[pinned[1].lower(), pinned[2]] = []
        hashes += re.findall(r"sha256:([0-9a-f]{64})", line)
    return found


def licence(name: str) -> str:
    """What an installed package says of its licence; "" where it is not installed or says nothing."""
    try:
        told = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    of_class = [c.rpartition(" :: ")[2] for c in told.get_all("Classifier") or () if c.startswith("License ::")]
    long = (told.get("License") or "").strip().partition("\n")[0]
    return told.get("License-Expression") or ("; ".join(of_class) if of_class else long[:80])


def component(name: str, version: str, hashes: list[str]) -> dict[str, Any]:
    """One package."""
    made: dict[str, Any] = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    made["hashes"] = [{"alg": "SHA-256", "content": one} for one in hashes]
    if found := licence(name):
        made["licenses"] = [{"license": {"name": found}}]
    return made


def bill() -> dict[str, Any]:
    """The whole, in the order of the file."""
    found = requirements(REQUIREMENTS.read_text(encoding="utf-8"))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": [component(*key, h) for key, h in found.items()]}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
    parts = json.loads(place.read_text(encoding="utf-8"))["components"]
    print(f"{place}: {len(parts)} packages, {sum('licenses' in p for p in parts)} with a licence")
