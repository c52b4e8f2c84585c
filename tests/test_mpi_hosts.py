"""Several machines on one: network namespaces with addresses and names of their own, a link that is slow or cut, a rank that is killed.

What is slow is so by Linux's traffic control (`tc`): netem with 5 ms each way and 20 Mbit a second, or tbf with 20 Mbit a second alone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from test_mpi import HERE, MPIEXEC, pytestmark as needs_mpi

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
REASON = "network namespaces need root and ip"
pytestmark = [needs_mpi, pytest.mark.slow, pytest.mark.skipif(not (ROOT and shutil.which("ip")), reason=REASON)]
AGENT = """#!/bin/bash
host=$1; shift
exec ip netns exec "gradlab-${host##*.}" unshare -u bash -c "hostname host${host##*.}; $*"
"""
NET = "10.77.1.0/24"


def system(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


def ip(*words):
    return system("ip", *words)


def end_all():
    """Kill what runs on the machines: mpiexec itself would wait for one that it does not reach any more."""
    for n in ("1", "2"):
        for number in ip("netns", "pids", f"gradlab-{n}").stdout.split():
            os.kill(int(number), signal.SIGKILL)


@pytest.fixture
def machines():
    """Two namespaces, 10.77.1.1 and 10.77.1.2."""
    if ip("netns", "add", "gradlab-1").returncode:
        pytest.skip("no network namespaces here")
    ip("netns", "add", "gradlab-2")
    ip("link", "add", "glv1", "type", "veth", "peer", "name", "glv2")
    for n in ("1", "2"):
        ip("link", "set", f"glv{n}", "netns", f"gradlab-{n}")
        ip("-n", f"gradlab-{n}", "addr", "add", f"10.77.1.{n}/24", "dev", f"glv{n}")
        ip("-n", f"gradlab-{n}", "link", "set", f"glv{n}", "up")
        ip("-n", f"gradlab-{n}", "link", "set", "lo", "up")
    yield
    end_all()
    for n in ("1", "2"):
        ip("netns", "delete", f"gradlab-{n}")


class Run:
    """A training on the two machines."""

    def __init__(self, place, folder, **environment):
        agent = place / "agent"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        command = [
            MPIEXEC, "--allow-run-as-root", "--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", NET,
            "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", NET,
            "--host", "10.77.1.1:1,10.77.1.2:1", "-x", "PYTHONPATH", "-x", "LIMIT", "-n", "2", sys.executable,
            str(HERE / "mpi_programs" / "hosts.py"), str(folder),
        ]  # fmt: skip
        known = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)]), "OPENBLAS_NUM_THREADS": "1", "LIMIT": "2"}
        known |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **environment}
        self.said = place / f"said-{time.monotonic_ns()}"
        with open(self.said, "w", encoding="utf-8") as out:
            first = ["ip", "netns", "exec", "gradlab-1", "unshare", "-u", "bash", "-c", 'hostname host1; exec "$@"', "bash"]
            self.child = subprocess.Popen([*first, *command], env=known, stdout=out, stderr=subprocess.STDOUT)

    def text(self):
        return self.said.read_text(encoding="utf-8")

    def until(self, word, times, seconds=120.0):
        """Until that was said so often, or the run is over."""
        begun = time.monotonic()
        while self.text().count(word) < times and self.child.poll() is None and time.monotonic() < begun + seconds:
            time.sleep(0.05)
        assert self.text().count(word) >= times, self.text()

    def ended(self, seconds=60.0):
        """Its exit code, after what is left of it was killed."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            end_all()
            return self.child.wait(30)

    def through(self):
        """The digest of the parameters, which both have."""
        code = self.ended(300)
        assert code == 0, self.text()
        digests = re.findall(r"host[12]: is through: (\w+)", self.text())
        assert len(digests) == 2 and len(set(digests)) == 1, self.text()
        return digests[0]

    def began(self):
        return int(re.findall(r"begins with step (\d+)", self.text())[0])


def whole(place):
    """What a run that nothing disturbs ends with."""
    folder = place / "whole"
    folder.mkdir()
    return Run(place, folder, LIMIT="60").through()


def test_a_cut_link_ends_training_with_who_is_missing_and_it_goes_on(machines, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    run = Run(tmp_path, folder)
    run.until("under way", 2)
    ip("-n", "gradlab-2", "link", "set", "glv2", "down")
    run.until("rank 0 has waited 2 s for rank 1, which has not come", 1, 60)
    run.ended(5)
    ip("-n", "gradlab-2", "link", "set", "glv2", "up")
    again = Run(tmp_path, folder, LIMIT="60")
    found = again.through()
    assert 10 <= again.began() < 60
    assert found == whole(tmp_path)


def test_a_killed_rank_ends_training_and_it_goes_on(machines, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    run = Run(tmp_path, folder, LIMIT="60")
    run.until("under way", 2)
    there = ip("netns", "pids", "gradlab-2").stdout.split()
    (victim,) = [n for n in there if system("ps", "-o", "args=", "-p", n).stdout.startswith(f"{sys.executable} {HERE / 'mpi_programs'}")]
    os.kill(int(victim), signal.SIGKILL)
    assert run.ended() != 0
    assert any(word in run.text() for word in ("rank 1", "signal 9", "Peer host:  host2")), run.text()  # whoever notices first
    again = Run(tmp_path, folder, LIMIT="60")
    found = again.through()
    assert 10 <= again.began() < 60
    assert found == whole(tmp_path)


def slowed(n):
    """Whether a machine's end of the link is slow from here on: netem delays too, tbf, which more kernels have, only holds back."""
    begin = ("netns", "exec", f"gradlab-{n}", "tc", "qdisc", "add", "dev", f"glv{n}", "root")
    ways = (("netem", "delay", "5ms", "rate", "20mbit"), ("tbf", "rate", "20mbit", "burst", "16kbit", "latency", "400ms"))
    return shutil.which("tc") is not None and any(ip(*begin, *way).returncode == 0 for way in ways)


def test_a_slow_link_changes_nothing_but_the_time(machines, tmp_path):
    if not all(slowed(n) for n in ("1", "2")):
        pytest.skip("no tc with netem or tbf here")
    folder = tmp_path / "run"
    folder.mkdir()
    slow = Run(tmp_path, folder, LIMIT="60").through()
    for n in ("1", "2"):
        ip("netns", "exec", f"gradlab-{n}", "tc", "qdisc", "delete", "dev", f"glv{n}", "root")
    assert slow == whole(tmp_path)
