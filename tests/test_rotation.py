"""Every test that is left out belongs to one sixth, a commit runs one sixth, and its order is its own."""

import subprocess
import sys

from rotation import PARTS, Clock, chosen, part_of

from repository import ROOT

TESTS = [f"tests/test_{i % 7}.py::test[{i}]" for i in range(600)]


def test_sixths_are_all_tests_and_none_twice():
    by_part = {part_of(commit): chosen(TESTS, commit) for commit in map(str, range(40))}
    assert len(by_part) == PARTS
    together = [t for tests in by_part.values() for t in tests]
    assert sorted(together) == sorted(TESTS) and min(map(len, by_part.values())) > 60


def test_a_commit_has_its_own_order():
    commits = [c for c in map(str, range(40)) if part_of(c) == 2][:2]
    first, second = (chosen(TESTS, c) for c in commits)
    assert first == chosen(TESTS, commits[0]) and first != second and sorted(first) == sorted(second)


def test_the_clock_begins_nothing_after_its_end():
    assert Clock(60).pytest_runtest_protocol(None) is None
    late = Clock(-1)
    assert late.pytest_runtest_protocol(None) is True and late.not_begun == 1


def test_a_rotating_run_takes_tests_that_are_left_out():
    options = ["-q", "-p", "no:cacheprovider", "--collect-only", "--rotating", "0", "tests/test_cuda_attention.py"]
    said = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "deselected" in said.stdout and "::" in said.stdout
