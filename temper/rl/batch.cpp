#include "temper/rl/batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"

namespace temper::rl {

TrainingBatch::TrainingBatch(std::vector<EpisodeGroup> groups) : groups_(std::move(groups)) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    first_tag_.push_back(static_cast<int64_t>(segments_.size()));
    for (Segment& segment : groups_[g].segments) segments_.push_back(&segment);
    owner_.resize(segments_.size());
    // the first episode with a segment owns it
    for (size_t e = groups_[g].episodes.size(); e-- > 0;)
      for (const int32_t s : groups_[g].episodes[e].path)
        owner_[static_cast<size_t>(first_tag_[g] + s)] = episodes_.size() + e;
    for (size_t e = 0; e < groups_[g].episodes.size(); ++e) episodes_.push_back({g, e});
  }
}

int64_t TrainingBatch::tag(const Location& of, int32_t segment) const {
  return first_tag_[of.group] + segment;
}

std::vector<size_t> TrainingBatch::episodes(size_t begin, size_t end, bool stopped_only) const {
  std::vector<size_t> found;
  for (size_t i = begin; i < end; ++i)
    if (!stopped_only || episode(i).stopped) found.push_back(i);
  return found;
}

std::vector<train::PackUnit> TrainingBatch::units(size_t begin, size_t end,
                                                  int64_t max_tokens) const {
  return units(episodes(begin, end), max_tokens);
}

std::vector<train::PackUnit> TrainingBatch::units(std::span<const size_t> chosen,
                                                  int64_t max_tokens) const {
  std::vector<train::PackUnit> units;
  std::map<int64_t, int64_t> placed;  // tags of the unit's segments
  std::set<int64_t> labeled;          // a segment that two units share counts in the first
  int64_t tokens = 0;
  int64_t root = -1;
  bool apart = false;
  for (const size_t i : chosen) {
    const EpisodeGroup& group = groups_[episodes_[i].group];
    const Episode& episode = group.episodes[episodes_[i].episode];
    const int32_t prompt = group.segments[static_cast<size_t>(episode.path[0])].parent;
    const int64_t length = static_cast<int64_t>(group.completion(episode).size());
    const bool full = max_tokens > 0 && tokens + length > max_tokens;
    // A tree of its own in the middle of an episode ends the prompt's: depth first.
    if (root != tag(episodes_[i], prompt) || full || apart) {
      apart = false;
      root = tag(episodes_[i], prompt);
      units.emplace_back();
      placed = {{root, 0}};
      const std::vector<int32_t>& prompt_tokens = segment(root).tokens;
      units.back().segments.push_back(
          {.tokens = prompt_tokens, .tag = root, .images = segment(root).images});
      tokens = static_cast<int64_t>(prompt_tokens.size());
    }
    for (const int32_t s : episode.path) {
      const int64_t t = tag(episodes_[i], s);
      if (placed.contains(t)) continue;
      const Segment& part = segment(t);
      apart = apart || part.parent < 0;
      const int64_t parent = part.parent < 0 ? -1 : placed.at(tag(episodes_[i], part.parent));
      placed[t] = static_cast<int64_t>(units.back().segments.size());
      const bool counts = part.sampled && labeled.insert(t).second;
      units.back().segments.push_back(
          {.parent = parent,
           .tokens = part.tokens,
           .labels = counts ? std::span<const int32_t>(part.tokens) : std::span<const int32_t>(),
           .tag = t,
           .images = part.images});
      tokens += static_cast<int64_t>(part.tokens.size());
    }
  }
  return units;
}

std::vector<int64_t> TrainingBatch::sampled_lengths(std::span<const size_t> chosen) const {
  std::vector<int64_t> lengths;
  for (const size_t i : chosen) lengths.push_back(group(i).sampled_tokens(episode(i)));
  return lengths;
}

int64_t TrainingBatch::num_tokens(size_t begin, size_t end) const {
  int64_t count = 0;
  for (size_t i = begin; i < end; ++i)
    count += static_cast<int64_t>(group(i).prompt(episode(i)).size() +
                                  group(i).completion(episode(i)).size());
  return count;
}

size_t TrainingBatch::episode_of(int64_t tag) const { return owner_[static_cast<size_t>(tag)]; }

std::vector<const Segment*> TrainingBatch::sampled_segments(std::span<const size_t> chosen) const {
  std::vector<const Segment*> found;
  std::set<const Segment*> seen;
  for (const size_t i : chosen)
    for (const int32_t s : episode(i).path) {
      const Segment& one = segment(tag(episodes_[i], s));
      if (one.sampled && seen.insert(&one).second) found.push_back(&one);
    }
  return found;
}

