#include "temper/rl/episode.h"

#include <algorithm>
#include <map>
#include <set>

#include "temper/base/error.h"

namespace temper::rl {

const std::vector<int32_t>& EpisodeGroup::prompt(const Episode& episode) const {
  const Segment& first = segments[static_cast<size_t>(episode.path.front())];
  return segments[static_cast<size_t>(first.parent)].tokens;
}

const ImageSpans& EpisodeGroup::prompt_images(const Episode& episode) const {
  const Segment& first = segments[static_cast<size_t>(episode.path.front())];
  return segments[static_cast<size_t>(first.parent)].images;
}

ImageSpans EpisodeGroup::images(const Episode& episode) const {
  ImageSpans images = prompt_images(episode);
  int64_t at = std::ssize(prompt(episode));
  for (const int32_t s : episode.path) {
    const Segment& part = segments[static_cast<size_t>(s)];
    append_spans(images, spans_within(part.images, part.repeated, std::ssize(part.tokens)), at);
    at += std::ssize(part.tokens) - part.repeated;
  }
  return images;
}

std::vector<int32_t> EpisodeGroup::completion(const Episode& episode) const {
  std::vector<int32_t> tokens;
  for (const int32_t s : episode.path) {
    const Segment& part = segments[static_cast<size_t>(s)];
    tokens.insert(tokens.end(), part.tokens.begin() + part.repeated, part.tokens.end());
  }
  return tokens;
}

int64_t EpisodeGroup::sampled_tokens(const Episode& episode) const {
  int64_t count = 0;
  for (const int32_t s : episode.path) {
    const Segment& segment = segments[static_cast<size_t>(s)];
    if (segment.sampled) count += static_cast<int64_t>(segment.tokens.size());
  }
  return count;
}

std::vector<std::vector<int32_t>> EpisodeGroup::turns(const Episode& episode) const {
  std::vector<std::vector<int32_t>> turns;
  bool speaks = false;
  for (const int32_t s : episode.path) {
    const bool sampled = segments[static_cast<size_t>(s)].sampled;
    if (sampled && !speaks) turns.emplace_back();
    if (sampled) turns.back().push_back(s);
    speaks = sampled;
  }
  return turns;
}

void EpisodeGroup::set_advantage(const Episode& episode, double advantage) {
  for (const int32_t s : episode.path) {
    Segment& segment = segments[static_cast<size_t>(s)];
    if (segment.sampled)
      segment.advantage.assign(segment.tokens.size(), static_cast<float>(advantage));
  }
}

std::vector<double> EpisodeGroup::shaped_rewards() const {
  std::vector<double> rewards;
  for (const Episode& episode : episodes) rewards.push_back(episode.shaped());
  return rewards;
}

bool has_reward_variance(const EpisodeGroup& group) {
  return std::any_of(group.episodes.begin(), group.episodes.end(),
                     [&](const Episode& e) { return e.reward != group.episodes.front().reward; });
}

// Segments are runs of tokens that the policy sampled or did not, cut where branches begin and
// where they leave.
void add_episode(EpisodeGroup& group, const std::vector<int32_t>& prompt, Episode episode,
                 const CompletionTokens& c, int64_t policy_version,
                 const ImageSpans& prompt_images) {
  check<DataError>(!c.tokens.empty(), "an episode without a token");
  const bool shares = !group.episodes.empty() && group.prompt(group.episodes.back()) == prompt &&
                      group.prompt_images(group.episodes.back()) == prompt_images;
  if (!shares) group.segments.push_back({.tokens = prompt, .images = prompt_images});
  const int32_t root =
      shares ? group.segments[static_cast<size_t>(group.episodes.back().path.front())].parent
             : static_cast<int32_t>(group.segments.size()) - 1;
  int32_t before = root;
  std::set<int64_t> cuts;
  std::map<int64_t, int64_t> branches;
  for (const auto& branch : c.branches) {
    branches[branch.at] = branch.after;
    cuts.insert({branch.at, branch.after});
  }
  std::map<int64_t, int32_t> ends;  // segment that ends at each place
  for (size_t t = 0; t < c.tokens.size(); ++t) {
    const int64_t at = static_cast<int64_t>(t);
    const bool other_version = !c.version.empty() && t > 0 && c.version[t] != c.version[t - 1];
    if (t == 0 || c.sampled[t] != c.sampled[t - 1] || other_version || cuts.contains(at)) {
      ends[at] = before;
      Segment next{.parent = before,
                   .sampled = c.sampled[t],
                   .policy_version = c.version.empty() ? policy_version : c.version[t]};
      if (const auto branch = branches.find(at); branch != branches.end()) {
        next.parent = branch->second < 0 ? -1 : ends.at(branch->second);
        if (branch->second < 0) {
          check<DataError>(!next.sampled, "`branches`: a turn cannot begin within the prompt");
          next.tokens.assign(prompt.begin(), prompt.end() + branch->second);
          next.repeated = static_cast<int32_t>(next.tokens.size());
        }
      }
      group.segments.push_back(std::move(next));
      before = static_cast<int32_t>(group.segments.size()) - 1;
      episode.path.push_back(before);
    }
    Segment& segment = group.segments.back();
    segment.tokens.push_back(c.tokens[t]);
    if (!c.sampled[t]) continue;
    if (!c.kept.empty()) segment.kept.push_back(c.kept[t]);
    if (!c.logprobs.empty()) segment.logprobs.push_back(c.logprobs[t]);
    if (!c.old_logp.empty()) segment.old_logp.push_back(c.old_logp[t]);
    if (!c.ref_logp.empty()) segment.ref_logp.push_back(c.ref_logp[t]);
    if (!c.value.empty()) segment.value.push_back(c.value[t]);
  }
  int64_t at = 0;
  for (const int32_t s : episode.path) {
    Segment& part = group.segments[static_cast<size_t>(s)];
    const int64_t own = std::ssize(part.tokens) - part.repeated;
    part.images = spans_within(prompt_images, 0, part.repeated);
    append_spans(part.images, spans_within(c.images, at, at + own), part.repeated);
    at += own;
  }
  check<DataError>(group.segments[static_cast<size_t>(episode.path[0])].parent == root,
                   "`branches`: a completion begins after its prompt");
  group.episodes.push_back(std::move(episode));
}

}  // namespace temper::rl
