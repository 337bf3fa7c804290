// The prompts of a run, in the order in which they are drawn, and those of data.eval.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/data/loader.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/rewards/reward.h"
#include "temper/rl/config.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "temper/train/messages.h"
#include "temper/train/roles/policy.h"

namespace temper::rl {

struct Prompt {
  int64_t key;  // key of its random numbers: its number among all prompts that the run drew
  data::PromptRow row;
};

// The way in which prompts are read from rows.
data::PromptFormat prompt_format(const RlConfig& config, const train::Policy& policy);
// The way in which lines of its episodes are read.
LineFormat line_format(const RlConfig& config, const train::Policy& policy);
// The verb's rows. Under dynamic sampling batches draw more prompts than a pass over them has: the
// run ends by its planned steps, and the prompts repeat.
train::VerbRows<data::PromptRow> prompt_rows(const RlConfig& config, const train::Policy& policy);
// train::blind_model of the first model of the config that reads the rows beside the policy and
// sees no images: a reference or a critic.
std::string blind_beside(const RlConfig& config);
// The reader, which looks at each row that it gives: `look` throws for a wrong one.
data::Loader<data::PromptRow>::Read looking(data::Loader<data::PromptRow>::Read read,
                                            std::function<void(const data::PromptRow&)> look);

// Warns, once a run, of prompts that may go on beyond the positions that the model was made for.
// positions: max_position_embeddings; 0: not known.
void warn_beyond_positions(const std::vector<Prompt>& prompts, int64_t positions,
                           int64_t max_new_tokens, train::Messages& messages);

class Prompts {
 public:
  // Every row is checked for the fields that the rewards read. Throws DataError.
  Prompts(const RlConfig& config, const train::Policy& policy, const rewards::RewardSet& rewards)
      : Prompts(config, policy, rewards, prompt_rows(config, policy)) {}

  // The next prompts that rl.difficulty takes; fewer where the data ends. Where it would take none
  // in a whole pass, all are taken. `passed_over`: what is added to it.
  std::vector<Prompt> next(int64_t count, int64_t& passed_over);
  // The mean reward of the prompt's completions.
  void learn(const Prompt& prompt, double success) { difficulty_.learn(prompt.row.where, success); }
  Difficulty& difficulty() { return difficulty_; }
  const Difficulty& difficulty() const { return difficulty_; }
  // Rollout batches of a run that `train.max_steps` does not bound.
  int64_t planned_batches() const;
  // The prompts of data.eval, by set. Their keys stand apart from those of training, so that
  // evaluating changes no sample.
  const std::vector<std::vector<Prompt>>& evaluation() const { return evaluation_; }

  // The share of the rows that were sampled once the loader had this state.
  double coverage(const data::LoaderState& state) const;

  const data::LoaderState& state() const { return loader_.state(); }
  void restore(const data::LoaderState& state) { loader_.restore(state); }
  void warn(train::Messages& messages) const;
  std::vector<std::pair<std::string, std::string>> summary() const;

 private:
  Prompts(const RlConfig& config, const train::Policy& policy, const rewards::RewardSet& rewards,
          const train::VerbRows<data::PromptRow>& rows);

  const RlConfig& config_;
  data::Loader<data::PromptRow> loader_;
  data::RowSurvey survey_;
  Difficulty difficulty_;
  std::vector<std::vector<Prompt>> evaluation_;
};

}  // namespace temper::rl
