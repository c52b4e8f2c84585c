"""What this machine can do at most, and the least time that a step's arithmetic and traffic take of it.

Peak arithmetic: float32 multiply-adds on registers alone; memory: STREAM's triad (McCalpin 1995), a = b + s·c over arrays far beyond the
caches, counted as three. Both are measured on the threads asked for, in the first one's processor time, by a C program that the machine's
compiler builds.

A step's arithmetic is what its products, convolutions and attention take, counted while it runs eagerly; 3×3 convolutions of stride 1 count
4/9 of it, which is what Winograd's F(2×2, 3×3) needs (Lavin and Gray 2016), an LSTM over an embedding takes its first product from the
table's rows, and causal attention counts half. Its traffic is what these read and write, of tensors that no cache holds, and the
optimizer's state, read and written once.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import workloads

CACHE = 2**20  # bytes; what is smaller may stay in a core's second cache
# Numbers read and written for each parameter; Adam: the parameter and two moments, both ways.
MOVED = {"tiny": 2, "mlp": 4, "resnet": 4, "mobilenet": 4, "pinn": 2}
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef float pack __attribute__((vector_size(VECTOR)));
enum { CHAINS = 12, TURNS = 2000000, NUMBERS = 1 << 25 };
static pthread_barrier_t together;
static float *a, *b, *c;
static int threads;
static double now(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static volatile float sink;
static double spent[2];
static void *work(void *given) {
    long mine = (long)given, from = NUMBERS / threads * mine, to = from + NUMBERS / threads;
    for (long i = from; i < to; ++i) a[i] = 0, b[i] = 1, c[i] = 2;
    pack sum[CHAINS], x = {0}, y = {0};
    for (int k = 0; k < CHAINS; ++k) for (int j = 0; j < VECTOR / 4; ++j) sum[k][j] = k, x[j] = 0.999f, y[j] = 0.001f;
    double begun;
    if (!mine) spent[0] = spent[1] = 1e9;
    for (int turn = 0; turn < 40; ++turn) {  /* the best of many short ones: other programs may take a core away */
        pthread_barrier_wait(&together);
        begun = now();
        for (int i = 0; i < TURNS / CHAINS; ++i) {
#pragma GCC unroll 12
            for (int k = 0; k < CHAINS; ++k) sum[k] = sum[k] * x + y;
        }
        pthread_barrier_wait(&together);
        double took = now() - begun;
        if (!mine && took < spent[0]) spent[0] = took;
    }
    for (int k = 0; k < CHAINS; ++k) sink = sum[k][0];
    for (int turn = 0; turn < 5; ++turn) {
        pthread_barrier_wait(&together);
        begun = now();
        for (long i = from; i < to; ++i) a[i] = b[i] + 3.0f * c[i];
        pthread_barrier_wait(&together);
        double took = now() - begun;
        if (!mine && took < spent[1]) spent[1] = took;
    }
    return 0;
}
int main(int count, char **given) {
    threads = atoi(given[1]);
    pthread_t all[256];
    pthread_barrier_init(&together, 0, threads);
    a = malloc(4L * NUMBERS), b = malloc(4L * NUMBERS), c = malloc(4L * NUMBERS);
    for (long i = 0; i < threads; ++i) pthread_create(&all[i], 0, work, (void *)i);
    for (int i = 0; i < threads; ++i) pthread_join(all[i], 0);
    printf("%g %g\n", 2.0 * (TURNS / CHAINS) * CHAINS * (VECTOR / 4) * threads / spent[0], 12.0 * NUMBERS / spent[1]);
    return sink == 12345;
}
"""


def machine(threads):
    """(float32 operations, bytes of memory traffic) that a second holds on so many threads."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    vector = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "limit.c"), Path(folder, "limit")
        source.write_text(PROGRAM, encoding="utf-8")
        options = ["-O3", "-march=native", "-ffp-contract=fast", f"-mprefer-vector-width={vector * 8}", f"-DVECTOR={vector}", "-pthread"]
        if os.uname().machine != "x86_64":
            options = [o for o in options if not o.startswith("-mprefer")]
        subprocess.run([os.environ.get("CC", "cc"), *options, str(source), "-o", str(program)], check=True)
        found = [subprocess.run([str(program), str(threads)], capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    return tuple(max(float(one[i]) for one in found) for i in range(2))


def _wide(shape):
    return len(shape) == 4 and tuple(shape[2:]) == (3, 3)


def needs(name):
    """(float32 operations, bytes) of one step at least."""
    import gradlab as gl
    from gradlab.profiler.flop_counter import FlopCounterMode

    class Least(FlopCounterMode):
        traffic = 0

        def __call__(self, op, inputs, result, params):
            before = self.get_total_flops()
            super().__call__(op, inputs, result, params)
            count = self.get_total_flops() - before
            if not count:
                return
            shapes = [tuple(t.shape) for t in (*inputs, *(result if isinstance(result, (tuple, list)) else (result,))) if t is not None]
            images = [s for s in shapes if len(s) == 4 and not _wide(s)]
            kernels = [s for s in shapes if _wide(s) and s[1] > 4]
            if name == "gpt" and op.name.startswith("scaled"):  # nobody needs what causal attention hides
                self.flop_counts["Global"][op.name] -= count // 2
            if kernels and len(images) > 1 and abs(images[0][2] - images[1][2]) <= 2:
                self.flop_counts["Global"][op.name] -= count * 5 // 9
            sizes = [4 * gl.Size(s).numel() for s in shapes]
            self.traffic += sum(size for size in sizes if size > CACHE)

    step, _ = workloads.prepared(name, gl)
    step()
    with Least(display=False) as counter:
        step()
    flops = counter.get_total_flops()
    if name == "lstm":
        flops -= 3 * 2 * (32 * 64 - 65) * 256 * 1024
    if name in workloads.FURTHER:
        models = workloads.FURTHER[name](gl)[0]
    else:
        models = [workloads.network(name, gl.nn, gl.nn.functional, gl.cat)]
    state = 4 * sum(p.numel() for model in models for p in model.parameters()) * MOVED.get(name, 6)
    return flops, counter.traffic + (state if state > CACHE else 0)


def least_seconds(name, flops, bandwidth):
    """The time that the slower of arithmetic and traffic takes where neither waits for the other."""
    arithmetic, traffic = needs(name)
    return max(arithmetic / flops, traffic / bandwidth)
