"""Where the program `gradlab` begins: beside the package, since whoever imports a module of a package imports the package.

What can be said without the engine (`--version`, `--help`, what is wrong with a command line) is said before it is imported: the shell's
own modules are loaded into an empty package first, which then makes room for the real one.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C


def main() -> int:
    """Runs the program on sys.argv; its exit code."""
    try:
        code = said_at_once()
        return int(import_module("gradlab.cli").main() if code is None else code)
    except KeyboardInterrupt:  # while modules are imported
        if sys.stderr is not None:
            sys.stderr.write("gradlab: interrupted\n")
        return INTERRUPTED


def said_at_once() -> "int | None":
    """The exit code where all is said; None where the engine is needed. Nothing stays behind of what was loaded."""
    spec = find_spec("gradlab")
    if spec is None:
        raise ModuleNotFoundError("gradlab is not installed")
    sys.modules["gradlab"] = module_from_spec(spec)
    try:
        code: int | None = import_module("gradlab.cli").at_once(sys.argv[1:])
        return code
    finally:
        for name in [name for name in sys.modules if name == "gradlab" or name.startswith("gradlab.")]:
            del sys.modules[name]
