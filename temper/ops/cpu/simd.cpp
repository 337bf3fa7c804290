#include "temper/ops/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/cpu/simd.cpp"
#include "temper/ops/cpu/targets.h"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {
const char* Name() { return hwy::TargetName(HWY_TARGET); }
}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace temper::kernels {
HWY_EXPORT(Name);
const char* simd_name() { return HWY_DYNAMIC_DISPATCH(Name)(); }
}  // namespace temper::kernels
#endif
