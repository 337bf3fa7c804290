#include "temper/rl/episodes/episode_sampler.h"

#include "temper/base/error.h"
#include "temper/rewards/reward.h"
#include "temper/rl/episodes/agent_driver.h"
#include "temper/rl/episodes/episode_driver.h"

namespace temper::rl {

void check_environment(const env::EnvironmentSection& section, const data::PromptFormat& format) {
  const bool agent = !section.openai.command.empty();
  check<ConfigError>(format.tokenizer != nullptr, agent ? "environment.openai" : "environment",
                     ": its words need a tokenizer, and the model has none");
  if (format.chat != nullptr) return;
  const char* const lacks = ", and the model directory has none; ";
  check<ConfigError>(!agent, "environment.openai: chat completions need a chat template", lacks,
                     format.no_chat);
  check<ConfigError>(section.tools.empty(),
                     "environment.tools: the chat template shows them to the model", lacks,
                     format.no_chat);
}

void EpisodeSampler::count(const env::Failure& failure) {
  using Kind = env::Failure::Kind;
  ++(failure.kind == Kind::kTimedOut  ? counts_.timed_out
     : failure.kind == Kind::kCrashed ? counts_.crashed
                                      : counts_.malformed);
  keep_first(failure.detail);
  check(section_.on_failure != env::EnvironmentSection::OnFailure::kStop,
        "environment: ", rewards::one_line(failure.detail), " (its on_failure is stop)");
}

void EpisodeSampler::keep_first(const std::string& failure) {
  if (first_failure_.empty()) first_failure_ = rewards::one_line(failure);
}

std::unique_ptr<EpisodeSampler> make_episode_sampler(const env::EnvironmentSection& section,
                                                     data::PromptFormat format,
                                                     generate::GenerationOptions options,
                                                     const std::vector<int32_t>& eos_token_ids,
                                                     bool needs_reward) {
  if (section.openai.command.empty())
    return std::make_unique<EpisodeDriver>(section, std::move(format), std::move(options),
                                           eos_token_ids);
  return std::make_unique<AgentDriver>(section, std::move(format), std::move(options),
                                       eos_token_ids, needs_reward);
}

}  // namespace temper::rl
