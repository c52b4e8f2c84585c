// CUDA's vector types, for machines without CUDA's headers: the same names, members, sizes and alignments.
#ifndef GRADLAB_EMULATOR_VECTORS_H
#define GRADLAB_EMULATOR_VECTORS_H

// CUDA aligns 2 and 4 elements as one access of up to 16 bytes; 1 and 3 elements as the element.
#define GRADLAB_EMULATOR_VECTORS(name, T)                                                                          \
    struct name##1 { T x; };                                                                                       \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                                             \
    struct name##3 { T x, y, z; };                                                                                 \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };                             \
    inline name##1 make_##name##1(T x) { return {x}; }                                                             \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                     \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                             \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

GRADLAB_EMULATOR_VECTORS(char, signed char)
GRADLAB_EMULATOR_VECTORS(uchar, unsigned char)
GRADLAB_EMULATOR_VECTORS(short, short)
GRADLAB_EMULATOR_VECTORS(ushort, unsigned short)
GRADLAB_EMULATOR_VECTORS(int, int)
GRADLAB_EMULATOR_VECTORS(uint, unsigned int)
GRADLAB_EMULATOR_VECTORS(long, long)
GRADLAB_EMULATOR_VECTORS(ulong, unsigned long)
GRADLAB_EMULATOR_VECTORS(longlong, long long)
GRADLAB_EMULATOR_VECTORS(ulonglong, unsigned long long)
GRADLAB_EMULATOR_VECTORS(float, float)
GRADLAB_EMULATOR_VECTORS(double, double)
#undef GRADLAB_EMULATOR_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

#endif
