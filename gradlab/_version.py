"""The version, written down once: the package, the wheel and `gradlab info` all read it here."""

__version__ = "0.1.0"
