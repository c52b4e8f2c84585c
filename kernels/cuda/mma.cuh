// What a warp does with matrices: products of 16 x 8 tiles on tensor cores, loads of their factors from shared memory, and copies into
// shared memory that go on in the background.
//
// Registers of a product, for lane = 4 · group + member (PTX ISA, "Matrix Fragments for mma.m16n8k8" and "... for mma.m16n8k16"); a register
// holds one TensorFloat32 number, or two neighbouring ones of a half type, the first in the lower bits. With W numbers in 16 bytes (4 or 8),
// members take numbers member · W/4 and on of
//   a: row `group`, k 0..W-1 | row group + 8, k 0..W-1 | row `group`, k W..2W-1 | row group + 8, k W..2W-1
//   b: column `group`, k 0..W-1 | column `group`, k W..2W-1
//   c: row `group`, columns 2 · member and the next | the same in row group + 8
#pragma once
#include "common.cuh"

namespace gradlab {

// The number of TensorFloat32 (10 bits of fraction) nearest to x, ties away from zero, as bits.
__device__ __forceinline__ unsigned tensor_float(float x) {
#if defined(__CUDAEMU__)
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#elif __CUDA_ARCH__ >= 800
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#else
    return __float_as_uint(x);
#endif
}

// Two numbers of a half type in one register.
template <class S>
__device__ __forceinline__ unsigned pair(float low, float high);
template <>
__device__ __forceinline__ unsigned pair<__half>(float low, float high) {
    return __half_as_ushort(__float2half_rn(low)) | static_cast<unsigned>(__half_as_ushort(__float2half_rn(high))) << 16;
}
template <>
__device__ __forceinline__ unsigned pair<__nv_bfloat16>(float low, float high) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(low)) | static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}

// c += a · b, by all 32 lanes of a warp. S: __half (compute capability 7.5), __nv_bfloat16 and float for TensorFloat32 (8.0).
template <class S>
__device__ void multiply_add(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

#if defined(__CUDAEMU__)

#define GRADLAB_MULTIPLY_ADD(S, factor)                                                                                                  \
    template <>                                                                                                                          \
    inline void multiply_add<S>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {                                         \
        ::gradlab_emulator::Fragments all{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};                             \
        ::gradlab_emulator::matrix_product(GRADLAB_SITE, ::gradlab_emulator::Factor::factor, all);                                       \
        for (int i = 0; i < 4; ++i) c[i] = all.c[i];                                                                                     \
    }
GRADLAB_MULTIPLY_ADD(float, tensor_float)
GRADLAB_MULTIPLY_ADD(__half, half)
GRADLAB_MULTIPLY_ADD(__nv_bfloat16, brain)
#undef GRADLAB_MULTIPLY_ADD

#else

template <>
__device__ __forceinline__ void multiply_add<__half>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 2; ++i)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}
#if __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ __forceinline__ void multiply_add<float>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#endif

// Four blocks of 8 rows of 16 bytes in shared memory: lane i gives the address of row i % 8 of block i / 8 (a multiple of 16). Register j gets
// the lane's 4 bytes of block j: row `group`, bytes 4 · member and on (PTX ISA, "ldmatrix"). Transposed, for half types: of column `group` the
// rows 2 · member and the next.
template <bool Transposed>
__device__ __forceinline__ void load_blocks(unsigned (&found)[4], const void* row) {
#if defined(__CUDAEMU__)
    uint64_t rows[32];
    ::gradlab_emulator::exchange(GRADLAB_SITE, reinterpret_cast<uint64_t>(row), rows);
    const int lane = threadIdx.x & 31, group = lane >> 2, member = lane & 3;
    for (int j = 0; j < 4; ++j) {
        if (Transposed) {
            const unsigned low = reinterpret_cast<const uint16_t*>(rows[8 * j + 2 * member])[group];
            found[j] = low | static_cast<unsigned>(reinterpret_cast<const uint16_t*>(rows[8 * j + 2 * member + 1])[group]) << 16;
        } else {
            found[j] = reinterpret_cast<const uint32_t*>(rows[8 * j + group])[member];
        }
    }
#else
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (Transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3]) : "r"(address) : "memory");
#endif
}

// 4, 8 or 16 bytes into shared memory, zeros unless `inside`; in the background where the hardware can (8.0). Both addresses are multiples
// of their number, and `from` may be read only if inside.
template <int Bytes>
__device__ __forceinline__ void copy_ahead(void* to, const void* from, bool inside) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "what cp.async copies");
#if defined(__CUDAEMU__)
    ::gradlab_emulator::copy_async(GRADLAB_SITE, to, from, Bytes, inside ? 0 : Bytes);
#elif __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (Bytes == 16)  // past the first cache, which has no use for it
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(address), "l"(from), "r"(inside ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" : : "r"(address), "l"(from), "n"(Bytes), "r"(inside ? Bytes : 0) : "memory");
#else
    typedef Pack<unsigned, Bytes / 4> Words;
    Words words;
#pragma unroll
    for (int i = 0; i < Bytes / 4; ++i) words.item[i] = 0;
    if (inside) words = *static_cast<const Words*>(from);
    *static_cast<Words*>(to) = words;
#endif
}

// The calling thread's copies since the last call are a group, which may have none.
__device__ __forceinline__ void end_of_group() {
#if defined(__CUDAEMU__)
    ::gradlab_emulator::copies_committed();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

// Waits for the calling thread's groups of copies but the last `Most`; the other threads' are there after a barrier.
template <int Most>
__device__ __forceinline__ void await_groups() {
#if defined(__CUDAEMU__)
    ::gradlab_emulator::await_copies(Most);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(Most) : "memory");
#endif
}

// Waits for all copies of the calling thread.
__device__ __forceinline__ void await_copies() {
    end_of_group();
    await_groups<0>();
}

}  // namespace gradlab
