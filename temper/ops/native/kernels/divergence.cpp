// Dispatch of divergence.h to the machine's SIMD target.
#include "temper/ops/native/kernels/divergence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/divergence.cpp"
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/native/kernels/divergence-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

template <class T>
constexpr DivergenceKernels<T> kDivergence{
    &DivergenceParts<T>, &MixtureParts<T>, &DivergenceGradient<T>, &Products<T>,
    &SquaredDistance<T>, &Softmax<T>,      &SoftmaxBackward<T>};
const DivergenceKernels<float>& FloatDivergence() { return kDivergence<float>; }

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(FloatDivergence);

template <>
const DivergenceKernels<float>& divergence_kernels<float>() {
  return HWY_DYNAMIC_DISPATCH(FloatDivergence)();
}
template <>
const DivergenceKernels<double>& divergence_kernels<double>() {
  return HWY_STATIC_DISPATCH(kDivergence<double>);
}

}  // namespace temper::kernels
#endif
