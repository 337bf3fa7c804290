#include "temper/rl/rollout/partial_batch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "temper/base/error.h"
#include "temper/rl/rollout/rollout_lines.h"

namespace temper::rl {

std::vector<int32_t> PartialCompletion::tokens() const {
  std::vector<int32_t> all;
  for (const Segment& part : parts) all.insert(all.end(), part.tokens.begin(), part.tokens.end());
  return all;
}

int64_t PartialCompletion::length() const {
  int64_t length = 0;
  for (const Segment& part : parts) length += std::ssize(part.tokens);
  return length;
}

void PartialCompletion::add(Segment part) {
  if (parts.empty() || parts.back().policy_version != part.policy_version) {
    parts.push_back(std::move(part));
    return;
  }
  Segment& last = parts.back();
  if (!last.kept.empty() || !part.kept.empty()) {
    last.kept.resize(last.tokens.size());
    part.kept.resize(part.tokens.size());
    last.kept.insert(last.kept.end(), part.kept.begin(), part.kept.end());
  }
  last.tokens.insert(last.tokens.end(), part.tokens.begin(), part.tokens.end());
  last.logprobs.insert(last.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
}

bool PartialGroup::is_fresh() const {
  return std::all_of(completions.begin(), completions.end(),
                     [](const PartialCompletion& c) { return c.parts.empty(); });
}

void PartialGroup::assemble() {
  episodes = {.id = prompt->key};
  episodes.segments.push_back({.tokens = prompt->row.tokens, .images = prompt->row.images});
  for (size_t s = 0; s < completions.size(); ++s) {
    const PartialCompletion& c = completions[s];
    if (c.parts.empty()) continue;
    Episode& episode = episodes.episodes.emplace_back();
    episode.sample = static_cast<int64_t>(s);
    episode.text = c.text;
    episode.stopped = c.stopped;
    int32_t parent = 0;
    for (const Segment& part : c.parts) {
      Segment& segment = episodes.segments.emplace_back(part);
      segment.parent = std::exchange(parent, static_cast<int32_t>(episodes.segments.size()) - 1);
      episode.path.push_back(parent);
    }
  }
}

std::string PartialBatch::lines() const {
  std::vector<EpisodeGroup> groups;
  for (const auto& [key, group] : mine) {
    PartialGroup copy = group;
    copy.assemble();
    for (Segment& segment : copy.episodes.segments) segment.images.clear();  // the prompt has them
    groups.push_back(std::move(copy.episodes));
  }
  return to_lines(groups);
}

void PartialBatch::fill(const std::string& lines, int64_t vocabulary, int64_t max_tokens,
                        const std::string& where) {
  std::vector<EpisodeGroup> groups;
  add_lines(groups, lines, vocabulary, where);
  for (const EpisodeGroup& g : groups) {
    const auto found = mine.find(g.id);
    if (found == mine.end()) continue;  // another rank's
    PartialGroup& group = found->second;
    for (const Episode& e : g.episodes) {
      check<DataError>(e.sample >= 0 && e.sample < std::ssize(group.completions) &&
                           g.prompt(e) == group.prompt->row.tokens,
                       where, ": a completion of another prompt");
      PartialCompletion& c = group.completions[static_cast<size_t>(e.sample)];
      for (const int32_t s : e.path) c.add(g.segments[static_cast<size_t>(s)]);
      c.text = e.text;
      c.stopped = e.stopped;
      if (c.stopped || c.length() >= max_tokens) --group.unfinished;
    }
    if (group.unfinished == 0) group.assemble();
  }
}

}  // namespace temper::rl
