#include "temper/preference/reference.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/preference/losses.h"
#include "temper/workers/served_reference.h"

namespace temper::preference {
namespace {

using Choice = PreferenceSection::Reference;

// A model that is run along.
class ModelReference : public Reference {
 public:
  explicit ModelReference(std::unique_ptr<train::Frozen> model) : model_(std::move(model)) {}
  Sums sums(std::span<const PreferenceRow>, const train::ForwardPass& pass,
            const SideTargets& chosen, const SideTargets& rejected) override {
    const at::Tensor logp_M = model_->token_logp(pass, 1);
    return {chosen.sum(logp_M), rejected.sum(logp_M)};
  }
  std::string describe() const override { return model_->describe(); }

 private:
  std::unique_ptr<train::Frozen> model_;
};

class NoReference : public Reference {
 public:
  Sums sums(std::span<const PreferenceRow>, const train::ForwardPass&, const SideTargets& chosen,
            const SideTargets& rejected) override {
    return {at::zeros_like(chosen.count_S), at::zeros_like(rejected.count_S)};
  }
  std::string describe() const override { return "none"; }
};

}  // namespace

train::FrozenSource reference_source(const PreferenceConfig& config, const train::Policy& policy) {
  const PreferenceSection& p = config.preference;
  if (p.reference == Choice::kAdapterOff) return {train::FrozenSource::Kind::kBase};
  if (!p.reference_model) return train::start_source(policy, config);
  return train::named_source(*p.reference_model, "preference.reference_model", config, policy);
}

std::unique_ptr<Reference> make_reference(const PreferenceConfig& config, train::Roles& roles,
                                          ReferenceRows rows, dist::Group& group,
                                          train::Messages& messages,
                                          workers::RoleRanks* role_ranks) {
  const PreferenceSection& p = config.preference;
  if (!config.has_reference()) return std::make_unique<NoReference>();
  train::Policy& policy = roles.policy;
  if (p.reference == Choice::kPrecomputed)
    return precomputed_reference(config, std::move(rows), group, messages, [&config, &policy] {
      return reference_source(config, policy).load(policy);
    });
  const train::FrozenSource source = reference_source(config, policy);
  if (role_ranks)
    return std::make_unique<ModelReference>(
        std::make_unique<workers::ServedReference>(*role_ranks, group, messages, policy, source));
  std::unique_ptr<train::Frozen> model = source.load(policy);
  roles.others.push_back(model->model());
  return std::make_unique<ModelReference>(std::move(model));
}

}  // namespace temper::preference
