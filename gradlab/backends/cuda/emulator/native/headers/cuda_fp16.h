// float16: CUDA's header where it is installed, otherwise the runtime's own types with the same names.
#ifndef GRADLAB_EMULATOR_FP16_H
#define GRADLAB_EMULATOR_FP16_H

#if GRADLAB_EMULATOR_TOOLKIT
#include_next <cuda_fp16.h>
#include "../words.h"
#else
#include "../small_floats.h"

using __half = gradlab_emulator::SmallFloat<gradlab_emulator::Half>;
using __half2 = gradlab_emulator::SmallFloat2<gradlab_emulator::Half>;
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline __half __double2half(double x) { return x; }
inline __half __int2half_rn(int x) { return x; }
inline __half __uint2half_rn(unsigned x) { return x; }
inline __half __ll2half_rn(long long x) { return x; }
inline __half __short2half_rn(short x) { return x; }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return __float2int_rz(x); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline short __half_as_short(__half x) { return short(x.bits); }
inline __half __ushort_as_half(unsigned short bits) { return __half::of_bits(bits); }
inline __half __short_as_half(short bits) { return __half::of_bits(uint16_t(bits)); }

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __float2half2_rn(float x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
inline float2 __half22float2(__half2 x) { return make_float2(x.x, x.y); }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
inline __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
inline float __low2float(__half2 x) { return x.x; }
inline float __high2float(__half2 x) { return x.y; }
#endif

namespace gradlab_emulator {
template <> struct TypeName<__half> { static constexpr const char* value = "float16"; };
}

#endif
