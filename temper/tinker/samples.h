// Requests to sample: their JSON, and how the engine answers them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "temper/serve/body.h"
#include "temper/serve/sampler_loop.h"
#include "temper/tinker/adapter.h"
#include "temper/tinker/chunks.h"
#include "temper/tinker/sliced_pass.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {

struct SampleRequest {
  std::vector<int32_t> prompt;
  ImageSpans images;           // which of its tokens stand for images
  std::shared_ptr<void> held;  // counts the images' bytes (SamplerLoop::hold)
  // Its place at the sampler, where it got one before its images were decoded.
  std::optional<serve::Reservation> place = {};
  int64_t num_samples = 1;
  generate::GenerationOptions options;
  bool prompt_logprobs = false;
  int64_t top_of_prompt = 0, top_of_samples = 0;  // likeliest tokens a position
  int64_t last_n = 0;                             // of the prompt's tokens alone; 0: all
  WireTensor targets;  // ids whose log-probabilities are asked for; shape empty: none

  bool scores_prompt() const { return prompt_logprobs || top_of_prompt > 0; }
};

// Reads the body of `asample`. Throws DataError for what is wrong or not offered. most_positions:
// of a prompt and its completion; the completion is shortened to fit, the prompt is not. Of images
// the headers alone are read: they must be decoded before the engine gets them.
SampleRequest read_sample(const Json& body, int64_t vocabulary, int64_t most_positions,
                          const ChunkFormat& chunks = {});

// What a client waits for. One of `done` and `failed` is called, once: on the sampling thread, or
// within start().
class Sampling : public std::enable_shared_from_this<Sampling> {
 public:
  using Done = std::function<void(SampleResult)>;
  using Failed = std::function<void(const std::string& why)>;
  // How many requests of a session are being sampled. Of many samples some are sampled at a time,
  // fewer where the session has more requests, so that others need not wait for all.
  using Beside = std::shared_ptr<std::atomic<int64_t>>;
  // `place` is held until the last token is sampled; null: the base model. client: who takes turns
  // with others at the engine (generate::Request::client). Throws as
  // SamplerLoop::reserve and submit.
  static std::shared_ptr<Sampling> start(serve::SamplerLoop& loop, const SampleRequest& request,
                                         std::shared_ptr<AdapterPlace> place,
                                         WireTensor target_logprobs, const Beside& beside,
                                         uint64_t client, Done done, Failed failed);
  // Nothing more is sampled, and neither function is called.
  void cancel();

 private:
  struct Part {  // one ticket's choices
    std::shared_ptr<serve::Ticket> ticket;
    std::vector<serve::Piece> pieces;
    size_t left = 0;
    bool samples = true;  // else its prompt's scores alone are of interest
  };
  void submit(generate::Request request, serve::Reservation reservation, bool samples);
  void submit_next();
  void look();
  bool take();
  SampleResult result() const;

  serve::SamplerLoop* loop_ = nullptr;
  SampleRequest request_;
  generate::Request asked_;         // for all samples
  serve::Reservation reservation_;  // until the last sample is complete
  std::shared_ptr<void> counted_;   // in beside_
  Beside beside_;
  int64_t next_sample_ = 0;  // the first one that was not submitted
  std::shared_ptr<AdapterPlace> place_;
  WireTensor target_logprobs_;
  Done done_;
  Failed failed_;
  std::mutex mutex_;
  std::vector<Part> parts_;  // of the samples in order, and where it is another request, the
                             // prompt's scores
  bool over_ = false;
};

// Log-probabilities of given tokens at a prompt's positions, at temperature 1, in slices between
// which others may use the model. On the thread that owns the model.
class TargetLogprobs {
 public:
  TargetLogprobs(models::CausalLM& model, int adapter, const SampleRequest& request);
  // True: that was the last slice.
  bool step() { return !pass_ || pass_->step(); }
  // With the layout of SampleRequest::targets; 0 where it asks for nothing.
  const WireTensor& result() const { return result_; }

 private:
  WireTensor result_;
  std::unique_ptr<SlicedPass> pass_;  // null: nothing is asked for
};

}  // namespace temper::tinker
