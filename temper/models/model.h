// Whole models: a family's body with a head.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "temper/io/mapped_files.h"
#include "temper/models/device.h"
#include "temper/models/family.h"
#include "temper/models/head.h"
#include "temper/models/storage_name.h"

namespace temper::models {

class Encoder;
class Tower;

// What language and scalar models have in common.
class Model : public nn::Module {
 public:
  // Hidden states after the final norm, [N, hidden_size], of every token of the batch. External
  // rows without features get those that `vision` gives for their source; without it they are an
  // error.
  at::Tensor forward(const nn::Context& context);

  Backbone& body() { return *body_; }
  const ModelConfig& config() const { return body_->config(); }

  // Loads the tower of `vision`, which stays the model's: from here on the tower's modules are
  // among its own, behind `model.` as transformers names them, so that they may train.
  Tower& take_tower();
  Tower* tower() const;  // null: none was taken

  MappedFiles files;  // what its weights are mapped from; empty where they are the model's own
  std::shared_ptr<Encoder> vision;  // null: it reads text alone
  // The ranks that divide the tokens of a training pass (nn/token_share.h); null: none do.
  std::shared_ptr<dist::Group> token_ranks;
  // The directory of a model that reads images, of which this is the language model, where saving
  // it saves all of that; "": it is saved as it is.
  std::string whole;

 protected:
  explicit Model(std::unique_ptr<Backbone> body);
  std::unique_ptr<Backbone> body_;
};

// Tokens that stand for images, or around them, and are never sampled: their ids, as far as
// config.json names them, and their texts, whose ids the tokenizer knows.
struct ImageMarks {
  std::vector<int32_t> ids = {};
  std::vector<std::string> texts = {};
};

// A causal language model. Parameters are named as transformers names them: `model.` is the body,
// `lm_head.weight` the head where it is not tied.
class CausalLM : public Model {
 public:
  explicit CausalLM(std::unique_ptr<Backbone> body);

  // log p of target[i] after row rows[i] of `hidden`, and what else is asked for, on device().
  ops::TokenLogp token_logp(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                            const std::vector<int64_t>& target,
                            const LogpOptions& options = {}) const {
    return head_.token_logp(hidden, rows, target, options);
  }
  // Logits of the next token after every row of `hidden`, or after the rows given, in the host's
  // memory. `adapter`: that of the forward pass (nn::Context::adapter), here and below.
  ops::Logits logits(const at::Tensor& hidden, double temperature = 1, int adapter = 0) const {
    return head_.logits(hidden, temperature, adapter);
  }
  ops::Logits logits(const at::Tensor& hidden, const std::vector<int64_t>& rows,
                     double temperature = 1, int adapter = 0) const;
  // Those after every row, where the weights lie.
  ops::Logits logits_on_device(const at::Tensor& hidden, double temperature, int adapter) const {
    return head_.logits_on_device(hidden, temperature, adapter);
  }

  // Where its weights lie.
  at::Device device() const { return head_weight().device(); }
  // [vocabulary, hidden_size], whether it is the head's own or the embedding's.
  const nn::Parameter& head_weight(int adapter = 0) const { return head_.weight(adapter); }
  // Whether the adapter is on the head as well.
  bool adapts_head(int adapter = 0) const { return head_.is_adapted(adapter); }
  ops::AttentionSpec attention_spec(int64_t layer = 0) const {
    return body_->attention_spec(layer);
  }

  std::vector<int32_t> eos_token_ids;
  ImageMarks image_marks;  // of a model with a tower

 private:
  VocabularyHead head_;

 public:
  const int64_t num_layers, vocab_size, hidden_size;
};

// A body with one number a token: a reward model or a critic. `model.` and `score.weight`, as
// transformers' AutoModelForSequenceClassification.
class ScalarModel : public Model {
 public:
  explicit ScalarModel(std::unique_ptr<Backbone> body);

  // The number at row rows[i] of `hidden`, [M], in the host's memory; differentiable.
  at::Tensor values(const at::Tensor& hidden, const std::vector<int64_t>& rows) {
    return head_.values(hidden, rows);
  }

 private:
  ScalarHead head_;
};

// The name of a ScalarModel's head among its modules.
inline constexpr const char* kScorePath = "score";

// How a model's weights are kept (norms, biases and adapters in float32), and what it rounds.
struct Storage {
  ops::WeightFormat weights = ops::WeightFormat::kFloat32;  // of linear layers, embedding and heads
  // Of the blocks' linear layers (q, k, v, o, gate, up, down), where it is another. One of files
  // (ops::FormatRow): of those that the files hold in it; the others are as `weights`.
  std::optional<ops::WeightFormat> blocks;
  // kAmx: of quantized ones, too; kInteger: of those alone.
  ops::Arithmetic arithmetic = ops::Arithmetic::kExact;
  // Attention rounds keys and values to it, in every forward pass.
  ops::CacheDtype cache_dtype = ops::CacheDtype::kFloat32;
  // The ranks that compute the same rows, each with its part of every layer or, by_expert, with
  // some of the experts; null: none.
  std::shared_ptr<dist::Group> tensor = nullptr;
  bool by_expert = false;
  // Model::token_ranks.
  std::shared_ptr<dist::Group> token_ranks = nullptr;
  // Where all weights lie.
  at::Device device = chosen_device();
  // Matrices of linear layers, embedding and heads that the files hold in a quantized format stay
  // in it, whatever it is; `blocks` is then none.
  bool file = false;
  // The language model of one that reads images stays a part of it: Model::whole.
  bool whole = false;
  // And has its tower (Model::vision).
  bool sees = true;
};
// That of frozen weights of a dtype, or of another one that was asked for; none: kFile.
Storage frozen_storage(bool bfloat16, std::optional<StorageName> asked);
// Whether any weights are then in a format that storage.arithmetic is of. `held`: the formats in
// which the model's files hold quantized matrices (held_formats).
bool uses_arithmetic(const Storage& storage, const std::set<ops::WeightFormat>& held);
void set_storage(nn::Module& model, const Storage& storage);
// nn::Attention::set_cache_dtype of all of its layers.
void set_cache_dtype(nn::Module& model, ops::CacheDtype dtype);

// A model without values. Throws ConfigError for an unknown family, naming those that are known.
std::unique_ptr<CausalLM> make_model(const HfConfig& config);

}  // namespace temper::models
