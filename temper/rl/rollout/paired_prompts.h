// Two runs of which one is a fork of the other see the same prompts in the same steps: what the
// completions of each prompt were worth in either, from the runs' rollout files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temper::rl {

// A prompt, over the steps in which both runs sampled it.
struct PairedPrompt {
  int64_t times = 0;  // groups of completions of it
  // Means over these times of the mean over the group's completions: of the reward before shaping,
  // and of the sampled tokens.
  double reward_a = 0, reward_b = 0, length_a = 0, length_b = 0;
  double change = 0;  // the sum over these times of b's mean reward less a's
  // The first group's first line in the files of `a`.
  int64_t step = 0, line = 0;
};

struct PairedPrompts {
  std::vector<PairedPrompt> prompts;  // by step and line
  int64_t steps = 0;                  // that have a file in both runs
  // What is left out: groups, in these steps, of a prompt that the other run has not there, and
  // steps without a file in the other run.
  int64_t groups_of_a = 0, groups_of_b = 0, steps_of_a = 0, steps_of_b = 0;
};

// Of the steps after `after`. Lines are read one after another; a hundred bytes or so are kept for
// each prompt. Groups are the same where their step, number and prompt's tokens are; a prompt that
// comes again, with the same images, is one. A group's prompt is that of its first line. Throws
// DataError.
PairedPrompts pair_prompts(const std::string& output_dir_a, const std::string& output_dir_b,
                           int64_t after);

// Of them, at most `most` whose `change` is farthest from 0, without those where it is 0.
std::vector<PairedPrompt> most_changed(const PairedPrompts& pairs, size_t most);

// The prompt's tokens, in the files of `a`. Throws DataError.
std::vector<int32_t> tokens_of(const PairedPrompt& prompt, const std::string& output_dir_a);

}  // namespace temper::rl
