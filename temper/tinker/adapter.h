// One trained adapter on the shared frozen base: its weights, its gradients, its optimizer. All is
// used by the one thread that owns the model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/adapters/lora_config.h"
#include "temper/models/model.h"
#include "temper/train/optimizers/optimizer.h"

namespace temper::tinker {

// What a client asks for when it creates a model.
struct AdapterRequest {
  int64_t rank = 32;
  uint64_t seed = 0;
  bool train_attn = true, train_mlp = true, train_unembed = true;
};

// The alpha of all adapters: the output of B A is scaled by alpha / rank.
inline constexpr double kAlpha = 32;

models::LoraConfig lora_config(models::CausalLM& model, const AdapterRequest& request);
// The inputs and outputs of the layers that adapters go on, added up. Before others use the model.
struct AdapterWidths {
  int64_t attn = 0, mlp = 0, unembed = 0;
  int64_t active = 0;  // of those that every token goes through
};
AdapterWidths adapter_widths(models::CausalLM& model);
// Bytes of an adapter in training: float32 values, gradients and two moments. Throws ConfigError
// where it would adapt nothing.
int64_t training_bytes(const AdapterWidths& widths, const AdapterRequest& request);

class AdapterPlaces;

// A place among the model's adapters (nn::Context::adapter). Any thread may end it: the place is
// given back when the thread that owns the model looks next.
class AdapterPlace {
 public:
  ~AdapterPlace();
  AdapterPlace(const AdapterPlace&) = delete;
  AdapterPlace& operator=(const AdapterPlace&) = delete;
  int index() const { return index_; }

 private:
  friend class AdapterPlaces;
  struct Ended {
    std::mutex mutex;
    std::vector<int> indices;
  };
  AdapterPlace(std::shared_ptr<Ended> ended, int index) : ended_(std::move(ended)), index_(index) {}
  const std::shared_ptr<Ended> ended_;
  const int index_;
};

class AdapterPlaces {
 public:
  explicit AdapterPlaces(models::CausalLM& m) : model(m) {}
  std::shared_ptr<AdapterPlace> hold(int index);
  // Removes the adapters whose places have ended. On the thread that owns the model.
  void remove_ended();

  models::CausalLM& model;

 private:
  const std::shared_ptr<AdapterPlace::Ended> ended_ = std::make_shared<AdapterPlace::Ended>();
};

// The fields of a step that clients send.
struct AdamFields {
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-12, weight_decay = 0;
  double grad_clip_norm = 0;  // 0: none
};

class TrainedAdapter {
 public:
  // A fresh one: A as PEFT draws it from the seed, B zero.
  TrainedAdapter(AdapterPlaces& places, const AdapterRequest& request);
  // One that was saved; `with_optimizer`: its moments, too. Throws ConfigError, DataError.
  TrainedAdapter(AdapterPlaces& places, const std::string& directory, bool with_optimizer);

  int index() const { return copy_.index; }
  const models::LoraConfig& config() const { return config_; }
  int64_t steps() const { return optimizer_->steps(); }

  // A step of the optimizer adamw. What has no gradient steps with zeros. Gives the gradients'
  // global L2 norm before clipping. Throws DataError where it is not finite; nothing has changed
  // then but that the gradients are gone.
  double step(const AdamFields& fields);
  // Takes the present gradients out, puts such back in their place, and adds others (undefined ones
  // are none), so that a request that fails leaves none behind.
  std::vector<at::Tensor> take_gradients();
  void put_gradients(const std::vector<at::Tensor>& gradients);
  void add_gradients(const std::vector<at::Tensor>& gradients);

  // A copy of the weights as they are now, which does not train.
  std::shared_ptr<AdapterPlace> snapshot();
  // Writes a PEFT directory, with the optimizer's state beside it where it is asked for. `base`:
  // the base model's directory.
  void save(const std::string& base, const std::string& directory, bool with_optimizer);
  // Takes the values of a saved adapter of the same form. Throws ConfigError, DataError.
  void load(const std::string& directory, bool with_optimizer);

 private:
  void take_copy(int from);
  void read_optimizer(const std::string& directory);

  AdapterPlaces& places_;
  models::LoraConfig config_;
  models::TrainedCopy copy_;
  std::shared_ptr<AdapterPlace> place_;
  std::unique_ptr<train::Optimizer> optimizer_;
};

// A saved adapter that samples.
std::shared_ptr<AdapterPlace> load_place(AdapterPlaces& places, const std::string& directory);

}  // namespace temper::tinker
