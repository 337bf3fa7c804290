// The reference model of DPO's losses, which stays as it is while the policy trains.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "temper/dist/group.h"
#include "temper/preference/config.h"
#include "temper/preference/sides.h"
#include "temper/train/messages.h"
#include "temper/train/roles/roles.h"
#include "temper/workers/role_ranks.h"

namespace temper::preference {

class Reference {
 public:
  virtual ~Reference() = default;
  // Once, before the first step. `stop` is asked now and then; true ends it with a RunError.
  virtual void begin(const std::function<bool()>& /*stop*/) {}

  struct Sums {
    at::Tensor chosen_C, rejected_R;  // float64: log π_ref(y|x), summed over completions
  };
  // Sums of log-probabilities of the pass's sides; `rows` are the rows of its pack units, by
  // number.
  virtual Sums sums(std::span<const PreferenceRow> rows, const train::ForwardPass& pass,
                    const SideTargets& chosen, const SideTargets& rejected) = 0;
  virtual std::string describe() const = 0;
};

// All rows that a run reads, for a reference that is computed before.
struct ReferenceRows {
  std::vector<const data::RowSet*> sets;
  std::function<std::optional<PreferenceRow>(const data::RowSet& set, int64_t row)> read;
};

// The reference that preference.reference names. Throws ConfigError. role_ranks: the ranks that
// compute it, where the config's roles.reference names ranks; else null.
std::unique_ptr<Reference> make_reference(const PreferenceConfig& config, train::Roles& roles,
                                          ReferenceRows rows, dist::Group& group,
                                          train::Messages& messages,
                                          workers::RoleRanks* role_ranks = nullptr);
// The model of such a reference. Throws ConfigError.
train::FrozenSource reference_source(const PreferenceConfig& config, const train::Policy& policy);

// Computed once, in batches over all ranks, and kept in OUTPUT_DIR/reference_logps.safetensors with
// a fingerprint of the model's and the data's files: a file with the same one is read instead. The
// numbers are those of `make()`'s model to the bit, as no number depends on what is in its batch.
std::unique_ptr<Reference> precomputed_reference(
    const PreferenceConfig& config, ReferenceRows rows, dist::Group& group,
    train::Messages& messages, const std::function<std::unique_ptr<train::Frozen>()>& make);

}  // namespace temper::preference
