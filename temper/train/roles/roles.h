// The models of a run by their roles: those that train (the policy, a critic, projections) and
// those that do not (a reference, a teacher).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/train/forward_pass.h"
#include "temper/train/optimizers/optimizer.h"
#include "temper/train/roles/critic.h"
#include "temper/train/roles/policy.h"

namespace temper::train {

// Something that trains: parameters with an optimizer of their own. Checkpoints keep it by its
// name.
struct Trainable {
  Trainable(std::string trainable_name, const OptimizerSection& section,
            std::vector<NamedParameter> parameters,
            std::function<void(const std::string& directory)> save_in = {},
            const std::string& where_groups = "optimizer.groups")
      : name(std::move(trainable_name)),
        settings(section),
        optimizer(section, std::move(parameters), where_groups),
        save(std::move(save_in)) {}

  std::string name;           // "policy", "critic", ...
  OptimizerSection settings;  // its own learning rate, schedule and clipping
  Optimizer optimizer;
  int64_t frozen_steps = 0;  // the first so many steps leave it as it is, at a learning rate of 0
  // Writes the trained model into a directory: OUTPUT_DIR/final for the policy, OUTPUT_DIR/NAME for
  // others. Empty: nothing is saved. Where ranks share it out all of them save, those that do not
  // write with an empty directory.
  std::function<void(const std::string& directory)> save;
  bool shared_out = false;  // ranks share out models of the run: all of them are needed to save
};

using Trainables = std::vector<std::unique_ptr<Trainable>>;

// The trainable "policy": the config's optimizer over those of the model's parameters that train,
// which need no values.
std::unique_ptr<Trainable> policy_trainable(
    nn::Module& model, const RunConfig& config,
    std::function<void(const std::string& directory)> save_in = {});

// Log-probabilities of a model that does not train: a reference or a teacher.
class Frozen {
 public:
  virtual ~Frozen() = default;
  // Log-probabilities of the pass's targets [M], at this temperature, without gradients.
  virtual at::Tensor token_logp(const ForwardPass& pass, double temperature) = 0;
  // The model itself, for uses beyond log-probabilities; null: there is none.
  virtual models::CausalLM* model() const { return nullptr; }
  virtual std::string describe() const = 0;  // "the base model without its adapter"
};

// Where such a model comes from, declared once for a run and for `temper check`: the policy without
// its adapter, which costs no memory, the policy with a copy of its adapter as it is when it loads,
// or a model of its own.
struct FrozenSource {
  enum class Kind { kBase, kAdapter, kModel };
  Kind kind;
  std::string directory = {};  // of kModel
  models::Storage storage = {};
  std::unique_ptr<Frozen> load(Policy& policy) const;
};
// A model of its own, kept under the config's model.dtype.
FrozenSource model_source(const std::string& directory, const RunConfig& config,
                          const Policy& policy);
// The same of a directory that a key of the config names. Throws ConfigError unless it reads the
// policy's token ids, and the run's ranks can divide it.
FrozenSource named_source(const std::string& directory, const char* key, const RunConfig& config,
                          const Policy& policy);
// The initial policy: with a new adapter its base, with adapter.path a copy of it, without an
// adapter a model of its own, from model.path.
FrozenSource start_source(const Policy& policy, const RunConfig& config);

// The models that a run's task and trainer share.
struct Roles {
  // The policy of the config, with its optimizer as the first trainable.
  explicit Roles(RunConfig& config, const dist::Mesh& mesh = {});
  // A policy that a program made itself.
  Roles(Policy own_policy, const OptimizerSection& section);
  // A scalar model as the first trainable, with the config's optimizer; the policy has no model.
  Roles(ScalarPolicy& scalar, RunConfig& config);
  Roles(const Roles&) = delete;
  Roles& operator=(const Roles&) = delete;

  Policy policy;
  Trainables trainables;
  std::unique_ptr<Frozen> reference;  // null unless the task asks for one
  std::unique_ptr<Frozen> teacher;
  std::unique_ptr<Critic> critic;  // trains as the trainable "critic"

  // Models that a task runs along besides, in step with the policy; they outlive the trainer.
  std::vector<nn::Module*> others;
  // All models, each once.
  std::vector<nn::Module*> models() const;
  // Of those that train a vision tower.
  std::vector<models::Encoder*> trained_encoders() const;

 private:
  nn::Module* scalar_ = nullptr;
};

bool is_shared_out(const Trainables& trainables);

}  // namespace temper::train
