// Who samples the episodes of a rollout batch: the driver of an environment (episode_driver.h), or
// of agents that ask the policy themselves (agent_driver.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/data/rows/prompt_row.h"
#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/generate/completion_source.h"
#include "temper/rl/episode.h"

namespace temper::rl {

inline constexpr const char* kHiddenTools =
    "the chat template shows the model no tools: it does not see those of environment.tools; "
    "data.chat_template names another template";

struct EnvironmentCounts {
  int64_t timed_out = 0, crashed = 0, malformed = 0;
  int64_t unread_calls = 0;  // calls of tools that could not be read, or named no tool
  int64_t failures() const { return timed_out + crashed + malformed; }
};

// A sampled episode, before it is judged. An agent's episode may consist of several, with the same
// sample number and reward.
struct SampledEpisode {
  std::vector<int32_t> prompt;
  ImageSpans prompt_images = {};
  CompletionTokens completion;
  Episode episode;
  double ended = 0;       // when, on the steady clock, in seconds
  bool dropped = false;   // the environment failed, and its on_failure is drop
  bool failed = false;    // the environment failed
  bool rewarded = false;  // an answer of the environment's program contained a reward
};

// Throws ConfigError where the model's words, read and written as `format` says, are none that the
// environment, tools or agents of the section could exchange with it: without a tokenizer, or a
// chat template.
void check_environment(const env::EnvironmentSection& section, const data::PromptFormat& format);

class EpisodeSampler {
 public:
  explicit EpisodeSampler(const env::EnvironmentSection& section) : section_(section) {}
  virtual ~EpisodeSampler() = default;

  struct Ask {
    int64_t key;  // key of its random numbers
    const data::PromptRow* row;
    int adapter = 0;
  };
  // Samples episodes of each row; `done` gets those of one, in order of sample, when the last has
  // ended. `stop`, where given, is asked between the source's steps: true leaves out what is
  // unfinished. Throws RunError where the environment fails and its on_failure is stop.
  using Done = std::function<void(size_t ask, std::vector<SampledEpisode>)>;
  virtual void run(generate::CompletionSource& source, const std::vector<Ask>& asks,
                   int64_t samples, const Done& done, const std::function<bool()>& stop = {}) = 0;

  // Names the weights that sample from now on, as agents are told (`system_fingerprint`).
  void name_weights(std::string name) { weights_ = std::move(name); }

  // False: there are tools, and the chat template writes nothing of them.
  virtual bool shows_tools() const { return true; }

  // Failures since the beginning. first_failure() is the first one, or the first since it was
  // taken, on one line.
  const EnvironmentCounts& counts() const { return counts_; }
  const std::string& first_failure() const { return first_failure_; }
  std::string take_first_failure() { return std::exchange(first_failure_, {}); }
  // True where a failed episode so far counted 0 and another one got a negative reward.
  bool rewards_failures() const { return counted_zero_ && gave_negative_; }

 protected:
  // Throws RunError where on_failure is stop.
  void count(const env::Failure& failure);
  void keep_first(const std::string& failure);
  bool drops_failures() const {
    return section_.on_failure == env::EnvironmentSection::OnFailure::kDrop;
  }

  const env::EnvironmentSection section_;
  EnvironmentCounts counts_;
  std::string first_failure_, weights_ = "initial";
  bool counted_zero_ = false, gave_negative_ = false;
};

// format: how prompts are read from rows. A turn ends where `options` says; its max_new_tokens are
// those of a whole completion. needs_reward: nothing else rewards an episode: an agent that ends
// without a reward has failed.
std::unique_ptr<EpisodeSampler> make_episode_sampler(const env::EnvironmentSection& section,
                                                     data::PromptFormat format,
                                                     generate::GenerationOptions options,
                                                     const std::vector<int32_t>& eos_token_ids,
                                                     bool needs_reward);

}  // namespace temper::rl
