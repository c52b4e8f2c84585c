/* @NAME: made by gradlab; see @NAME.h. Needs nothing but the C library:
 *   cc -std=c11 -O3 -march=native -fno-math-errno -c @NAME.c                       (as a part of a program; add -fopenmp for threads)
 *   cc -std=c11 -O3 -march=native -fno-math-errno -D@P_MAIN @NAME.c -lm -o @NAME   (as a program on .npy files)
 */
#include "@NAME.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

@RUNTIME
/* ---- the program's own loops ---- */

@FUNCTIONS

@WEIGHTS
struct @NAME {
  const char *weights;
  char *own_weights; /* to be freed, or NULL */
  char *arena;       /* values, then work space */
  int threads;
};

#define GL_ARENA @ARENA
#define GL_SCRATCH @SCRATCH
#define GL_EACH @EACH

/* At a multiple of 64; what malloc gave stands before it. */
static void *gl_memory(size_t size) {
  char *const whole = size <= SIZE_MAX - 64 - sizeof(void *) ? malloc(size + 64 + sizeof(void *)) : NULL;
  if (whole == NULL) return NULL;
  char *const place = whole + sizeof(void *) + (64 - ((uintptr_t)whole + sizeof(void *)) % 64) % 64;
  memcpy(place - sizeof(void *), &whole, sizeof(void *));
  return place;
}
static void gl_release(void *place) {
  void *whole = NULL;
  if (place != NULL) memcpy(&whole, (char *)place - sizeof(void *), sizeof(void *));
  free(whole);
}

@PROCESSOR

/* Takes over `own` also where it fails. */
static int gl_open(@NAME **context, const char *weights, char *own, uint64_t size) {
  int code = gl_fits_processor() ? gl_check_weights((const unsigned char *)weights, size) : @P_PROCESSOR;
  @NAME *made = NULL;
  if (code == @P_OK) {
    made = malloc(sizeof *made);
    if (made == NULL) code = @P_MEMORY;
  }
  if (code == @P_OK) {
    made->weights = weights;
    made->own_weights = own;
    made->threads = GL_THREADS;
    made->arena = gl_memory((size_t)(GL_ARENA + GL_SCRATCH) + (size_t)made->threads * GL_EACH);
    if (made->arena == NULL) code = @P_MEMORY;
  }
  if (code != @P_OK) {
    free(made);
    gl_release(own);
    return code;
  }
  *context = made;
  return @P_OK;
}

int @NAME_open_memory(@NAME **context, const void *weights, size_t size) {
  if (context == NULL) return @P_NULL;
  *context = NULL;
  if (weights == NULL) return @P_NULL;
  if ((uintptr_t)weights % 64 == 0) return gl_open(context, weights, NULL, size);
  char *own = gl_memory(size);
  if (own == NULL) return @P_MEMORY;
  memcpy(own, weights, size);
  return gl_open(context, own, own, size);
}

int @NAME_open(@NAME **context, const char *weights_path) {
  if (context == NULL) return @P_NULL;
  *context = NULL;
  if (weights_path == NULL) return @P_NULL;
  FILE *file = fopen(weights_path, "rb");
  if (file == NULL) return @P_FILE;
  const uint64_t size = @SIZE;
  char *own = gl_memory((size_t)size);
  if (own == NULL) {
    fclose(file);
    return @P_MEMORY;
  }
  const size_t have = fread(own, 1, (size_t)size, file);
  const bool more = have == size && fgetc(file) != EOF, failed = ferror(file) != 0;
  fclose(file);
  if (failed) {
    gl_release(own);
    return @P_FILE;
  }
  return gl_open(context, own, own, have + (more ? 1 : 0));
}

void @NAME_close(@NAME *context) {
  if (context == NULL) return;
  gl_release(context->own_weights);
  gl_release(context->arena);
  free(context);
}

const char *@NAME_message(int code) {
  switch (code) {
@MESSAGES
  default: return "unknown code";
  }
}

@SIGNATURE {
  if (@CHECK) return @P_NULL;
  const char *const W = context->weights;
  char *const A = context->arena, *const S = A + GL_ARENA;
  const gl_team team = {context->threads, S, S + GL_SCRATCH, GL_EACH};
@POINTERS
@ERRORVARIABLE
  (void)W;
  (void)team;
@LINES
  return @P_OK;
}

#ifdef @P_MAIN
/* ---- a program: @NAME WEIGHTS INPUT.npy... OUTPUT.npy... [--time RUNS] ---- */
#include <time.h>

typedef struct { const char *descr; int rank; int64_t shape[@RANK]; int64_t size; int made; } gl_array;
static const gl_array gl_arrays[] = {
@TABLE
};

