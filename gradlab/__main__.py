"""`python -m gradlab` is the same program as the `gradlab` script."""

from gradlab.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
