// Requests to sample: their JSON, and how the engine answers them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "temper/serve/body.h"
#include "temper/serve/sampler_loop.h"
#include "temper/tinker/adapter.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {

struct SampleRequest {
  std::vector<int32_t> prompt;
  int64_t num_samples = 1;
  generate::GenerationOptions options;
  bool prompt_logprobs = false;
  int64_t top_of_prompt = 0, top_of_samples = 0;  // likeliest tokens a position
  int64_t last_n = 0;                             // of the prompt's tokens alone; 0: all
  WireTensor targets;  // ids whose log-probabilities are asked for; shape empty: none

  bool scores_prompt() const { return prompt_logprobs || top_of_prompt > 0; }
};

// Reads the body of `asample`. Throws DataError for what is wrong or not offered. most_positions:
// of a prompt and its completion; the completion is shortened to fit, the prompt is not.
SampleRequest read_sample(const Json& body, int64_t vocabulary, int64_t most_positions);

// What a client waits for. One of `done` and `failed` is called, once: on the sampling thread, or
// within start().
class Sampling : public std::enable_shared_from_this<Sampling> {
 public:
  using Done = std::function<void(SampleResult)>;
  using Failed = std::function<void(const std::string& why)>;
  // `place` is held until the last token is sampled; null: the base model. Throws as
  // SamplerLoop::reserve and submit.
  static std::shared_ptr<Sampling> start(serve::SamplerLoop& loop, const SampleRequest& request,
                                         std::shared_ptr<AdapterPlace> place,
                                         WireTensor target_logprobs, Done done, Failed failed);
  // Nothing more is sampled, and neither function is called.
  void cancel();

 private:
  struct Part {  // one ticket's choices
    std::shared_ptr<serve::Ticket> ticket;
    std::vector<serve::Piece> pieces;
    size_t left = 0;
  };
  void submit(serve::SamplerLoop& loop, generate::Request request);
  void look();
  void take();
  SampleResult result() const;

  SampleRequest request_;
  std::shared_ptr<AdapterPlace> place_;
  WireTensor target_logprobs_;
  Done done_;
  Failed failed_;
  std::mutex mutex_;
  std::vector<Part> parts_;  // the samples, and where it is another request, the prompt's scores
  bool over_ = false;
};

// Log-probabilities of given tokens at a prompt's positions, at temperature 1. On the thread that
// owns the model. `targets` as SampleRequest::targets; the result has its layout.
WireTensor target_logprobs(models::CausalLM& model, int adapter, const SampleRequest& request);

}  // namespace temper::tinker
