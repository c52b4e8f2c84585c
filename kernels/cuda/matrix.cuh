// What the kernels of linear algebra share: one block of whole warps for each matrix, rows of neighbouring elements, in shared memory where a
// matrix fits and in global memory otherwise. All sums are taken in a fixed order.
#pragma once
#include "fault.cuh"
#include "team.cuh"

namespace gradlab {

// This block's part of the scratch memory, or (a null pointer) shared memory.
template <class T>
__device__ __forceinline__ T* own_part(T* scratch, unsigned long long* memory, int64 size) {
    return scratch ? scratch + blockIdx.x * size : reinterpret_cast<T*>(memory);
}

// The block's threads as rows of 32.
struct Grid {
    int lane, warp, warps;
    __device__ __forceinline__ Grid() : lane(threadIdx.x & 31), warp(threadIdx.x >> 5), warps(blockDim.x >> 5) {}
};

template <class T>
__device__ __forceinline__ constexpr T precision() { return sizeof(T) == 8 ? T(2.220446049250313e-16) : T(1.1920929e-7); }

// Which of two candidates is the larger one: NaN above all, of equal ones the first.
template <class T>
struct Candidate {
    T value;
    int place;

    __device__ __forceinline__ void meet(T other, int at) {
        const bool above = other > value || (other != other && value == value);
        const bool below = value > other || (value != value && other == other);
        if (above || (!below && at < place)) value = other, place = at;
    }
    // The largest of all threads' candidates, in all of them; begins and ends with a barrier.
    __device__ __forceinline__ void settle() {
        __shared__ T values[16];
        __shared__ int places[16];
        const Grid grid;
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1) {
            const T other = shuffle_down(value, offset);
            meet(other, shuffle_down(place, offset));
        }
        __syncthreads();
        if (grid.lane == 0) values[grid.warp] = value, places[grid.warp] = place;
        __syncthreads();
        value = values[0], place = places[0];
        for (int w = 1; w < grid.warps; ++w) meet(values[w], places[w]);
    }
};

// Gaussian elimination with the largest pivot of each column, in place: a [m, n] becomes the upper triangle and, below it, the factors; rows of
// b [m, columns] follow, and so does `order` (null: not wanted). A column of nothing but zeros has the factors 0. Begins with a barrier; the last
// results are there after the next one.
struct Elimination {
    int exchanges;
    bool singular;
};
template <class T>
__device__ __forceinline__ Elimination eliminate(T* a, int m, int n, T* b, int columns, int64* order) {
    const Grid grid;
    Elimination found{0, false};
    for (int j = 0; j < m && j < n; ++j) {
        __syncthreads();
        Candidate<T> pivot{T(-1), m};
        for (int i = j + threadIdx.x; i < m; i += blockDim.x) pivot.meet(abs(a[i * n + j]), i);
        pivot.settle();
        const int p = pivot.place;
        if (p != j) {
            ++found.exchanges;
            for (int c = threadIdx.x; c < n + columns; c += blockDim.x) {
                T* upper = c < n ? a + j * n + c : b + j * columns + (c - n);
                T* lower = c < n ? a + p * n + c : b + p * columns + (c - n);
                const T kept = *upper;
                *upper = *lower;
                *lower = kept;
            }
            if (order && threadIdx.x == 0) {
                const int64 kept = order[j];
                order[j] = order[p];
                order[p] = kept;
            }
            __syncthreads();
        }
        const T top = a[j * n + j];
        found.singular |= top == T(0);
        for (int i = j + 1 + grid.warp; i < m; i += grid.warps) {
            const T factor = top == T(0) ? T(0) : a[i * n + j] / top;
            __syncwarp();
            if (grid.lane == 0) a[i * n + j] = factor;
            for (int c = j + 1 + grid.lane; c < n; c += 32) a[i * n + c] -= factor * a[j * n + c];
            for (int c = grid.lane; c < columns; c += 32) b[i * columns + c] -= factor * b[j * columns + c];
        }
    }
    return found;
}

// From there the solution, in place in b [n, columns]. Begins and ends with a barrier.
template <class T>
__device__ __forceinline__ void substitute(const T* a, int n, T* b, int columns) {
    const Grid grid;
    for (int j = n - 1; j >= 0; --j) {
        __syncthreads();
        const T top = a[j * n + j];
        for (int c = threadIdx.x; c < columns; c += blockDim.x) b[j * columns + c] /= top;
        __syncthreads();
        for (int i = grid.warp; i < j; i += grid.warps)
            for (int c = grid.lane; c < columns; c += 32) b[i * columns + c] -= a[i * n + j] * b[j * columns + c];
    }
    __syncthreads();
}

// Pairs of `count` (even) rows, each row in one pair: in `count` - 1 rounds every two rows meet once (the tournament of a circle).
struct Pair {
    int p, q;
    __device__ __forceinline__ Pair(int round, int k, int count) {
        const int around = count - 1;
        const int a = k == 0 ? around : (round + k) % around, b = k == 0 ? round : (round - k + around) % around;
        p = a < b ? a : b;
        q = a < b ? b : a;
    }
};

// The rotation that makes two directions orthogonal (Jacobi): from the difference of their sizes, and twice what they have in common.
template <class T>
struct Rotation {
    T c, s;
    __device__ __forceinline__ Rotation(const T* cosine, const T* sine) : c(*cosine), s(*sine) {}
    __device__ __forceinline__ Rotation(T difference, T twice) {
        const T zeta = difference / twice;
        // Of a zeta whose square would overflow the tangent is half its reciprocal.
        const T t = abs(zeta) > T(1e15) ? T(0.5) / zeta : copysign(T(1) / (abs(zeta) + sqrt(T(1) + zeta * zeta)), zeta);
        c = T(1) / sqrt(T(1) + t * t);
        s = t * c;
    }
    __device__ __forceinline__ void turn(T& p, T& q) const {
        const T kept = p;
        p = c * kept - s * q;
        q = s * kept + c * q;
    }
};

// The sign that makes a vector's first large element positive: large is what has at least 0.618 of the largest size. As `oriented` in
// gradlab/ops/factorization.py.
template <class T>
__device__ __forceinline__ T orientation(const T* vector, int count) {
    T top = T(0);
    for (int i = 0; i < count; ++i) top = maximum(top, abs(vector[i]));
    for (int i = 0; i < count; ++i)
        if (abs(vector[i]) >= T(0.6180339887498949) * top) return vector[i] < T(0) ? T(-1) : T(1);
    return T(1);
}

}  // namespace gradlab
