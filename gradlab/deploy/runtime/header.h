/* @NAME: made by gradlab from a traced program; @NAME.c computes it, with the weights in @NAME.weights.
 *
 * Arrays, in row-major order without gaps (bool as bytes, half types as their 16 bits):
@ARRAYS
 *
 * A context holds the weights and the work space of one run; several contexts may run at the same time, one context may not.
 * Everything but @NAME_close returns a code; @NAME_message says what it means.
 */
#ifndef @PREFIX_H
#define @PREFIX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct @NAME @NAME;

enum { @CODES };

/* Read a weights file. *context is NULL unless the code is @PREFIX_OK. */
int @NAME_open(@NAME **context, const char *weights_path);
/* The same from memory, which has to stay as it is until @NAME_close; it is not copied if its address is a multiple of 64. */
int @NAME_open_memory(@NAME **context, const void *weights, size_t size);
@RUN;
void @NAME_close(@NAME *context);
const char *@NAME_message(int code);

#ifdef __cplusplus
}
#endif
#endif