/* The header of an .npy file has to say what is expected, word for word but for spaces. */
static const char *gl_read_npy(const char *path, const gl_array *wanted, char *to) {
  unsigned char start[12];
  FILE *file = fopen(path, "rb");
  if (file == NULL) return "cannot be opened";
  const char *problem = "is no .npy file";
  char *text = NULL;
  if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3) goto done;
  size_t length = (size_t)start[8] | (size_t)start[9] << 8;
  if (start[6] > 1) {
    if (fread(start + 10, 1, 2, file) != 2) goto done;
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  if (length > 1 << 20) goto done;
  text = malloc(length + 1);
  problem = "is too large";
  if (text == NULL) goto done;
  problem = "is cut off";
  if (fread(text, 1, length, file) != length) goto done;
  text[length] = 0;
  problem = "has another dtype, or one of the other byte order";
  const char *at = strstr(text, "'descr':");
  if (at == NULL || (at = strchr(at + 8, '\'')) == NULL || at[1] == '>') goto done;
  if (strncmp(at + 2, wanted->descr + 1, strlen(wanted->descr + 1)) != 0 || at[2 + strlen(wanted->descr + 1)] != '\'') goto done;
  problem = "is in column-major order: np.ascontiguousarray makes it row-major";
  at = strstr(text, "'fortran_order':");
  if (at == NULL || (wanted->rank > 1 && strncmp(at + 16, " False", 6) != 0)) goto done;
  problem = "has another shape";
  at = strstr(text, "'shape':");
  if (at == NULL || (at = strchr(at, '(')) == NULL) goto done;
  ++at;
  for (int d = 0; d < wanted->rank; ++d) {
    char *end;
    while (*at == ' ') ++at;
    if (*at < '0' || *at > '9' || strtoll(at, &end, 10) != wanted->shape[d]) goto done;
    at = end;
    if (*at == ',') ++at;
  }
  while (*at == ' ') ++at;
  if (*at != ')') goto done;
  problem = fread(to, 1, (size_t)wanted->size, file) == (size_t)wanted->size ? NULL : "is cut off";
done:
  free(text);
  fclose(file);
  return problem;
}

static const char *gl_write_npy(const char *path, const gl_array *array, const char *from) {
  char text[512] = {0};
  int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", array->descr);
  for (int d = 0; d < array->rank; ++d) length += snprintf(text + length, sizeof text - (size_t)length, "%lld,", (long long)array->shape[d]);
  length += snprintf(text + length, sizeof text - (size_t)length, "), }");
  while ((10 + length + 1) % 64 != 0) text[length++] = ' ';
  text[length++] = '\n';
  const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(length & 255), (unsigned char)(length >> 8)};
  FILE *file = fopen(path, "wb");
  if (file == NULL) return "cannot be written";
  bool fine = fwrite(start, 1, 10, file) == 10 && fwrite(text, 1, (size_t)length, file) == (size_t)length;
  fine = fine && fwrite(from, 1, (size_t)array->size, file) == (size_t)array->size;
  return fclose(file) == 0 && fine ? NULL : "cannot be written";
}

/* Milliseconds; -DGL_PROCESSOR_TIME: of the processor, for machines that do other work meanwhile. */
static double gl_now(void) {
#ifdef GL_PROCESSOR_TIME
  return 1e3 * (double)clock() / CLOCKS_PER_SEC;
#else
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
#endif
}

int main(int argc, char **argv) {
  int64_t runs = 0;
  if (argc == 2 + @ARRAYS + 2 && strcmp(argv[argc - 2], "--time") == 0) {
    runs = strtoll(argv[argc - 1], NULL, 10);
    argc -= 2;
  }
  if (argc != 2 + @ARRAYS) {
    fprintf(stderr, "usage: %s WEIGHTS %d INPUT.npy %d OUTPUT.npy [--time RUNS]\n", argv[0], @INPUTS, @ARRAYS - @INPUTS);
    return 2;
  }
  @NAME *context = NULL;
  int code = @NAME_open(&context, argv[1]);
  if (code != @P_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], @NAME_message(code));
    return 1;
  }
  void *data[@ARRAYS + 1] = {NULL};
  const char *problem = NULL;
  int which = 0;
  for (; which < @ARRAYS && problem == NULL; ++which) {
    data[which] = gl_memory((size_t)gl_arrays[which].size + 1);
    if (data[which] == NULL) problem = "is too large";
    else if (!gl_arrays[which].made) problem = gl_read_npy(argv[2 + which], &gl_arrays[which], data[which]);
  }
  if (problem == NULL) {
    code = @NAME_run(context@GIVEN);
    if (code != @P_OK) fprintf(stderr, "%s\n", @NAME_message(code));
    double least = 1e30;
    for (int64_t i = 0; code == @P_OK && i < runs; ++i) {
      const double before = gl_now();
      code = @NAME_run(context@GIVEN);
      const double took = gl_now() - before;
      least = took < least ? took : least;
    }
    if (runs > 0) printf("%.6f ms\n", least);
    for (which = @INPUTS; code == @P_OK && which < @ARRAYS && problem == NULL; ++which)
      problem = gl_write_npy(argv[2 + which], &gl_arrays[which], data[which]);
  }
  if (problem != NULL) fprintf(stderr, "%s %s\n", argv[1 + which], problem);
  for (int i = 0; i < @ARRAYS; ++i) gl_release(data[i]);
  @NAME_close(context);
  return problem != NULL || code != @P_OK;
}
#endif
