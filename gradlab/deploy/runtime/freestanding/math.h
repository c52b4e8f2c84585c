/* What programs need of math.h, for compilers that bring no C library: the names alone. */
#ifndef GL_MATH_H
#define GL_MATH_H
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define GL_1(name) double name(double); float name##f(float);
#define GL_2(name) double name(double, double); float name##f(float, float);
GL_1(exp) GL_1(exp2) GL_1(expm1) GL_1(log) GL_1(log2) GL_1(log10) GL_1(log1p) GL_1(sin) GL_1(cos) GL_1(tan) GL_1(asin) GL_1(acos) GL_1(atan)
GL_1(sinh) GL_1(cosh) GL_1(tanh) GL_1(asinh) GL_1(acosh) GL_1(atanh) GL_1(erf) GL_1(erfc) GL_1(sqrt) GL_1(floor) GL_1(ceil) GL_1(trunc) GL_1(rint)
GL_1(fabs) GL_1(lgamma) GL_2(pow) GL_2(fmod) GL_2(atan2) GL_2(hypot) GL_2(copysign)
long lrint(double);
long lrintf(float);
#undef GL_1
#undef GL_2
#endif
