// Episodes of agents: programs that ask the policy by OpenAI's API (`environment.openai`). The run
// serves /v1/chat/completions on a port of the loopback interface; a session records what each
// agent's requests sample (serve/sessions/session.h). Agents run side by side, and their requests
// are sampled together as they arrive. What an episode samples depends on its row, on what its
// agent asks, and on (seed, key, sample): never on timing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "temper/env/agent_run.h"
#include "temper/rl/episodes/episode_sampler.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/server.h"
#include "temper/serve/sessions/sessions.h"

namespace temper::rl {

class AgentDriver : public EpisodeSampler {
 public:
  // As make_episode_sampler(). Throws ConfigError where the model has no tokenizer or no chat
  // template, RunError where no port is free.
  AgentDriver(const env::EnvironmentSection& section, data::PromptFormat format,
              generate::GenerationOptions options, const std::vector<int32_t>& eos_token_ids,
              bool needs_reward);
  ~AgentDriver() override;

  // Any thread may submit to `source`, which outlives the driver.
  void run(generate::CompletionSource& source, const std::vector<Ask>& asks, int64_t samples,
           const Done& done, const std::function<bool()>& stop = {}) override;

 private:
  struct Agent;
  struct Batch;
  void start(Batch& batch, size_t ask, int64_t sample);
  // True once the episode has ended; it is then in the batch.
  bool advance(Batch& batch, Agent& agent);
  void finish(Batch& batch, Agent& agent, std::optional<env::Failure> failure);
  double seconds_allowed(const serve::Session::Record& state) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const bool needs_reward_;
  serve::SessionRules rules_;
  serve::SamplerLoop sampling_;
  std::shared_ptr<serve::Sessions> sessions_;
  serve::Server server_;
  std::thread listening_;
};

}  // namespace temper::rl
