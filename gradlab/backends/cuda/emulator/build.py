"""Builds programs: the runtime library once, and each kernel source into a library of its own that links to it."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gradlab.backends.cuda.emulator import bounds
from gradlab.backends.cuda.emulator.source import rewrite_clusters, rewrite_shared, with_exports
from gradlab.backends.native import toolchain
from gradlab.backends.native.seals import intact
from gradlab.backends.native.toolchain import CompileError
from gradlab.progress import waiting

NATIVE = Path(__file__).resolve().parent / "native"
UNITS = ("runtime.cpp", "collectives.cpp", "clusters.cpp", "signals.cpp", "bounds.cpp", "races.cpp", "async_copies.cpp")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)

# Files that make CUDA's headers usable outside CUDA's compiler.
_TOOLKIT_FILES = ("cuda_fp16.h", "cuda_bf16.h", "vector_types.h", "vector_functions.h", "crt/host_defines.h", "nv/target")


def half_headers() -> list[Path | None]:
    """Where the half types may come from, in the order in which a program is tried: None for the emulator's own headers.

    Those have what kernels commonly use, build three times as fast, and are the same on every machine. CUDA's have the rest.
    GRADLAB_EMULATOR_HEADERS=own or =cuda asks for one of them.
    """
    wanted = os.environ.get("GRADLAB_EMULATOR_HEADERS", "")
    if wanted not in {"", "own", "cuda"}:
        raise ValueError(f"GRADLAB_EMULATOR_HEADERS is {wanted!r}; it may be own or cuda")
    found = toolkit_headers() if wanted != "own" else None
    if wanted == "cuda" and found is None:
        raise CompileError(
            "GRADLAB_EMULATOR_HEADERS is cuda, but CUDA's headers are not here: "
            "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
        )
    return ([] if wanted == "cuda" else [None]) + ([found] if found else [])


def toolkit_headers() -> Path | None:
    """CUDA's own headers, from NVIDIA's wheels or a toolkit; None where there are none."""
    places: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        places += [Path(folder, name, "include") for name in ("cu13", "cuda_runtime")]
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            places.append(Path(os.environ[variable], "include"))
    places.append(Path("/usr/local/cuda/include"))
    return next((place for place in places if all((place / name).is_file() for name in _TOOLKIT_FILES)), None)


def fibers() -> str:
    """How threads switch: "assembly" on x86-64, "ucontext" elsewhere or where GRADLAB_EMULATOR_FIBERS asks for it."""
    wanted = os.environ.get("GRADLAB_EMULATOR_FIBERS", "")
    if wanted not in {"", "assembly", "ucontext"}:
        raise ValueError(f"GRADLAB_EMULATOR_FIBERS is {wanted!r}; it may be assembly or ucontext")
    return wanted or ("assembly" if platform.machine() in {"x86_64", "AMD64"} else "ucontext")


def runtime_library(sanitize: str) -> Path:
    """The runtime for a set of sanitizers, built if it is not in the cache."""
    flags = [*toolchain.flags("" if sanitize == "thread" else sanitize), *_definitions(sanitize, toolkit=False)]
    target = toolchain.cache_directory() / f"runtime-{toolchain.digest(_native_text(), *flags)}.so"
    if intact(target):
        return target
    with toolchain.Workshop(target) as workshop:
        objects = [workshop.directory / f"{name}.o" for name in UNITS]
        calls = [[*flags, "-I", NATIVE, "-c", NATIVE / name, "-o", made] for name, made in zip(UNITS, objects)]
        with ThreadPoolExecutor(len(calls)) as pool:
            list(pool.map(lambda call: toolchain.run(call, "the emulator's runtime"), calls))
        named = "-Wl,-install_name," if platform.system() == "Darwin" else "-Wl,-soname,"
        made = workshop.directory / target.name
        # Not linked with -fsanitize: what is preloaded provides it.
        toolchain.run(["-shared", f"{named}{target.name}", "-o", made, *objects, *_link_flags(sanitize)], "the emulator's runtime")
        workshop.deliver(made)
    return target


def runtime_header(flags: tuple[str, ...]) -> Path | None:
    """What stands before every program, in the form that GNU's compiler reads at once, built if it is not in the cache: as text it is most
    of what building a small kernel takes. None for other compilers, and where this one makes none. flags: those of the program."""
    found = toolchain.compiler()
    if found.is_zig or "clang" in found.version:
        return None
    target = toolchain.cache_directory() / f"header-{toolchain.digest(_native_text(), *flags)}.h.gch"
    if not intact(target):
        with toolchain.Workshop(target) as workshop:
            made = workshop.directory / target.name
            try:
                toolchain.run([*flags, "-I", NATIVE, "-x", "c++-header", NATIVE / "runtime.h", "-o", made], "the emulator's header")
                workshop.deliver(made)
            except CompileError:
                return None
    return target.with_suffix("")  # which the compiler looks for as well


def program_library(
    source: str, names: Sequence[str], label: str, include: Sequence[Path], sanitize: str, races: bool = False
) -> Path:
    """A library of a program's kernels, built if it is not in the cache. races: it tells its accesses to races.cpp. Raises CompileError."""
    text = with_exports(source, names, label)
    included = _included_text(source, include)
    common = toolchain.digest(text, _native_text(), *included)
    attempts = [_Attempt(text, label, include, sanitize, headers, common, races) for headers in half_headers()]
    for attempt in attempts:
        if intact(attempt.target):
            return attempt.target
    with waiting(f"compiling {label} for the emulated GPU"):
        return _first(attempts, (text, *included))


