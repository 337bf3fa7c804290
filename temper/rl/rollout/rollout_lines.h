// Episodes as lines of a rollouts file (JSONL): a run's output, the input of `rl.replay`, and the
// form in which ranks send episodes to each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/rl/episode.h"

namespace temper::rl {

// An episode of the group, without a line end. `resumable` adds what a run needs to go on in the
// middle of a batch.
std::string to_line(const EpisodeGroup& group, const Episode& episode, bool resumable = false);
// The episodes of all groups, a line each, a group's lines together.
std::string to_lines(const std::vector<EpisodeGroup>& groups, bool resumable = false);

// Adds what to_lines wrote, or another program's line, to the groups: to the last one where its
// `group` is the same. group, prompt_tokens, completion_tokens and reward are enough. Ids are
// checked against the vocabulary. Throws DataError.
void add_line(std::vector<EpisodeGroup>& groups, const Json& row, int64_t vocabulary,
              const std::string& where);
// Adds many lines, as add_line does.
void add_lines(std::vector<EpisodeGroup>& groups, const std::string& lines, int64_t vocabulary,
               const std::string& where);

}  // namespace temper::rl
