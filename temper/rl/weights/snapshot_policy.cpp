#include "temper/rl/weights/snapshot_policy.h"

#include <ATen/ATen.h>
#include <omp.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/tensors.h"
#include "temper/ops/processors.h"
#include "temper/train/roles/parameters.h"

namespace temper::rl {

// An engine that leaves processors to a thread that trains at the same time. How many threads
// compute changes no bit.
class SnapshotPolicy::SharingEngine : public generate::CompletionSource {
 public:
  SharingEngine(models::CausalLM& model, int adapter, const generate::EngineOptions& options,
                std::shared_ptr<const Tokenizer> tokenizer, std::optional<int64_t> threads)
      : engine_(model, options, std::move(tokenizer)),
        adapter_(adapter),
        all_(omp_get_max_threads()),
        own_(std::clamp<int>(static_cast<int>(threads.value_or(all_ / 2)), 1,
                             std::max(1, all_ - 1))) {}

  generate::RequestId submit(generate::Request request, generate::Callbacks callbacks) override {
    request.adapter = adapter_;
    return engine_.submit(std::move(request), std::move(callbacks));
  }
  void cancel(generate::RequestId id) override { engine_.cancel(id); }
  bool step(const generate::Callbacks& callbacks) override {
    sampling_ = true;
    divide();
    ops::follow_processors(for_sampling_);
    const bool more = engine_.step(callbacks);
    // Agents may think for long before they ask again.
    if (!more) leave();
    return more;
  }
  bool wait(std::chrono::milliseconds timeout) const override { return engine_.wait(timeout); }
  void rest() override {
    leave();
    engine_.rest();
  }
  generate::Speculation::Statistics speculation() const override { return engine_.speculation(); }

  ~SharingEngine() override {
    sampling_ = training_ = false;
    divide();
    ops::follow_processors(for_training_);
    ops::follow_processors(nullptr);
  }

  // On the thread that trains, or waits.
  void share(bool training) {
    training_ = training;
    divide();
    ops::follow_processors(for_training_);
  }

 private:
  void leave() {
    sampling_ = false;
    divide();
  }
  // Each of the two threads has all processors while the other waits.
  void divide() {
    const std::lock_guard lock(dividing_);  // the later call must see both flags
    *for_sampling_ = training_ ? own_ : all_;
    *for_training_ = sampling_ ? std::max(1, all_ - own_) : all_;
  }

  generate::Engine engine_;
  const int adapter_, all_, own_;
  std::mutex dividing_;
  std::atomic<bool> sampling_{false}, training_{false};
  using Count = std::shared_ptr<std::atomic<int>>;
  const Count for_sampling_ = std::make_shared<std::atomic<int>>(own_),
              for_training_ = std::make_shared<std::atomic<int>>(all_);
};

SnapshotPolicy::SnapshotPolicy(const RlConfig& config, train::Policy& policy) {
  models::CausalLM& model = *policy.model;
  if (policy.lora) {
    adapter_ = models::freeze_adapter_copy(model);
    parameters_ = models::adapter_copy(model, adapter_);
  } else {
    copy_ = models::share_base(model, models::HfConfig::load(config.model.path));
    parameters_ = models::trainable_copy(model, *copy_);
  }
  for (const train::NamedParameter& p : train::trainable_parameters(model))
    names_[p.parameter] = p.name;
  engine_ = std::make_unique<SharingEngine>(copy_ ? *copy_ : model, adapter_,
                                            config.rollout.engine_options(), policy.tokenizer,
                                            config.rollout.threads);
}

SnapshotPolicy::~SnapshotPolicy() = default;

generate::CompletionSource& SnapshotPolicy::completions() { return *engine_; }

void SnapshotPolicy::share_processors(bool training) { engine_->share(training); }

void SnapshotPolicy::keep(int64_t version) {
  if (version == kept_last_) return;
  kept_last_ = version;
  std::vector<at::Tensor> values;
  for (const models::ParameterCopy& p : parameters_)
    values.push_back(p.from->value().detach().clone());
  keep(version, std::move(values));
}

void SnapshotPolicy::keep(int64_t version, const std::shared_ptr<const std::string>& weights) {
  const TensorMap tensors =
      parse_safetensors(std::as_bytes(std::span(*weights)), "kept weights", weights);
  std::vector<at::Tensor> values;
  for (const models::ParameterCopy& p : parameters_)
    values.push_back(models::to_tensor(tensors.at(names_.at(p.from)), at::kFloat));
  keep(version, std::move(values));
}

void SnapshotPolicy::keep(int64_t version, std::vector<at::Tensor> values) {
  const std::lock_guard lock(mutex_);
  kept_[version] = std::move(values);
}

void SnapshotPolicy::use(int64_t version) {
  if (version == used_) return;
  std::vector<at::Tensor> values;
  {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(version);
    check(found != kept_.end(), "no weights were kept of the policy after ", version, " updates");
    values = std::move(found->second);
    kept_.erase(kept_.begin(), std::next(found));
  }
  for (size_t i = 0; i < values.size(); ++i) parameters_[i].to->set_value(std::move(values[i]));
  used_ = version;
}

}  // namespace temper::rl
