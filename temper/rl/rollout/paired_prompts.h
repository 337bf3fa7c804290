// A run and its fork sample the same prompts in the same steps: rewards and lengths of each
// prompt's completions in both, from the runs' rollout files.
#pragma once

#include <cstdint>
#include <span>
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
  // Where `a` has its first group: the step, and the group's first line in that step's file, from
  // 1.
  int64_t step = 0, line = 0;
};

// Of one run, what is left out: groups whose prompt the other run does not have in that step, steps
// without a file in the other run, lines that are no rollouts, and ends of files that cannot be
// read on.
struct LeftOut {
  int64_t groups = 0, steps = 0, lines = 0, ends = 0;
};

struct PairedPrompts {
  std::vector<PairedPrompt> prompts;  // by step and line
  int64_t steps = 0;                  // that have a file in both runs
  LeftOut of_a, of_b;
  // Of each file with lines that are left out: "PATH:LINE: what the first one lacks; ..".
  std::vector<std::string> problems;
};

// Pairs the groups of all steps after `after` that have the same step, number and prompt tokens (of
// the group's first line). A prompt with the same tokens and images in several groups is one
// PairedPrompt. A line counts as a completion, so an agent's episode with several branches counts
// several times, as in reward_mean. Files are read line by line; a few hundred bytes are kept for
// each prompt.
PairedPrompts pair_prompts(const std::string& output_dir_a, const std::string& output_dir_b,
                           int64_t after);

// At most `most` prompts, the largest |change| first, without those where it is 0.
std::vector<PairedPrompt> most_changed(const PairedPrompts& pairs, size_t most);

// The token ids of each prompt, from the files of `a`, each of which is read once, up to the last
// line of a prompt. Empty where a file was removed, shortened or damaged since.
std::vector<std::vector<int32_t>> tokens_of(std::span<const PairedPrompt> prompts,
                                            const std::string& output_dir_a);

}  // namespace temper::rl
