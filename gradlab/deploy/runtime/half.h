/* ---- half types: stored in 16 bits, computed in float ---- */
GL_INLINE float gl_from_bf16(uint16_t h) {
  const uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
GL_INLINE uint16_t gl_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
GL_INLINE float gl_from_f16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  uint32_t bits;
  float x;
  if (exponent == 0) {
    x = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
    return sign ? -x : x;
  }
  bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13;
  memcpy(&x, &bits, sizeof x);
  return x;
}
GL_INLINE uint16_t gl_to_f16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
  const uint32_t size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
  if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds beyond 65504 */
  if (size < 0x38800000u) {                                   /* below 2^-14: a multiple of 2^-24 */
    float magnitude;
    memcpy(&magnitude, &size, sizeof magnitude);
    return (uint16_t)(sign | (uint16_t)lrintf(magnitude * 16777216.0f));
  }
  return (uint16_t)(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13));
}
