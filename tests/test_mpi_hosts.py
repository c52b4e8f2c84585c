"""Several machines on one: network namespaces with addresses and names of their own, and a link that is cut."""

from __future__ import annotations

import os
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


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


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
    for n in ("1", "2"):
        ip("netns", "delete", f"gradlab-{n}")


def test_a_cut_link_ends_training_with_who_is_missing(machines, tmp_path):
    agent = tmp_path / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    net = "10.77.1.0/24"
    command = [
        MPIEXEC, "--allow-run-as-root", "--prtemca", "plm_ssh_agent", str(agent), "--prtemca", "prte_if_include", net,
        "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net,
        "--host", "10.77.1.1:1,10.77.1.2:1", "-x", "PYTHONPATH", "-n", "2", sys.executable,
        str(HERE / "mpi_programs" / "hosts.py"),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    said = tmp_path / "said"
    with open(said, "w", encoding="utf-8") as out:
        first = ["ip", "netns", "exec", "gradlab-1", "unshare", "-u", "bash", "-c", 'hostname host1; exec "$@"', "bash"]
        child = subprocess.Popen([*first, *command], env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 90
        while said.read_text(encoding="utf-8").count("under way") < 2 and child.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        ip("-n", "gradlab-2", "link", "set", "glv2", "down")
        begun = time.monotonic()
        while "host1: all_reduce" not in said.read_text(encoding="utf-8") and child.poll() is None and time.monotonic() < begun + 30:
            time.sleep(0.1)
    finally:
        for n in ("1", "2"):  # mpiexec itself would wait for the machine that it does not reach any more
            for number in ip("netns", "pids", f"gradlab-{n}").stdout.split():
                os.kill(int(number), signal.SIGKILL)
        child.wait(30)
    text = said.read_text(encoding="utf-8")
    assert "host1: under way" in text and "host2: under way" in text, text
    assert "rank 0 has waited 2 s for rank 1, which has not come" in text, text
