#include "temper/dist/config.h"

#include "temper/base/error.h"

namespace temper::dist {

void MeshSection::fields(Fields& f) {
  f.add("data", data, "data-parallel replicas; -1: all remaining ranks", at_least(-1));
  f.add("fsdp", fsdp,
        "number of shards of weights, gradients and optimizer state (FSDP); each rank has its own "
        "rows",
        at_least(1));
  f.add("tensor", tensor,
        "tensor-parallel degree: ranks that split every layer and compute the same rows",
        at_least(1));
  f.add("expert", expert,
        "expert-parallel degree of a mixture of experts: ranks that divide each layer's experts "
        "among them and compute the same rows; not together with tensor",
        at_least(1));
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

int64_t MeshSection::data_ranks(int64_t ranks, const std::string& where, int64_t all) const {
  check<ConfigError>(data != 0, where, ".data: found 0, expected -1 or at least 1");
  check<ConfigError>(tensor == 1 || expert == 1, where, ": found tensor ", tensor, " and expert ",
                     expert,
                     ", expected one of them to be 1: ranks that compute the same rows divide "
                     "either every layer or the experts");
  const double asked = static_cast<double>(fsdp) * static_cast<double>(tensor) *
                       static_cast<double>(expert) * static_cast<double>(data < 0 ? 1 : data);
  const bool fits = asked <= static_cast<double>(ranks) && ranks % (fsdp * tensor * expert) == 0 &&
                    (data < 0 || data * fsdp * tensor * expert == ranks);
  check<ConfigError>(fits, where, ": ", data < 0 ? "" : str("data ", data, " x "), "fsdp ", fsdp,
                     expert > 1 ? str(" x expert ", expert) : str(" x tensor ", tensor),
                     data < 0 ? " does not divide the " : " is not the ", ranks,
                     ranks == 1 ? " rank" : " ranks",
                     all > ranks ? str(" that train, of ", all) : "",
                     "; start as many with --nproc or torchrun, or choose other axes");
  return ranks / (fsdp * tensor * expert);
}

}  // namespace temper::dist
