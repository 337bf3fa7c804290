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

#include "temper/data/prompt_row.h"
#include "temper/env/pool.h"
#include "temper/generate/completion_source.h"
#include "temper/rl/episode.h"
#include "temper/text/dialogue.h"

namespace temper::rl {

inline constexpr const char* kHiddenTools =
    "the chat template shows the model no tools: it does not see those of environment.tools; "
    "data.chat_template names another template";

struct EnvironmentCounts {
  int64_t timed_out = 0, crashed = 0, malformed = 0;
  int64_t unread_calls = 0;  // calls of tools that could not be read, or named no tool
  int64_t failures() const { return timed_out + crashed + malformed; }
};

// A sampled episode, before it is judged.
struct SampledEpisode {
  std::vector<int32_t> prompt;
  CompletionTokens completion;
  Episode episode;
  bool dropped = false;   // the environment failed, and its on_failure is drop
  bool failed = false;    // the environment failed
  bool rewarded = false;  // an answer of the environment's program contained a reward
};

class EpisodeDriver {
 public:
  // format: how prompts are read from rows. A turn ends where `options` says; its max_new_tokens
  // are those of a whole completion.
  EpisodeDriver(const env::EnvironmentSection& section, data::PromptFormat format,
                generate::GenerationOptions options, const std::vector<int32_t>& eos_token_ids);

  struct Ask {
    int64_t key;  // key of its random numbers
    const data::PromptRow* row;
    int adapter = 0;
  };
  // Samples episodes of each row; `done` gets those of one, in order of sample, when the last has
  // ended. `stop`, where given, is asked between the source's steps: true leaves out what is
  // unfinished. Throws RunError where the environment fails and its on_failure is stop.
  using Done = std::function<void(size_t ask, std::vector<SampledEpisode>)>;
  void run(generate::CompletionSource& source, const std::vector<Ask>& asks, int64_t samples,
           const Done& done, const std::function<bool()>& stop = {});

  // False: there are tools, and the chat template writes nothing of them.
  bool shows_tools() const;

  // Failures since the beginning. first_failure() is the first one, or the first since it was
  // taken, on one line.
  const EnvironmentCounts& counts() const { return counts_; }
  const std::string& first_failure() const { return first_failure_; }
  std::string take_first_failure() { return std::exchange(first_failure_, {}); }
  // True where a failed episode so far counted 0 and another one got a negative reward.
  bool rewards_failures() const { return counted_zero_ && gave_negative_; }

 private:
  struct Live;
  struct Batch;
  void answered(Batch& batch, env::Reply reply);
  void begin(Batch& batch, Live& live, const env::Observation& first);
  void go_on(Batch& batch, Live& live, const env::Observation& next);
  void submit(Batch& batch, Live& live);
  void sampled(Batch& batch, generate::Completion turn);
  void fail(Batch& batch, Live& live, const env::Failure& failure);
  void finish(Batch& batch, Live& live);
  void count(const env::Failure& failure);
  void keep_first(const std::string& failure);

  const env::EnvironmentSection section_;
  data::PromptFormat format_;
  generate::GenerationOptions options_;
  std::vector<int32_t> ends_;  // tokens that end a turn
  EnvironmentCounts counts_;
  std::string first_failure_;
  bool counted_zero_ = false, gave_negative_ = false;
  env::EnvironmentPool pool_;
};

}  // namespace temper::rl
