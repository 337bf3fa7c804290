#include "temper/env/agent_run.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/process/pipes.h"
#include "temper/rewards/reward.h"

namespace temper::env {
namespace {

constexpr size_t kQuotedEnd = 80;  // bytes of the last line that a message quotes

constexpr size_t kKeptOutput = size_t{64} << 10;  // the end of standard output, with its last line
constexpr size_t kKeptAgentErrors = 500;          // of standard error, for messages

process::ProcessOptions agent_options(const EnvironmentSection& section, const std::string& scratch,
                                      std::vector<std::string> variables) {
  variables.push_back("TMPDIR=" + scratch);
  return {.command = section.openai.command,
          .environment = std::move(variables),
          .limits = section.limits.list(),
          .scratch = scratch,
          .sandbox = section.limits.sandbox};
}

void keep_end(std::string& text, size_t most) {
  if (text.size() > most) text.erase(0, text.size() - most);
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t before = text.rfind('\n');
  return before == std::string::npos ? text : text.substr(before + 1);
}

}  // namespace

AgentRun::AgentRun(const EnvironmentSection& section, const Json& row,
                   std::vector<std::string> variables)
    : process_(agent_options(section, scratch_.path(), std::move(variables))),
      unsent_(dump_json(row) + "\n") {}

bool AgentRun::advance() {
  const bool ended = process_.has_ended();  // before reading: what it wrote is there
  if (process_.input() >= 0 && (!process::write_some(process_.input(), unsent_) || unsent_.empty()))
    process_.close_input();
  if (process_.errors() >= 0) {
    if (!process::read_some(process_.errors(), errors_, 4 * kKeptOutput)) process_.close_errors();
    keep_end(errors_, kKeptAgentErrors);
  }
  // Of an agent that has ended, all that its pipe can hold; a child that it left may go on writing.
  constexpr int kMostReads = 64;
  for (int reads = 0; reads < (ended ? kMostReads : 1); ++reads) {
    const size_t before = output_.size();
    if (reads_) reads_ = process::read_some(process_.output(), output_, 4 * kKeptOutput);
    const bool more = output_.size() > before;
    keep_end(output_, kKeptOutput);
    if (!more) break;
  }
  return ended;
}

Failure AgentRun::failure(Failure::Kind kind, const std::string& how) const {
  return {kind,
          "the agent " + how + (errors_.empty() ? "" : "; its standard error ends: " + errors_)};
}

std::optional<Failure> AgentRun::find_failure() const {
  const std::string how = process_.ending();
  if (how == "exited with status 0") return std::nullopt;
  return failure(Failure::Kind::kCrashed, how);
}

AgentRun::Reward AgentRun::read_reward() const {
  const std::string line = last_line(output_);
  Json json;
  try {
    json = parse_json(line, "the agent's last line");
  } catch (const DataError&) {
    // Python writes NaN and Infinity, which JSON does not have.
    if (!line.starts_with('{') || line.find("\"reward\"") == std::string::npos) return {};
    return {
        {},
        failure(Failure::Kind::kMalformed, "ended with " + line.substr(0, kQuotedEnd) +
                                               ", expected {\"reward\": number} in valid JSON")};
  }
  if (!json.is_object() || !json.contains("reward")) return {};
  const Json& reward = json["reward"];
  if (reward.is_number() && rewards::is_reward(reward.get<double>()))
    return {reward.get<double>(), {}};
  return {{},
          failure(Failure::Kind::kMalformed, "ended with the reward " +
                                                 dump_json(reward).substr(0, kQuotedEnd) +
                                                 ", expected a finite number of at most 1e30")};
}

}  // namespace temper::env
