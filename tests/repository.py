"""Where the repository is and which files belong to it, for the tests that look at the project itself."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Without git (an unpacked sdist) everything but these belongs to the project.
SKIPPED = {"__pycache__", "build", "dist", "runs", "PKG-INFO"}


def project_files(*folders: str) -> list[str]:
    """Paths relative to ROOT, with forward slashes, of the files that belong to the project, or to some folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders]
    try:
        # A file may be deleted but still tracked, hence is_file below.
        if not (ROOT / ".git").exists():
            raise FileNotFoundError(".git")
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    except (FileNotFoundError, subprocess.CalledProcessError):
        starts = [ROOT / folder for folder in folders] or [ROOT]
        paths = [path.relative_to(ROOT) for start in starts for path in sorted(start.rglob("*"))]
        listed = [path.as_posix() for path in paths if not any(skip(part) for part in path.parts)]
    return [name for name in listed if name and (ROOT / name).is_file()]


def skip(part: str) -> bool:
    """Whether a folder or file of that name is left behind by a tool."""
    return part in SKIPPED or part.endswith((".pyc", ".egg-info")) or (part.startswith(".") and part != ".ci")
