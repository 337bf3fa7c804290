#include "temper/dist/axes.h"

#include <vector>

#include "temper/base/error.h"

namespace temper::dist {
namespace {

using enum Axis::Divides;

// name, same_rows, divides, instead_of, help
constexpr Axis kAxes[] = {
    {"data", false, kNothing, nullptr, "data-parallel replicas; -1: all remaining ranks"},
    {"fsdp", false, kWeights, nullptr,
     "number of shards of weights, gradients and optimizer state (FSDP); each rank has its own "
     "rows"},
    {"tensor", true, kLayers, nullptr,
     "tensor-parallel degree: ranks that split every layer and compute the same rows"},
    {"expert", true, kExperts, "tensor",
     "expert-parallel degree of a mixture of experts: ranks that divide each layer's experts among "
     "them and compute the same rows; not together with tensor"},
};
static_assert(std::size(kAxes) == AxisSizes::kCount);

}  // namespace

std::span<const Axis> axes() { return kAxes; }

std::string one_rank_each(Which which) {
  std::string text, last;
  for (const Axis& axis : axes()) {
    if (!(axis.*which)()) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = str("mesh.", axis.name, " 1");
  }
  return text.empty() ? last : text + " and " + last;
}

}  // namespace temper::dist
