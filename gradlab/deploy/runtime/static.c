/* @NAME: made by gradlab for machines without an operating system; see @NAME.h. Nothing is allocated: weights are constants (flash), values lie in
 * one array of zeros (RAM). Needs of a C library the functions of math.h that the program calls, memcpy, memset and memmove, and no more:
 *   arm-none-eabi-gcc -std=c11 -O2 -mcpu=cortex-m3 -mthumb -ffreestanding -c @NAME.c
 */
#include "@NAME.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

@RUNTIME
/* ---- the program's own loops ---- */

@FUNCTIONS

#define GL_ARENA @ARENA
#define GL_SCRATCH @SCRATCH
#define GL_EACH @EACH
static const _Alignas(@ALIGN) uint32_t gl_weights[] = {
@WEIGHTS
};
static _Alignas(@ALIGN) char gl_space[GL_ARENA + GL_SCRATCH + GL_EACH];

const char *@NAME_message(int code) {
  switch (code) {
@MESSAGES
  default: return "unknown code";
  }
}

@SIGNATURE {
  if (@CHECK) return @P_NULL;
  const char *const W = (const char *)gl_weights;
  char *const A = gl_space, *const S = A + GL_ARENA;
  const gl_team team = {1, S, S + GL_SCRATCH, GL_EACH};
@POINTERS
@ERRORVARIABLE
  (void)W;
  (void)team;
@LINES
  return @P_OK;
}
