// Functions of one element that are the same for all types.
GL_INLINE @T gl_where_@S(bool condition, @T x, @T y) { return condition ? x : y; }
GL_INLINE @T gl_clamp_@S(@T x, @T low, @T high) { return gl_minimum_@S(gl_maximum_@S(x, low), high); }
