#include "temper/train/roles/critic.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/glob.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/init.h"
#include "temper/nn/unit.h"
#include "temper/train/passes/rank_pass.h"

namespace temper::train {
namespace {

constexpr const char* kScore = "score.weight";

void write_classifier(models::ScalarModel& model, const models::ModelFiles& files,
                      const std::string& directory) {
  if (!directory.empty())
    models::write_model_files(files, directory, at::kFloat, models::HeadKind::kScalar);
  models::save_weights(model, directory, at::kFloat, true);
}

class OwnCritic : public Critic {
 public:
  OwnCritic(std::unique_ptr<models::ScalarModel> model, models::ModelFiles files,
            const std::vector<std::string>& freeze)
      : model_(std::move(model)), files_(std::move(files)) {
    model_->each_parameter([&](const std::string& name, nn::Parameter& p) {
      const bool frozen =
          std::any_of(freeze.begin(), freeze.end(),
                      [&](const std::string& pattern) { return matches_glob(pattern, name); });
      if (!frozen) p.own();
      p.set_trainable(!frozen);
    });
  }

  at::Tensor values(const ForwardPass& pass, const PassOptions& options) override {
    const RankPass of_rank(*model_, pass);
    return of_rank.of_targets(
        model_->values(model_->forward(of_rank.context(options)), of_rank.pass().row_M));
  }
  nn::Module* module() override { return model_.get(); }
  std::vector<NamedParameter> parameters() override { return trainable_parameters(*model_); }
  void save(const std::string& directory) const override {
    model_->files.check_unchanged();
    write_classifier(*model_, files_, directory);
  }

 private:
  std::unique_ptr<models::ScalarModel> model_;
  models::ModelFiles files_;
};

// Of a head that trains on a base of such an embedding.
ops::WeightFormat trained_format(ops::WeightFormat embedding) {
  using Format = ops::WeightFormat;
  const bool bfloat16 = embedding == Format::kBFloat16 || embedding == Format::kRoundedBFloat16;
  return bfloat16 ? Format::kRoundedBFloat16 : Format::kFloat32;
}

class CriticOnBase : public Critic {
 public:
  CriticOnBase(models::CausalLM& base, models::ModelFiles files, uint64_t seed)
      : base_(base),
        adapter_(models::train_adapter_copy(base)),
        head_(root_, base.config()),
        files_(std::move(files)) {
    root_.each_parameter([&](const std::string& name, nn::Parameter& p) {
      p.set_device(base.device());
      p.set_value(models::initial_value(p, name, seed));
      p.set_format(trained_format(base.body().embedding().weight.format()));
      p.set_trainable(true);
      score_ = &p;
    });
  }

  at::Tensor values(const ForwardPass& pass, const PassOptions& options) override {
    PassOptions own = options;
    own.adapter = adapter_.index;
    const RankPass of_rank(base_, pass);
    return of_rank.of_targets(
        head_.values(base_.forward(of_rank.context(own)), of_rank.pass().row_M));
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> parameters;
    for (const auto& [name, parameter] : adapter_.parameters)
      parameters.push_back({name, parameter});
    parameters.push_back({kScore, score_});
    return parameters;
  }
  void save(const std::string& directory) const override {
    const nn::Gathered whole(base_);
    if (directory.empty()) return;
    const std::unique_ptr<models::ScalarModel> merged =
        models::merged_scalar_model(base_, models::HfConfig::load(files_.config), adapter_.index);
    merged->whole = base_.whole;
    merged->each_parameter([&](const std::string& name, nn::Parameter& p) {
      if (name == kScore) p.set_value(score_->value().detach());
    });
    write_classifier(*merged, files_, directory);
  }

 private:
  models::CausalLM& base_;
  models::TrainedCopy adapter_;
  nn::Module root_;
  models::ScalarHead head_;
  nn::Parameter* score_ = nullptr;
  models::ModelFiles files_;
};

}  // namespace

std::unique_ptr<Critic> critic_model(std::unique_ptr<models::ScalarModel> model,
                                     models::ModelFiles files,
                                     const std::vector<std::string>& freeze) {
  return std::make_unique<OwnCritic>(std::move(model), std::move(files), freeze);
}

std::unique_ptr<Critic> critic_on_base(Policy& policy, models::ModelFiles files, uint64_t seed) {
  return std::make_unique<CriticOnBase>(*policy.model, std::move(files), seed);
}

}  // namespace temper::train
