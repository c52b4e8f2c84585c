// Sums of squares beyond the range of float, told by one.
#ifndef GRADLAB_SQUARES_H
#define GRADLAB_SQUARES_H

namespace {

// They are told by the negative of their root; the squares are those of numbers made LESS.
constexpr float LESS = 0x1p-64f;
inline float root_of(double squares) { return -float(__builtin_sqrt(squares) / LESS); }
inline double squares_of(float told) { return told < 0 ? double(told) * told : told; }

}  // namespace

#endif
