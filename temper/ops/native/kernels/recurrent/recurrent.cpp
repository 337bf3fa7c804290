// Dispatch of recurrent.h to the machine's SIMD target.
#include "temper/ops/native/kernels/recurrent/recurrent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/recurrent/recurrent.cpp"
#include "temper/ops/native/kernels/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "temper/ops/native/kernels/recurrent/delta_backward-inl.h"
#include "temper/ops/native/kernels/recurrent/delta_rule-inl.h"
#include "temper/ops/native/kernels/recurrent/recurrent-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

void FloatConvolution(const ConvolutionShape& s, const ForestView& f, const float* x,
                      const float* weight, const float* bias, const float* const* carried,
                      float* y) {
  ShortConvolution(s, f, x, weight, bias, carried, y);
}
void FloatConvolutionBackward(const ConvolutionShape& s, const ForestView& f, const float* x,
                              const float* weight, const float* bias, const float* dy, float* dx,
                              float* dweight, float* dbias) {
  ShortConvolutionBackward(s, f, x, weight, bias, dy, dx, dweight, dbias);
}
void FloatNorm(const HeadRows& rows, const float* x, double eps, double scale, float* y) {
  L2Norm(rows, x, eps, scale, y);
}
void FloatNormBackward(const HeadRows& rows, const float* x, double eps, double scale,
                       const float* dy, float* dx) {
  L2NormBackward(rows, x, eps, scale, dy, dx);
}
void FloatDelta(const DeltaShape& s, const ForestView& f, const DeltaTokens<float>& tokens,
                const float* const* from, const std::vector<KeptState<float>>& keep, float* out) {
  DeltaRule(s, f, tokens, from, keep, out);
}
void FloatDeltaBackward(const DeltaShape& s, const ForestView& f, const DeltaTokens<float>& tokens,
                        const float* dout, const DeltaGradients<float>& d) {
  DeltaRuleBackward(s, f, tokens, dout, d);
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(FloatConvolution);
HWY_EXPORT(FloatConvolutionBackward);
HWY_EXPORT(FloatNorm);
HWY_EXPORT(FloatNormBackward);
HWY_EXPORT(FloatDelta);
HWY_EXPORT(FloatDeltaBackward);

template <>
void short_convolution<float>(const ConvolutionShape& s, const ForestView& f, const float* x,
                              const float* weight, const float* bias, const float* const* carried,
                              float* y) {
  HWY_DYNAMIC_DISPATCH(FloatConvolution)(s, f, x, weight, bias, carried, y);
}
template <>
void short_convolution<double>(const ConvolutionShape& s, const ForestView& f, const double* x,
                               const double* weight, const double* bias,
                               const double* const* carried, double* y) {
  HWY_STATIC_DISPATCH(ShortConvolution<double>)(s, f, x, weight, bias, carried, y);
}
template <>
void short_convolution_backward<float>(const ConvolutionShape& s, const ForestView& f,
                                       const float* x, const float* weight, const float* bias,
                                       const float* dy, float* dx, float* dweight, float* dbias) {
  HWY_DYNAMIC_DISPATCH(FloatConvolutionBackward)(s, f, x, weight, bias, dy, dx, dweight, dbias);
}
template <>
void short_convolution_backward<double>(const ConvolutionShape& s, const ForestView& f,
                                        const double* x, const double* weight, const double* bias,
                                        const double* dy, double* dx, double* dweight,
                                        double* dbias) {
  HWY_STATIC_DISPATCH(ShortConvolutionBackward<double>)
  (s, f, x, weight, bias, dy, dx, dweight, dbias);
}
template <>
void l2_norm<float>(const HeadRows& rows, const float* x, double eps, double scale, float* y) {
  HWY_DYNAMIC_DISPATCH(FloatNorm)(rows, x, eps, scale, y);
}
template <>
void l2_norm<double>(const HeadRows& rows, const double* x, double eps, double scale, double* y) {
  HWY_STATIC_DISPATCH(L2Norm<double>)(rows, x, eps, scale, y);
}
template <>
void l2_norm_backward<float>(const HeadRows& rows, const float* x, double eps, double scale,
                             const float* dy, float* dx) {
  HWY_DYNAMIC_DISPATCH(FloatNormBackward)(rows, x, eps, scale, dy, dx);
}
template <>
void l2_norm_backward<double>(const HeadRows& rows, const double* x, double eps, double scale,
                              const double* dy, double* dx) {
  HWY_STATIC_DISPATCH(L2NormBackward<double>)(rows, x, eps, scale, dy, dx);
}
template <>
void delta_rule<float>(const DeltaShape& s, const ForestView& f, const DeltaTokens<float>& tokens,
                       const float* const* from, const std::vector<KeptState<float>>& keep,
                       float* out) {
  HWY_DYNAMIC_DISPATCH(FloatDelta)(s, f, tokens, from, keep, out);
}
template <>
void delta_rule<double>(const DeltaShape& s, const ForestView& f, const DeltaTokens<double>& tokens,
                        const double* const* from, const std::vector<KeptState<double>>& keep,
                        double* out) {
  HWY_STATIC_DISPATCH(DeltaRule<double>)(s, f, tokens, from, keep, out);
}
template <>
void delta_rule_backward<float>(const DeltaShape& s, const ForestView& f,
                                const DeltaTokens<float>& tokens, const float* dout,
                                const DeltaGradients<float>& d) {
  HWY_DYNAMIC_DISPATCH(FloatDeltaBackward)(s, f, tokens, dout, d);
}
template <>
void delta_rule_backward<double>(const DeltaShape& s, const ForestView& f,
                                 const DeltaTokens<double>& tokens, const double* dout,
                                 const DeltaGradients<double>& d) {
  HWY_STATIC_DISPATCH(DeltaRuleBackward<double>)(s, f, tokens, dout, d);
}

}  // namespace temper::kernels
#endif
