#include "temper/cli/eval/eval_output.h"

#include <utility>

#include "temper/base/error.h"
#include "temper/rl/rollout/rollout_lines.h"

namespace temper::cli {
namespace {

const std::string& checked(const std::string& path) {
  check<ConfigError>(path != "-", "--output -: standard output has the summary; name a file");
  return path;
}

}  // namespace

EvalOutput::EvalOutput(const std::string& path, const std::string& input)
    : file_(checked(path), input) {}

void EvalOutput::add(int64_t row, size_t sample, rl::SampledEpisode completion) {
  completions_.push_back({row, sample, std::move(completion)});
}

void EvalOutput::finish(const std::vector<std::string>& names,
                        std::span<const std::optional<rewards::RewardResult>> verdicts) {
  for (Completion& c : completions_) {
    const std::optional<rewards::RewardResult>& verdict = verdicts[c.sample];
    if (!verdict || verdict->dropped) continue;
    rl::Episode episode = std::move(c.sampled.episode);
    episode.reward += verdict->reward;
    for (size_t n = 0; n < names.size(); ++n)
      episode.rewards.emplace_back(names[n], verdict->each[n]);
    rl::EpisodeGroup group{.id = c.row};
    add_episode(group, c.sampled.prompt, std::move(episode), c.sampled.completion, 0,
                c.sampled.prompt_images);
    file_.line(to_line(group, group.episodes[0]));
  }
  file_.finish();
}

}  // namespace temper::cli
