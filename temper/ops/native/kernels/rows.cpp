// Dispatch of rows.h to the machine's SIMD target.
#include "temper/ops/native/kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/rows.cpp"
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/native/kernels/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

template <class T>
constexpr RowKernels<T> kRowKernels{
    &RmsNorm<T>,       &RmsNormBackward<T>, &Rotate<T>,    &Center<T>,          &Gated<T>,
    &GatedBackward<T>, &AddScaled<T>,       &SoftCap<T>,   &GatherRows<T>,      &ScatterRows<T>,
    &SoftmaxParts<T>,  &ExpShifted<T>,      &JoinParts<T>, &SoftmaxGradient<T>, &DropoutRows<T>};
const RowKernels<float>& FloatRows() { return kRowKernels<float>; }

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(FloatRows);
HWY_EXPORT(AdamW);
HWY_EXPORT(Sgd);
HWY_EXPORT(SumOfSquares);

template <>
const RowKernels<float>& row_kernels<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatRows)();
}
template <>
const RowKernels<double>& row_kernels<double>() {
  return HWY_STATIC_DISPATCH(kRowKernels<double>);
}
void adamw(int64_t count, const AdamWStep& step, const float* grad, float* param, float* first,
           float* second) {
  HWY_DYNAMIC_DISPATCH(AdamW)(count, step, grad, param, first, second);
}
void sgd(int64_t count, double learning_rate, double momentum, double weight_decay,
         double grad_scale, bool first_step, const float* grad, float* param, float* buffer) {
  HWY_DYNAMIC_DISPATCH(Sgd)
  (count, learning_rate, momentum, weight_decay, grad_scale, first_step, grad, param, buffer);
}
double sum_of_squares(int64_t count, const float* x) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(count, x);
}

}  // namespace temper::kernels
#endif
