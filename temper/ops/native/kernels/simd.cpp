#include "temper/ops/native/kernels/simd.h"

#include <cstdint>
#include <cstdlib>

#include "temper/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "temper/ops/native/kernels/simd.cpp"
#include "temper/ops/native/kernels/targets.h"
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
namespace {

struct Target {
  const char* name;
  int64_t bits;  // of HWY_TARGETS
};
constexpr int64_t kAvx512 = 2 * HWY_AVX3 - 1;  // x86's better ones have lower bits
constexpr Target kTargets[] = {{"neon", HWY_NEON}, {"avx2", HWY_AVX2}, {"avx512", kAvx512}};

bool avx512_allowed = true;

// Of this build and the machine, whatever the kernels are limited to.
int64_t available() {
  static const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "none" : all;
}

}  // namespace

HWY_EXPORT(Name);
const char* simd_name() { return HWY_DYNAMIC_DISPATCH(Name)(); }

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const Target& target : kTargets)
    if (available() & target.bits) names.emplace_back(target.name);
  return names;
}

void limit_simd() {
  const char* wanted = std::getenv("TEMPER_SIMD");
  if (!wanted || !*wanted) return;
  for (const Target& target : kTargets) {
    if (wanted != std::string(target.name)) continue;
    if (!(available() & target.bits)) break;
    // Not DisableTargets: Highway 1.0 forgets it when it is asked again what the machine has.
    hwy::SetSupportedTargetsForTest(available() & target.bits);
    avx512_allowed = target.bits == kAvx512;
    return;
  }
  throw ConfigError(str("the environment variable TEMPER_SIMD: found `", wanted,
                        "`, expected one of the vector instructions that this machine and this "
                        "build have: ",
                        joined(simd_targets())));
}

bool allows_avx512() { return avx512_allowed; }

}  // namespace temper::kernels
#endif
