"""The examples of docs/distributed: scheduler files are parsed, the script is run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradlab.cli import entry
from gradlab.distributed.rendezvous import LAUNCHERS

FOLDER = Path(__file__).parents[1] / "docs" / "distributed"
PAGE = FOLDER.with_suffix(".md").read_text(encoding="utf-8")


def commands(text):
    """What is given to `gradlab train` in a text, as arguments."""
    return [line.partition("gradlab ")[2].split() for line in text.splitlines() if "gradlab train" in line and not line.startswith("#")]


def test_slurm(tmp_path):
    (tmp_path / "run.json").touch()
    path = FOLDER / "slurm.sh"
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False).stderr == ""
    text = path.read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
    assert {"nodes", "ntasks-per-node", "cpus-per-task", "time"} <= set(options) and "#SBATCH --requeue" in text
    found = commands(text)
    assert len(found) == 2 and LAUNCHERS["srun"] == ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")
    for command in found:
        understood = entry.understood([part.strip('"').replace("$run", str(tmp_path)) for part in command])
        assert isinstance(understood, tuple) and understood[0].name == "train"


def test_kubernetes():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    roles = job["spec"]["mpiReplicaSpecs"]
    launcher, worker = (roles[role]["template"]["spec"]["containers"][0] for role in ("Launcher", "Worker"))
    count = int(launcher["args"][launcher["args"].index("-n") + 1])
    assert count == job["spec"]["slotsPerWorker"] * roles["Worker"]["replicas"] and launcher["command"] == ["mpiexec"]
    assert launcher["image"] == worker["image"] and worker["volumeMounts"] == launcher["volumeMounts"]
    for role in roles.values():
        volumes = {volume["name"] for volume in role["template"]["spec"]["volumes"]}
        assert {mount["name"] for mount in role["template"]["spec"]["containers"][0]["volumeMounts"]} <= volumes


def test_ray():
    tree = ast.parse((FOLDER / "ray_job.py").read_text(encoding="utf-8"))
    called = {node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    assert {"init", "get", "remote", "run"} <= called
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} == {"address", "train"}


def test_the_script_goes_on(tmp_path):
    def said(*arguments):
        command = [sys.executable, str(FOLDER / "train.py"), "--checkpoints", str(tmp_path / "kept"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stderr
        return [line.split(":")[0] for line in done.stdout.splitlines()]

    assert said("--epochs", "1") == ["epoch 1"]
    assert said("--epochs", "2") == ["epoch 2"]


def test_the_page_shows_what_is_there():
    for path in FOLDER.iterdir():
        assert f"distributed/{path.name}" in PAGE, path.name
