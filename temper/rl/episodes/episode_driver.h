// Episodes in an environment, sampled many at once: those whose turn it is are in the engine's
// batch, those that wait for the environment are not, and none waits for another. What an episode
// samples depends on its prompt, what the environment answers, and (seed, index, sample, position
// in the completion): never on timing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/data/rows/prompt_row.h"
#include "temper/env/pool.h"
#include "temper/generate/completion_source.h"
#include "temper/rl/episodes/episode_sampler.h"
#include "temper/text/chat/dialogue.h"

namespace temper::rl {

class EpisodeDriver : public EpisodeSampler {
 public:
  // format: how prompts are read from rows. A turn ends where `options` says; its max_new_tokens
  // are those of a whole completion.
  EpisodeDriver(const env::EnvironmentSection& section, data::PromptFormat format,
                generate::GenerationOptions options, const std::vector<int32_t>& eos_token_ids);

  void run(generate::CompletionSource& source, const std::vector<Ask>& asks, int64_t samples,
           const Done& done, const std::function<bool()>& stop = {}) override;

  bool shows_tools() const override;

 private:
  struct Live;
  struct Batch;
  void answered(Batch& batch, env::Reply reply);
  void begin(Batch& batch, Live& live, const env::Observation& first);
  void go_on(Batch& batch, Live& live, const env::Observation& next);
  void submit(Batch& batch, Live& live);
  void sampled(Batch& batch, generate::Completion turn);
  void end_overdue(Batch& batch);
  void fail(Batch& batch, Live& live, const env::Failure& failure);
  void finish(Batch& batch, Live& live);

  data::PromptFormat format_;
  generate::GenerationOptions options_;
  std::vector<int32_t> ends_;  // tokens that end a turn
  env::EnvironmentPool pool_;
};

}  // namespace temper::rl
