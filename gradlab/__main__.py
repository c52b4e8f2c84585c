"""`python -m gradlab` is the same program as the `gradlab` script."""

import sys

from gradlab.cli import main

if __name__ == "__main__":
    sys.excepthook = sys.__excepthook__  # see the beginning of gradlab/__init__.py
    raise SystemExit(main())
