"""Mutants that no test can find, or that none is to find, with the reason: by file, line before and line after (`Mutant.key`)."""

EXPLAINED: dict[str, str] = {}
