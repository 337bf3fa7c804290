// The config of training on preferences: dpo, orpo and reward share the section.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/generate/config.h"
#include "temper/train/config.h"

namespace temper::preference {

// A loss of the table in losses.h, and its weight in the sum.
struct WeightedLoss {
  std::string loss;
  double weight = 1;
  void fields(Fields& f);
  bool operator==(const WeightedLoss&) const = default;
};

// The name of a loss, or a list of them with weights.
struct LossChoice {
  LossChoice(std::string name = "sigmoid") : terms{{std::move(name)}} {}
  LossChoice(const char* name) : LossChoice(std::string(name)) {}
  std::vector<WeightedLoss> terms;
  std::string text() const;  // "0.8 sigmoid + 0.2 sft"
  bool operator==(const LossChoice&) const = default;
};

struct PreferenceSection {
  enum class Reference { kAuto, kAdapterOff, kModel, kPrecomputed, kNone };
  enum class TrainOn { kCompletion, kAll };
  LossChoice loss;
  double beta = 0.1;
  double lambda = 0.1;
  double label_smoothing = 0;
  double simpo_gamma = 0.5;
  double desirable_weight = 1, undesirable_weight = 1;
  TrainOn train_on = TrainOn::kCompletion;
  Reference reference = Reference::kAuto;
  std::optional<std::string> reference_model;
  double center_rewards_coefficient = 0;
  void fields(Fields& f);
};

struct PreferenceConfig : train::RunConfig {
  PreferenceSection preference;
  generate::RolloutSection rollout;
  void fields(Fields& f) override;
  std::vector<std::string> evaluated_metrics() const override;

  const generate::RolloutSection* sampling() const override {
    return is_scalar() ? nullptr : &rollout;
  }

  // What the verb makes of the section: a reward model, with a head on the last token;
  bool is_scalar() const { return verb == "reward"; }
  // a loss that takes completions without their opposites (kto);
  bool is_unpaired() const;
  // a loss that compares with a reference.
  bool has_reference() const;

 protected:
  void complete() override;
  void validate() const override;
  std::string no_reference_role() const override;

 private:
  void validate_dpo() const;
};

}  // namespace temper::preference
