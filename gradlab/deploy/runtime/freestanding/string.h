/* What programs need of string.h, for compilers that bring no C library. */
#ifndef GL_STRING_H
#define GL_STRING_H
#include <stddef.h>
void *memcpy(void *, const void *, size_t);
void *memmove(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
#endif
