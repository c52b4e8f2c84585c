"""Tests by kind of fault: one file per kind, over all functions, methods, modules or ways; a new one is in it by being public."""
