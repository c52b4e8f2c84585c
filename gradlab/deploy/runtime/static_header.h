/* @NAME: made by gradlab from a traced program, for machines without an operating system; @NAME.c computes it and holds the weights.
 *
 * Arrays, in row-major order without gaps (bool as bytes, half types as their 16 bits):
@ARRAYS
 *
 * @NAME_run returns a code; @NAME_message says what it means. There is one work space: one call at a time.
 */
#ifndef @PREFIX_H
#define @PREFIX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { @CODES };

@RUN;
const char *@NAME_message(int code);

#ifdef __cplusplus
}
#endif
#endif
