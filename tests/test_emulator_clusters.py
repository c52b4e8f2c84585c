"""Clusters of blocks on the emulated GPU: shared memory of other blocks, barriers of a cluster, and planted faults with them."""

import numpy as np
import pytest
from emulated import FAULTS, compiled, fault, guarded

from gradlab.backends.cuda.emulator import ORDERS, KernelFault
from gradlab.backends.native.toolchain import CompileError

NAMES = (
    "right", "before_it_begins", "no_barrier", "one_box", "after_it_ends", "write_after_it_ends", "part_of_a_block", "part_of_a_warp",
    "no_such_block", "not_shared", "beside",
)  # fmt: skip
ROUNDS, BLOCKS = 5, 8


def kernels(**options):
    return dict(zip(NAMES, compiled((FAULTS / "clusters.cu").read_text(encoding="utf-8"), *NAMES, label="clusters.cu", **options)))


@pytest.fixture(scope="module")
def ring():
    return kernels(races=False)


def ran(kernel, order="forward", seed=0):
    y = guarded((64 * BLOCKS,), "float32")
    kernel.run((BLOCKS,), (64,), y, np.int32(ROUNDS), order=order, seed=seed)
    return np.array(y)


def expected():
    values = np.arange(64 * BLOCKS, dtype=np.float32).reshape(-1, 4, 64)
    for _ in range(ROUNDS):
        values = np.roll(values, 1, axis=1)[:, :, ::-1]
    return values.reshape(-1)


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_write_into_each_others_shared_memory(ring, order):
    for seed in range(3):
        np.testing.assert_array_equal(ran(ring["right"], order, seed), expected())


@pytest.mark.parametrize("name", ["no_barrier", "one_box"])
def test_a_missing_barrier_of_the_cluster(ring, name):
    def wrong(order, seed):
        return not np.array_equal(ran(ring[name], order, seed), expected())

    assert any(wrong(order, seed) for order in ("random", "warps") for seed in range(4))


def test_a_block_that_has_not_begun(ring):
    assert np.isnan(ran(ring["before_it_begins"])).any()  # what was written is lost


@pytest.mark.parametrize("name", ["after_it_ends", "write_after_it_ends"])
def test_a_block_that_has_ended(ring, name):
    for order in ORDERS:
        try:
            found = ran(ring[name], order)
        except KernelFault as error:
            assert "barrier of the cluster is missing before its end" in error.reason
        else:
            assert name == "after_it_ends" and np.isnan(found).any()  # where accesses are not checked


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("part_of_a_block", "divergent barrier: the thread waits in __syncthreads, while thread"),
        ("part_of_a_warp", "divergent cluster barrier: all lanes of a warp come to the same one"),
        ("no_such_block", "shared memory of block 4 of a cluster of 4 is asked for"),
        ("not_shared", "it is none in the block's own shared memory"),
        ("beside", "a write beside the shared variable `box`"),
    ],
)
def test_what_a_cluster_may_not(ring, name, words):
    for order in ORDERS:
        y = guarded((64 * BLOCKS,), "float32")
        assert words in fault(ring[name], (BLOCKS,), (64,), y, np.int32(ROUNDS), order=order).reason


def test_launches_of_clusters_are_checked(ring):
    y, rounds = guarded((64 * BLOCKS,), "float32"), np.int32(1)
    assert ring["right"].cluster == (4, 1, 1)
    assert "no multiple of the cluster" in fault(ring["right"], (6,), (64,), y, rounds).reason
    assert "not of whole warps" in fault(ring["right"], (4,), (40,), y, rounds).reason
    text = 'extern "C" __global__ void __cluster_dims__({}) k(float* y) {{ y[blockIdx.y * 8 + blockIdx.x] = 1.0f; }}'
    (large,) = compiled(text.format("16, 1, 1"), "k")
    assert "more than 8 blocks" in fault(large, (16,), (32,), y).reason
    (flat,) = compiled(text.format("2, 2"), "k")
    assert flat.cluster == (2, 2, 1)
    flat.run((4, 2), (32,), y)
    with pytest.raises(CompileError, match="cannot read __cluster_dims__"):
        compiled(text.format("SIZE, 1"), "k")


@pytest.mark.slow
def test_races_between_blocks_of_a_cluster():
    racing = kernels(races=True)
    np.testing.assert_array_equal(ran(racing["right"]), expected())
    for name in ("no_barrier", "one_box"):
        reason = fault(racing[name], (BLOCKS,), (64,), guarded((64 * BLOCKS,), "float32"), np.int32(ROUNDS)).reason
        assert "a race" in reason and "a barrier of the cluster between them, is missing" in reason
