// What every program begins with: exact arithmetic, hints for loops, NaN and infinities.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define GL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
/* Comparisons become vector instructions, and two in a row stay two. */
#pragma GCC optimize("no-trapping-math", "no-math-errno", "fp-contract=off", "no-thread-jumps", "no-tree-sink")
#define GL_IVDEP _Pragma("GCC ivdep")
#else
#define GL_IVDEP
#endif
#if defined(__GNUC__)
#define GL_UNUSED __attribute__((unused))
#define GL_INLINE static inline __attribute__((always_inline, unused))
#define GL_UNROLL _Pragma("GCC unroll 16")
#define GL_FETCH(p) __builtin_prefetch(p)
#define GL_APART static __attribute__((noinline, unused))
#else
#define GL_UNUSED
#define GL_INLINE static inline
#define GL_UNROLL
#define GL_FETCH(p) (void)0
#define GL_APART static
#endif
#if defined(_OPENMP)
#include <omp.h>
#define GL_PARALLEL _Pragma("omp parallel for schedule(static)")
#define GL_PARALLEL_LANES _Pragma("omp parallel for simd schedule(static)")
#define GL_MANY(condition, threads) GL_MANY_((omp parallel for schedule(dynamic) if(condition) num_threads(threads)))
#define GL_MANY_(text) GL_MANY__ text
#define GL_MANY__(...) _Pragma(#__VA_ARGS__)
#define GL_SELF omp_get_thread_num()
#define GL_THREADS omp_get_max_threads()
#else
#define GL_PARALLEL
#define GL_PARALLEL_LANES GL_IVDEP
#define GL_MANY(condition, threads)
#define GL_SELF 0
#define GL_THREADS 1
#endif

/* How many threads may work, the work space that they share, and the one that each has to itself. */
typedef struct { int threads; char *shared; char *own; int64_t own_size; } gl_team;
