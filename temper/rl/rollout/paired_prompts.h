// A run and its fork sample the same prompts in the same steps: rewards and lengths of each
// prompt's completions in both, from the runs' rollout files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temper::rl {

// A prompt, over the steps in which both runs sampled it.
struct PairedPrompt {
  int64_t times = 0;  // how many groups of its completions each run has
  // Means over the groups of each group's mean: of the reward before shaping, and of the number of
  // sampled tokens.
  double reward_a = 0, reward_b = 0, length_a = 0, length_b = 0;
  double change = 0;  // the sum over the groups of b's mean reward minus a's
  // Where `a` has its first group: the step, and the group's first line in that step's file, from 1
  // and without blank lines.
  int64_t step = 0, line = 0;
};

struct PairedPrompts {
  std::vector<PairedPrompt> prompts;  // by step and line
  int64_t steps = 0;                  // that have a file in both runs
  // What is left out: groups in these steps whose prompt the other run does not have there, and
  // steps without a file in the other run.
  int64_t groups_of_a = 0, groups_of_b = 0, steps_of_a = 0, steps_of_b = 0;
};

// Pairs the groups of all steps after `after` that have the same step, number and prompt tokens (of
// the group's first line). A prompt with the same tokens and images in several groups is one
// PairedPrompt. A line counts as a completion, so an agent's episode with several branches counts
// several times, as in reward_mean. Files are read line by line; a few hundred bytes are kept for
// each prompt. Throws DataError for a file that cannot be read.
PairedPrompts pair_prompts(const std::string& output_dir_a, const std::string& output_dir_b,
                           int64_t after);

// At most `most` prompts, the largest |change| first, without those where it is 0.
std::vector<PairedPrompt> most_changed(const PairedPrompts& pairs, size_t most);

// The prompt's token ids, read from the files of `a`. Throws DataError where its file was removed,
// shortened or damaged since.
std::vector<int32_t> tokens_of(const PairedPrompt& prompt, const std::string& output_dir_a);

}  // namespace temper::rl
