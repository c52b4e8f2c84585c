// What the processor can do: which of the prebuilt libraries it runs.
#include <cstdint>

#if defined(__x86_64__)
namespace {

struct Answer {
  uint32_t a, b, c, d;
};
inline Answer ask(uint32_t leaf, uint32_t part = 0) {
  Answer r;
  asm volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(part));
  return r;
}
inline bool all(uint32_t bits, uint32_t wanted) { return (bits & wanted) == wanted; }

}  // namespace
#endif

// 0: less than is wanted; x86-64: 1 SSE4.2, 2 AVX2 with FMA (x86-64-v3), 3 AVX-512 (x86-64-v4), as far as the system saves the registers; others: 1.
extern "C" int gradlab_processor_level() {
#if defined(__x86_64__)
  if (ask(0).a < 7) return 0;
  const Answer one = ask(1), seven = ask(7);
  constexpr uint32_t SSE42 = 1u << 20 | 1u << 23 | 1u << 9 | 1u << 19;              // and POPCNT, SSSE3, SSE4.1
  constexpr uint32_t AVX = 1u << 28 | 1u << 27 | 1u << 12 | 1u << 29 | 1u << 22;   // and OSXSAVE, FMA, F16C, MOVBE
  constexpr uint32_t AVX2 = 1u << 5 | 1u << 3 | 1u << 8;                           // and BMI1, BMI2
  constexpr uint32_t AVX512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // F, DQ, CD, BW, VL
  if (!all(one.c, SSE42)) return 0;
  if (!all(one.c, AVX) || !all(seven.b, AVX2)) return 1;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if (!all(low, 0x06)) return 1;
  return all(seven.b, AVX512) && all(low, 0xe6) ? 3 : 2;
#else
  return 1;
#endif
}

// Whether it multiplies pairs of bfloat16 numbers as well (AVX512_BF16).
extern "C" int gradlab_processor_bfloat16() {
#if defined(__x86_64__)
  return gradlab_processor_level() == 3 && ask(7).a >= 1 && (ask(7, 1).a & 1u << 5) != 0;
#else
  return 0;
#endif
}
