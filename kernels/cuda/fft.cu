// Discrete Fourier transforms along the middle dimension of [outer, n, inner], complex numbers as pairs of real ones.
//
// Stockham's method for any n, a launch for each prime factor: one thread makes one element of the result of `radix` elements. So there is no
// bit reversal and no memory but two arrays that take turns. Sines and cosines are of exact fractions of a turn.
#include "common.cuh"

namespace gradlab {

// One factor: src as [remaining, done] becomes dst, where `done` numbers were transformed before and `remaining` = n / done.
template <class T>
__global__ void __launch_bounds__(256) fft_pass(const T* __restrict__ src, T* __restrict__ dst, int64 n, int64 inner, int64 done, int64 radix,
                                                double sign, double scale, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const int64 i = at % inner, place = at / inner % n, line = at / inner / n;
    const int64 q = place % done, k = place / done % radix, p = place / done / radix;
    const int64 remaining = n / done, step = remaining / radix;
    double re = 0.0, im = 0.0;
    for (int64 j = 0; j < radix; ++j) {
        const int64 from = ((line * n + q + done * (p + j * step)) * inner + i) * 2;
        const double turn = sign * 6.28318530717958647693 * (static_cast<double>(j * k % radix) / static_cast<double>(radix));
        const double c = cos(turn), s = sin(turn);
        const double x = static_cast<double>(src[from]), y = static_cast<double>(src[from + 1]);
        re += x * c - y * s;
        im += x * s + y * c;
    }
    const double turn = sign * 6.28318530717958647693 * (static_cast<double>(p * k) / static_cast<double>(remaining));
    const double c = cos(turn), s = sin(turn);
    dst[2 * at] = static_cast<T>(scale * (re * c - im * s));
    dst[2 * at + 1] = static_cast<T>(scale * (re * s + im * c));
}

// Real numbers as complex ones.
template <class T>
__global__ void __launch_bounds__(256) fft_complex(const T* __restrict__ src, T* __restrict__ dst, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    dst[2 * at] = src[at];
    dst[2 * at + 1] = T(0);
}

// The first n / 2 + 1 coefficients of each line.
template <class T>
__global__ void __launch_bounds__(256) fft_half(const T* __restrict__ src, T* __restrict__ dst, int64 n, int64 inner, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const int64 half = n / 2 + 1, place = at / inner % half, from = (at / inner / half * n + place) * inner + at % inner;
    dst[2 * at] = src[2 * from];
    dst[2 * at + 1] = src[2 * from + 1];
}

// The whole spectrum of its first half: the rest mirrors it, and what stands for itself is real.
template <class T>
__global__ void __launch_bounds__(256) fft_mirror(const T* __restrict__ src, T* __restrict__ dst, int64 n, int64 inner, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const int64 half = n / 2 + 1, place = at / inner % n;
    const bool mirrored = place >= half, alone = place == 0 || 2 * place == n;
    const int64 from = (at / inner / n * half + (mirrored ? n - place : place)) * inner + at % inner;
    dst[2 * at] = src[2 * from];
    dst[2 * at + 1] = alone ? T(0) : mirrored ? -src[2 * from + 1] : src[2 * from + 1];
}

// The real parts.
template <class T>
__global__ void __launch_bounds__(256) fft_real(const T* __restrict__ src, T* __restrict__ dst, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at < count) dst[at] = src[2 * at];
}

// A first half of a spectrum of n numbers in each line, of which what stands for itself becomes real.
template <class T>
__global__ void __launch_bounds__(256) fft_hermitian(const T* __restrict__ src, T* __restrict__ dst, int64 n, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const int64 place = at % (n / 2 + 1);
    dst[2 * at] = src[2 * at];
    dst[2 * at + 1] = place == 0 || 2 * place == n ? T(0) : src[2 * at + 1];
}

// Numbers times a factor, in place.
template <class T>
__global__ void __launch_bounds__(256) fft_scale(T* __restrict__ numbers, double scale, int64 count) {
    const int64 at = static_cast<int64>(blockIdx.x) * 256 + threadIdx.x;
    if (at < count) numbers[at] = static_cast<T>(static_cast<double>(numbers[at]) * scale);
}

}  // namespace gradlab
