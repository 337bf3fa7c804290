#include "temper/dist/config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "temper/base/error.h"

namespace temper::dist {
namespace {

using enum Axis::Divides;

// name, same_rows, divides, excludes, help
constexpr Axis kAxes[] = {
    {"data", false, kNothing, nullptr, "data-parallel replicas; -1: all remaining ranks"},
    {"fsdp", false, kWeights, nullptr,
     "number of shards of weights, gradients and optimizer state (FSDP); each rank has its own "
     "rows"},
    {"context", true, kTokens, nullptr,
     "number of ranks that divide the tokens of each row (context parallelism): keys and values "
     "are gathered layer by layer, so that attention's work and memory are divided as well"},
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

void MeshSection::fields(Fields& f) {
  for (size_t i = 0; i < axes().size(); ++i)
    f.add(axes()[i].name, (*this)[i], axes()[i].help, at_least(i == 0 ? -1 : 1));
  f.add("timeout_minutes", timeout_minutes,
        "timeout of a collective, for ranks that are alive but do not join it", above(0));
  f.add(
      "heartbeat_timeout_seconds", heartbeat_timeout_seconds,
      "time without a heartbeat after which a rank counts as lost: its process is stopped, or its "
      "host frozen; a busy rank sends them",
      at_least(10));
  f.add("check_weights_every", check_weights_every,
        "steps between comparisons of hashes of the weights that ranks should hold alike; 0: only "
        "when the run starts",
        at_least(0));
}

AxisSizes MeshSection::sizes(int64_t ranks, const std::string& where, int64_t all) const {
  check<ConfigError>(data != 0, where, ".data: found 0, expected -1 or at least 1");
  AxisSizes sizes = *this;
  if (data < 0) sizes.data = 1;
  std::array<bool, AxisSizes::kCount> hidden{};  // in the message
  for (size_t i = 0; i < axes().size(); ++i) {
    const Axis& axis = axes()[i];
    hidden[i] = hidden[i] || (axis.divides_tokens() && sizes[i] == 1);
    if (!axis.excludes) continue;
    const auto other = static_cast<size_t>(
        std::ranges::find(axes(), std::string_view(axis.excludes), &Axis::name) - axes().begin());
    check<ConfigError>(sizes[i] == 1 || sizes[other] == 1, where, ": found ", axis.excludes, " ",
                       sizes[other], " and ", axis.name, " ", sizes[i],
                       ", expected one of them to be 1: ranks that compute the same rows divide "
                       "either every layer or the experts");
    hidden[sizes[i] == 1 ? i : other] = true;
  }
  std::string shown;
  for (size_t i = data < 0 ? 1 : 0; i < axes().size(); ++i)
    if (!hidden[i]) shown += str(shown.empty() ? "" : " x ", axes()[i].name, " ", sizes[i]);
  double asked = 1;
  for (size_t i = 0; i < axes().size(); ++i) asked *= static_cast<double>(sizes[i]);
  const bool fits = asked <= static_cast<double>(ranks) && ranks % sizes.product() == 0 &&
                    (data < 0 || sizes.product() == ranks);
  check<ConfigError>(fits, where, ": ", shown, data < 0 ? " does not divide the " : " is not the ",
                     ranks, ranks == 1 ? " rank" : " ranks",
                     all > ranks ? str(" that train, of ", all) : "",
                     "; start as many with --nproc or torchrun, or choose other axes");
  sizes.data *= ranks / sizes.product();
  return sizes;
}

}  // namespace temper::dist
