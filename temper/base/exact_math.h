// Elementary functions that give the same bits on every machine: computed in pairs of doubles (106
// bits) by additions and multiplications alone, and rounded once. That is the nearest double but in
// some one of 2^40 cases, so they differ from a good C library's in the last bit at most. A few
// hundred nanoseconds each: for schedules, optimizers, losses and what is computed once a row.
#pragma once

namespace temper::exact {

double exp(double x);
double expm1(double x);
double log(double x);
double log1p(double x);
double pow(double base, double exponent);  // base not negative
// |x| up to 2^30; beyond it the C library's.
double cos(double x);
double sin(double x);
double sigmoid(double x);      // 1 / (1 + e^-x)
double log_sigmoid(double x);  // its logarithm

// For loops: within three units in the last place, the same bits everywhere too, in some ten
// nanoseconds. quick_exp, for any x and within one unit, has no fused multiplications, which would
// be calls of the C library where code is not compiled for a processor that has them. Vectorized
// kernels have exp_below_0 (ops/native/kernels/elementary-inl.h), whose bits are others.
double quick_exp(double x);
double quick_log(double x);
double quick_log1p(double x);  // 0 <= x <= 1

// What a C library computed in double, rounded to float, where no other one, which may be off by
// some units in the last place, could round to another float; else exact(), which never is.
template <class Exact>
float rounded(double of_library, Exact exact) {
  const double slack = of_library * 0x1p-46;
  const float low = static_cast<float>(of_library - slack),
              high = static_cast<float>(of_library + slack);
  return low == high ? low : static_cast<float>(exact());
}
// The logarithm of a float.
float log_float(float x);

}  // namespace temper::exact
