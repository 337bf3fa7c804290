// A rollout batch as the trainer sees it: its sampled segments by tag, the forward passes over some
// of its episodes, and their tokens' numbers gathered for a loss.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "temper/dist/group.h"
#include "temper/rl/algorithms/terms.h"
#include "temper/rl/episode.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "temper/train/forward_pass.h"

namespace temper::rl {

class TrainingBatch {
 public:
  TrainingBatch() = default;
  explicit TrainingBatch(std::vector<EpisodeGroup> groups);
  TrainingBatch(TrainingBatch&&) = default;  // a copy's tags would name the other's segments
  TrainingBatch& operator=(TrainingBatch&&) = default;

  std::vector<EpisodeGroup>& groups() { return groups_; }
  const std::vector<EpisodeGroup>& groups() const { return groups_; }
  size_t num_episodes() const { return episodes_.size(); }
  bool empty() const { return episodes_.empty(); }

  // The episodes [begin, end), counted over all groups, as units to pack: a group's prompt with its
  // episodes as children. A group of more than max_tokens is split; 0: none is.
  std::vector<train::PackUnit> units(size_t begin, size_t end, int64_t max_tokens) const;
  // The same of these episodes, ascending.
  std::vector<train::PackUnit> units(std::span<const size_t> episodes, int64_t max_tokens) const;
  // The episodes [begin, end), with `stopped_only` those that did not end for their length.
  std::vector<size_t> episodes(size_t begin, size_t end, bool stopped_only = false) const;
  // How many tokens the policy sampled in each of these episodes.
  std::vector<int64_t> sampled_lengths(std::span<const size_t> episodes) const;
  // All tokens of these episodes; a prompt counts once for each of its episodes.
  int64_t num_tokens(size_t begin, size_t end) const;

  // Episode i of the batch, and the group that it belongs to.
  const EpisodeGroup& group(size_t i) const { return groups_[episodes_[i].group]; }
  const Episode& episode(size_t i) const { return group(i).episodes[episodes_[i].episode]; }
  // A segment by its tag in units and passes, and the first episode that it belongs to.
  const Segment& segment(int64_t tag) const { return *segments_[static_cast<size_t>(tag)]; }
  size_t episode_of(int64_t tag) const;
  // The sampled segments of these episodes, each once.
  std::vector<const Segment*> sampled_segments(std::span<const size_t> episodes) const;

  // Whether all sampled segments of the batch have these numbers.
  bool has(std::vector<float> Segment::* numbers) const;
  // Sets numbers of tokens, such as log-probabilities, `into` all sampled segments, or those of
  // some episodes: `score` gives those of a pass's targets. The ranks share the work.
  using Score = std::function<at::Tensor(const train::ForwardPass&)>;
  void score(std::vector<float> Segment::* into, int64_t max_tokens, dist::Group& group,
             const Score& score);
  void score(std::vector<float> Segment::* into, std::span<const size_t> episodes,
             int64_t max_tokens, dist::Group& group, const Score& score);

  // A pass's tokens with their numbers. `weight_of_episode` by episode of the batch.
  TokenBatch token_batch(const train::ForwardPass& pass, const ops::TokenLogp& now,
                         std::span<const double> weight_of_episode) const;
  // Sets ForwardPass::kept where tokens of the pass were sampled from a truncated distribution.
  void set_kept(train::ForwardPass& pass) const;
  // These numbers of the pass's tokens [M].
  at::Tensor gather(const train::ForwardPass& pass, std::vector<float> Segment::* numbers) const;
  // Lines that a checkpoint in the middle of the batch keeps, and the batch of them.
  std::string lines() const;
  static TrainingBatch from_lines(const std::string& lines, const LineFormat& format,
                                  const std::string& where);

 private:
  struct Location {
    size_t group, episode;
  };
  int64_t tag(const Location& of, int32_t segment) const;

  std::vector<EpisodeGroup> groups_;
  std::vector<Location> episodes_;  // all of them, in order
  std::vector<Segment*> segments_;  // segments by tag: those of all groups, one after the other
  std::vector<int64_t> first_tag_;  // [groups] tag of each group's first segment
  std::vector<size_t> owner_;       // first episode of each segment, by tag
};

}  // namespace temper::rl
