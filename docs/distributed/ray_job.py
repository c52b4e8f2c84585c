"""Training on machines that Ray has: it keeps four of them for the job, and mpiexec starts the processes there by their addresses."""

import subprocess

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

HOSTS, PROCESSES_EACH = 4, 8


@ray.remote(num_cpus=PROCESSES_EACH, max_retries=0)
def address():
    return ray.util.get_node_ip_address()


@ray.remote(num_cpus=0, max_retries=3)  # started anew where a process or a machine dies: train.py goes on from its last checkpoint
def train(hosts):
    listed = ",".join(f"{host}:{PROCESSES_EACH}" for host in hosts)
    command = ["mpiexec", "--host", listed, "-n", str(HOSTS * PROCESSES_EACH), "python", "train.py", "--checkpoints", "/shared/digits"]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    ray.init(address="auto")
    group = placement_group([{"CPU": PROCESSES_EACH}] * HOSTS, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    places = [PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=i) for i in range(HOSTS)]
    addresses = ray.get([address.options(scheduling_strategy=place).remote() for place in places])
    ray.get(train.remote(addresses))
