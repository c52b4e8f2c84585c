/* ---- whether the processor has the vector instructions that this was compiled for ---- */
#if (defined(__AVX2__) || defined(__AVX512F__)) && defined(__GNUC__)
#include <cpuid.h>
static bool gl_fits_processor(void) {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (1u << 27)) == 0 || (c & (1u << 12)) == 0) return false; /* OSXSAVE, FMA */
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6u) != 6u || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & (1u << 5)) == 0) return false;
#if defined(__AVX512F__)
  if ((low & 0xe6u) != 0xe6u || (b & (1u << 16)) == 0) return false;
#endif
  return true;
}
#else
static bool gl_fits_processor(void) { return true; }
#endif