def _first(attempts: Sequence[_Attempt], texts: Sequence[str]) -> Path:
    """The first way of building a program that works."""
    for attempt in attempts[:-1]:
        try:
            return attempt.build()
        except CompileError:
            if not any("cuda_fp16.h" in part or "cuda_bf16.h" in part for part in texts):
                raise  # other headers would change nothing
    return attempts[-1].build()


class _Attempt:
    """One way to build a program: with the emulator's own half types, or with CUDA's."""

    def __init__(
        self, text: str, label: str, include: Sequence[Path], sanitize: str, headers: Path | None, common: str, races: bool
    ) -> None:
        self._text, self._label, self._sanitize = text, label, sanitize
        folders = [NATIVE / "headers", *(folder.resolve() for folder in include), *([headers] if headers else [])]
        definitions = _definitions(sanitize, toolkit=headers is not None)
        checks = ["-fsanitize=thread"] if races else bounds.flags(sanitize)  # a compiler puts one kind of check in
        self._flags = [*toolchain.flags(sanitize), *checks, "-fvisibility=hidden", *definitions]
        self._searched = [argument for folder in folders for argument in ("-I", str(folder))]
        self.target = toolchain.cache_directory() / f"program-{toolchain.digest(common, *self._flags, *self._searched)}.so"

    def build(self) -> Path:
        """Preprocess, rewrite, compile and link. The library appears in the cache when it is whole."""
        header = runtime_header(tuple(self._flags))
        if header is not None:
            try:
                return self._build(["-fpch-preprocess"], header)
            except CompileError:  # a mistake in the kernel, which is said once more; or the header can not be used here
                pass
        return self._build([], NATIVE / "runtime.h")

    def _build(self, more: list[str], header: Path) -> Path:
        runtime = runtime_library(self._sanitize)
        with toolchain.Workshop(self.target) as workshop:
            scratch = workshop.directory
            original = scratch / "program.cpp"
            original.write_text(self._text, encoding="utf-8")
            # Debug information names the label as it is, not as a file in the directory of this build.
            flags = [*self._flags, *more, f"-fdebug-prefix-map={scratch}=."]
            preprocessed = toolchain.run([*flags, *self._searched, "-include", header, "-E", original], self._label, scratch)
            rewritten = scratch / "program.ii"
            rewritten.write_text(rewrite_clusters(rewrite_shared(preprocessed)), encoding="utf-8")
            made = scratch / self.target.name
            toolchain.run([*flags, "-c", "-o", scratch / "program.o", rewritten], self._label, scratch)
            # Linked without the flags of checks: with them a compiler would add the thread sanitizer's own library.
            toolchain.run(["-shared", "-o", made, scratch / "program.o", runtime, *_link_flags(self._sanitize)], self._label, scratch)
            workshop.deliver(made)
        return self.target


def _definitions(sanitize: str, toolkit: bool) -> list[str]:
    settings = {
        "TOOLKIT": toolkit,
        "UCONTEXT": fibers() == "ucontext",
        "TSAN": sanitize == "thread",
    }
    return [f"-DGRADLAB_EMULATOR_{name}={int(value)}" for name, value in settings.items()]


def _link_flags(sanitize: str) -> list[str]:
    return [f"-fsanitize={sanitize}"] if sanitize else []


@functools.cache
def _native_text() -> str:
    files = sorted(path for path in NATIVE.rglob("*") if path.suffix in {".h", ".cpp"})
    return "\0".join(f"{path.name}\0{path.read_text(encoding='utf-8')}" for path in files)


def _included_text(text: str, include: Sequence[Path]) -> list[str]:
    """The headers in these directories that a program includes, directly or through others."""
    found: dict[Path, str] = {}
    waiting = [(text, list(include))]
    while waiting:
        including, folders = waiting.pop()
        for name in _INCLUDE.findall(including):
            path = next((folder / name for folder in folders if (folder / name).is_file()), None)
            if path is not None and path not in found:
                found[path] = path.read_text(encoding="utf-8")
                waiting.append((found[path], [path.parent, *include]))
    return [f"{path.name}\0{found[path]}" for path in sorted(found)]
