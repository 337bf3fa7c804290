// Critics, which others call value models: for each token, the return expected after it. They train
// beside the policy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/models/files/save.h"
#include "temper/train/forward_pass.h"
#include "temper/train/roles/parameters.h"
#include "temper/train/roles/policy.h"

namespace temper::train {

class Critic {
 public:
  virtual ~Critic() = default;
  // The value where each target of the pass is predicted, that is before it is known [M];
  // differentiable in parameters().
  virtual at::Tensor values(const ForwardPass& pass, const PassOptions& options) = 0;
  // The model of its own that it has; null: it is on another one.
  virtual nn::Module* module() { return nullptr; }
  // The parameters that train, by the names that a checkpoint keeps.
  virtual std::vector<NamedParameter> parameters() = 0;
  // Writes a directory that transformers' AutoModelForSequenceClassification loads, with one label
  // and one model.safetensors in float32. As Trainable::save.
  virtual void save(const std::string& directory) const = 0;
};

// A model of its own, all of which trains but what `freeze` (train.freeze) matches. `files` are
// those of the directory that save() writes.
std::unique_ptr<Critic> critic_model(std::unique_ptr<models::ScalarModel> model,
                                     models::ModelFiles files,
                                     const std::vector<std::string>& freeze = {});
// A scalar head, drawn from the seed, and a second adapter on the policy's frozen base that begins
// as the policy's own: costs no other model. The policy has an adapter and outlives the critic.
// save() writes the merged model.
std::unique_ptr<Critic> critic_on_base(Policy& policy, models::ModelFiles files, uint64_t seed);

}  // namespace temper::train
