#include "temper/plan/program_checks.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/env/pool.h"
#include "temper/generate/remote/server_pool.h"
#include "temper/plan/directories.h"

namespace temper::plan {

Finding probe_reward(const rewards::RewardSection& section, const rewards::Sample& sample) {
  rewards::RewardSection once = section;
  once.workers = 1;
  const std::unique_ptr<rewards::Reward> reward = rewards::make_reward(once);
  if (reward->needs_text() && !sample.has_text)
    return Finding::fail("it reads text, and the model has no tokenizer");
  for (const std::string& field : reward->required_fields())
    check<DataError>(sample.row->contains(field), sample.where, ": no field `", field,
                     "`, which the reward reads");
  const rewards::Verdict verdict = reward->judge({&sample, 1})[0];
  if (verdict.kind != rewards::Verdict::Kind::kValue)
    return Finding::fail("asked for " + sample.where + ": " + verdict.detail);
  const std::string answer =
      str("answers ", verdict.value, " to a completion of one token for ", sample.where);
  if (verdict.unasked_lines > 0)
    return Finding::warn(str(answer, "; it wrote ", verdict.unasked_lines, " lines unasked"));
  return Finding::pass(answer, {{"reward", verdict.value}});
}

namespace {

env::Reply one_reply(env::EnvironmentPool& pool, const env::EnvironmentSection& section,
                     const std::string& to) {
  const auto limit =
      std::chrono::duration<double>(section.timeout_seconds + section.start_timeout_seconds + 1);
  const auto begun = std::chrono::steady_clock::now();
  std::vector<env::Reply> replies;
  while (replies.empty() && std::chrono::steady_clock::now() - begun < limit)
    replies = pool.take(std::chrono::milliseconds(200));
  check(!replies.empty(), "no answer to ", to, " in ", limit.count(), " s");
  return std::move(replies[0]);
}

}  // namespace

Finding probe_environment(const env::EnvironmentSection& section, std::shared_ptr<const Json> row,
                          const std::string& where) {
  if (section.command.empty() && section.name.empty())
    return Finding::pass(str(section.tools.size(), " tools, whose programs are there"));
  env::EnvironmentSection once = section;
  once.workers = 1;
  env::EnvironmentPool pool(once);
  const int64_t episode = pool.open(std::move(row), where);
  const env::Reply first = one_reply(pool, section, "the reset of " + where);
  if (first.failure) return Finding::fail("reset of " + where + ": " + first.failure->detail);
  pool.step(episode, {.completion = "x", .calls = {}, .problems = {}});
  const env::Reply next = one_reply(pool, section, "a step of " + where);
  if (next.failure) return Finding::fail("a step of " + where + ": " + next.failure->detail);
  pool.close(episode);
  const std::string answer =
      str("begins an episode of ", where, " with ", first.observation.messages.size(),
          " messages, and answers a step with reward ", next.observation.reward);
  if (first.unasked_lines + next.unasked_lines > 0)
    return Finding::warn(answer + "; " + (first.unasked_lines ? first : next).unasked);
  return Finding::pass(answer);
}

Finding probe_servers(const generate::ServerSection& section, const std::string& weights_dir,
                      int64_t vocabulary) {
  namespace remote = generate::remote;
  if (section.sync == generate::ServerSection::Sync::kDisk)
    check_writable(weights_dir, "rollout.server.weights_dir");
  constexpr double kSeconds = 5;
  const double timeout = std::min(section.timeout_seconds, kSeconds);
  const std::unique_ptr<remote::Protocol> protocol =
      remote::make_protocol(section.kind, vocabulary);
  const std::vector<remote::PoolOptions::Server> servers = remote::pool_options(section).servers;
  std::vector<std::future<std::string>> asked;
  for (const auto& server : servers)
    asked.push_back(std::async(std::launch::async, [&server, &protocol, timeout] {
      remote::HttpClient http(server.url, server.api_key, timeout);
      return protocol->model_name(http);
    }));
  std::string failures, models;
  size_t failed = 0;
  for (size_t i = 0; i < asked.size(); ++i) try {
      models += (models.empty() ? "" : ", ") + asked[i].get();
    } catch (const Error& e) {
      failures += str(failures.empty() ? "" : "; ", servers[i].url.str(), ": ", e.what());
      ++failed;
    }
  if (failed == asked.size()) return Finding::fail("no server answers: " + failures);
  if (failed > 0)
    return Finding::warn(str(failed, " of ", asked.size(), " servers do not answer: ", failures));
  return Finding::pass(
      str(asked.size(), asked.size() == 1 ? " server answers: " : " answer: ", models),
      {{"servers", asked.size()}});
}

}  // namespace temper::plan
