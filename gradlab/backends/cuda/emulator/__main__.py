"""`python -m gradlab.backends.cuda.emulator SANITIZERS script.py ...`: a script whose emulated kernels run under sanitizers."""

from __future__ import annotations

import sys

from gradlab.backends.cuda.emulator.sanitizer import SANITIZERS, run_sanitized


def main(arguments: list[str]) -> int:
    """Run the script; its exit code, or the sanitizer's 66."""
    if len(arguments) < 2 or arguments[0] not in SANITIZERS:
        print(f"usage: python -m gradlab.backends.cuda.emulator {{{' | '.join(SANITIZERS[1:])}}} script.py [argument ...]", file=sys.stderr)
        return 2
    done = run_sanitized(arguments[1:], sanitize=arguments[0], timeout=86400)
    print(done.output, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