bool TrainingBatch::has(std::vector<float> Segment::* numbers) const {
  const std::vector<const Segment*> all = sampled_segments(episodes(0, num_episodes()));
  return std::none_of(all.begin(), all.end(),
                      [&](const Segment* segment) { return (segment->*numbers).empty(); });
}

void TrainingBatch::score(std::vector<float> Segment::* into, int64_t max_tokens,
                          dist::Group& ranks, const Score& score) {
  this->score(into, episodes(0, num_episodes()), max_tokens, ranks, score);
}

void TrainingBatch::score(std::vector<float> Segment::* into, std::span<const size_t> chosen,
                          int64_t max_tokens, dist::Group& ranks, const Score& score) {
  std::vector<int64_t> offset{0};  // offset of each segment in one flat list of all tokens
  for (const Segment* segment : segments_)
    offset.push_back(offset.back() + static_cast<int64_t>(segment->tokens.size()));
  at::Tensor flat = at::zeros({offset.back()}, at::kFloat);
  float* values = flat.mutable_data_ptr<float>();
  const std::vector<train::PackUnit> all = units(chosen, max_tokens);
  for (train::ForwardPass& pass : train::plan_passes(all, max_tokens, ranks)) {
    set_kept(pass);
    const at::Tensor score_M = score(pass);
    if (pass.shadow) continue;
    const float* from = score_M.const_data_ptr<float>();
    for (const train::ForwardPass::Span& span : pass.spans)
      std::copy(from + span.begin, from + span.end, values + offset[static_cast<size_t>(span.tag)]);
  }
  if (ranks.size() > 1) ranks.all_reduce_sum(flat);  // every other rank has zeros there
  for (const size_t i : chosen)
    for (const int32_t s : episode(i).path) {
      const size_t t = static_cast<size_t>(tag(episodes_[i], s));
      if (segments_[t]->sampled)
        (segments_[t]->*into).assign(values + offset[t], values + offset[t + 1]);
    }
}

at::Tensor TrainingBatch::gather(const train::ForwardPass& pass,
                                 std::vector<float> Segment::* field) const {
  return pass.gather([&](int64_t tag) { return std::span<const float>(segment(tag).*field); });
}

void TrainingBatch::set_kept(train::ForwardPass& pass) const {
  auto kept = std::make_shared<ops::KeptTokens>();
  kept->offset.push_back(0);
  for (const train::ForwardPass::Span& span : pass.spans) {
    const Segment& part = segment(span.tag);
    for (int64_t t = 0; t < span.end - span.begin; ++t) {
      if (!part.kept.empty()) {
        const std::vector<int32_t>& ids = part.kept.at(static_cast<size_t>(t));
        kept->id.insert(kept->id.end(), ids.begin(), ids.end());
      }
      kept->offset.push_back(std::ssize(kept->id));
    }
  }
  if (!kept->id.empty()) pass.kept = std::move(kept);
}

TokenBatch TrainingBatch::token_batch(const train::ForwardPass& pass, const ops::TokenLogp& now,
                                      std::span<const double> weight_of_episode) const {
  const Segment& any = segment(pass.spans.front().tag);
  TokenBatch b;
  b.logp_M = now.logp;
  b.entropy_M = now.entropy;
  b.old_logp_M = any.old_logp.empty() ? now.logp.detach() : gather(pass, &Segment::old_logp);
  if (!any.ref_logp.empty()) b.ref_logp_M = gather(pass, &Segment::ref_logp);
  if (!any.value.empty()) b.old_value_M = gather(pass, &Segment::value);
  if (!any.returns.empty()) b.return_M = gather(pass, &Segment::returns);
  b.advantage_M = gather(pass, &Segment::advantage);
  b.weight_M = at::empty_like(b.advantage_M);
  size_t last = episodes_.size();
  for (const train::ForwardPass::Span& span : pass.spans) {
    const size_t owner = episode_of(span.tag);
    b.weight_M.narrow(0, span.begin, span.end - span.begin).fill_(weight_of_episode[owner]);
    if (owner != last) b.cu_length_C1.push_back(span.begin);
    last = owner;
  }
  b.cu_length_C1.push_back(pass.num_targets());
  return b;
}

std::string TrainingBatch::lines() const { return to_lines(groups_, true); }

TrainingBatch TrainingBatch::from_lines(const std::string& lines, const LineFormat& format,
                                        const std::string& where) {
  std::vector<EpisodeGroup> groups;
  add_lines(groups, lines, format, where);
  return TrainingBatch(std::move(groups));
}

}  // namespace temper::rl
