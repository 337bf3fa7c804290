// The base of several runs with the adapters of all, and passes of several of them
// (nn/mixed_adapters.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/adapters/lora_config.h"
#include "temper/models/model.h"
#include "temper/models/shared.h"
#include "temper/train/forward_pass.h"

namespace temper::train {

class JointModel {
 public:
  // A language model, or with a seed a scalar one. Throws what models::load_model and
  // models::load_scalar_model throw.
  JointModel(const std::string& directory, const models::Storage& storage,
             std::optional<uint64_t> seed = {});
  // Whether these would load the same.
  bool is(const std::string& directory, const models::Storage& storage, bool scalar) const;
  models::Model& model() { return *model_; }
  models::CausalLM* language() { return language_; }  // null: a scalar model
  bool mixes_adapters() const { return mixes_; }

  // Models without an adapter on the same memory; a scalar one has a head of its own, drawn from
  // the seed where the directory has none.
  std::unique_ptr<models::CausalLM> share();
  std::unique_ptr<models::ScalarModel> share_scalar(uint64_t seed);
  // Gives the number, for nn::Context::adapter here, of the policy's adapter `index` (0: its own),
  // whose memory it shares. `lora`: what the policy's own was made by. Until remove().
  int add(models::Model& policy, const models::LoraConfig& lora, int index);
  void remove(int adapter);
  // After the adapter's values have changed at the policy, before they are computed with.
  void refresh(int adapter);
  // Adds the gradients that passes left to those of the policy's adapter, in its own tensors.
  void give_gradients(int adapter);

 private:
  struct Adapter {
    int index = 0;
    std::vector<models::ParameterCopy> parameters;
    std::vector<uint64_t> updates = {};  // of the policy's, as the copies have their values
  };
  Adapter& find(int adapter);
  void give_parts(models::Model& to) const;

  const std::string directory_;
  const models::Storage storage_;
  std::unique_ptr<models::Model> model_;
  models::CausalLM* language_ = nullptr;
  models::ScalarModel* scalar_ = nullptr;
  bool has_score_ = false;  // the directory has the scalar model's head
  bool mixes_ = false;
  std::vector<Adapter> adapters_;
};

class JointPass {
 public:
  struct Request {
    const ForwardPass* pass = nullptr;
    PassOptions options;
    int adapter = 0;      // of the joint model; -1: the base
    bool trains = false;  // a backward pass follows
    // Of the pass's targets: log-probabilities, entropies, normalizers, the latter undefined unless
    // asked for. Of a scalar model the hidden states of all tokens.
    std::vector<at::Tensor> out = {};
  };
  // Whether two requests may be of one pass.
  static bool fit(const Request& a, const Request& b);
  // Makes the forward pass and fills in `out` of each request.
  JointPass(JointModel& model, const std::vector<Request*>& requests);

  // The gradients of a request's `out`, by its place among them.
  void take(size_t part, std::vector<at::Tensor> gradients);
  // The run of the request needs no backward pass any more.
  void leave(size_t part) { parts_[part].left = true; }
  bool is_ready() const;  // take() or leave() was called for each
  // Makes the backward pass and gives the adapters of the runs their gradients.
  void backward();
  bool is_done() const { return done_; }

 private:
  struct Part {
    int adapter = 0;
    int64_t begin = 0, end = 0;         // of the pass's targets, or tokens
    std::vector<at::Tensor> gradients;  // as Request::out
    bool taken = false, left = false;
  };

  std::vector<at::Tensor> run(const PassOptions& options);

  JointModel& model_;
  ForwardPass pass_;  // outlives the graph, which may read it
  std::vector<at::Tensor> outputs_;
  std::vector<Part> parts_;  // in the order of the requests
  bool done_ = false;
};

}  // namespace temper::train
