#include "temper/rl/rollout.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/row_fields.h"

namespace temper::rl {
namespace {

double finite_number(const Json& value, const char* field, const std::string& where) {
  check<DataError>(value.is_number() && std::isfinite(value.get<double>()), where, ": `", field,
                   "` must be a number, found ", dump_json(value));
  return value.get<double>();
}

}  // namespace

std::string to_line(const Rollout& r) {
  Json row = {{"group", r.group},
              {"sample", r.sample},
              {"prompt_tokens", r.prompt_tokens},
              {"completion_tokens", r.completion_tokens}};
  // A float32 widened to double prints the digits of the double: more than it needs, and it reads
  // back to the same float32.
  Json logprobs = Json::array();
  for (const float p : r.logprobs) logprobs.push_back(p);
  row["logprobs"] = std::move(logprobs);
  row["reward"] = r.reward;
  Json rewards = Json::object();
  for (const auto& [name, value] : r.rewards) rewards[name] = value;
  row["rewards"] = std::move(rewards);
  row["advantage"] = r.advantage;
  row["text"] = r.text;
  row["finish_reason"] = r.stopped ? "stop" : "length";
  return dump_json(row);
}

Rollout parse_rollout(const Json& row, int64_t vocabulary, const std::string& where) {
  check<DataError>(row.is_object(), where, ": a rollout is an object");
  for (const char* field : {"group", "prompt_tokens", "completion_tokens", "reward"})
    check<DataError>(row.contains(field), where, ": no `", field, "`; the row has ",
                     data::field_names(row));
  check<DataError>(row["group"].is_number_integer(), where, ": `group` must be a whole number");
  Rollout r;
  r.group = row["group"].get<int64_t>();
  if (row.contains("sample") && row["sample"].is_number_integer())
    r.sample = row["sample"].get<int64_t>();
  r.prompt_tokens = data::token_ids(row["prompt_tokens"], "prompt_tokens", vocabulary, where);
  r.completion_tokens =
      data::token_ids(row["completion_tokens"], "completion_tokens", vocabulary, where);
  check<DataError>(!r.prompt_tokens.empty(), where, ": `prompt_tokens` is empty");
  check<DataError>(!r.completion_tokens.empty(), where, ": `completion_tokens` is empty");
  r.reward = finite_number(row["reward"], "reward", where);
  if (row.contains("logprobs") && !row["logprobs"].is_null()) {
    check<DataError>(row["logprobs"].is_array(), where, ": `logprobs` must be a list of numbers");
    for (const Json& p : row["logprobs"])
      r.logprobs.push_back(static_cast<float>(finite_number(p, "logprobs", where)));
    check<DataError>(r.logprobs.empty() || r.logprobs.size() == r.completion_tokens.size(), where,
                     ": `logprobs` has ", r.logprobs.size(), " numbers, `completion_tokens` ",
                     r.completion_tokens.size());
  }
  if (row.contains("rewards") && row["rewards"].is_object())
    for (const auto& [name, value] : row["rewards"].items())
      r.rewards.emplace_back(name, finite_number(value, "rewards", where));
  if (row.contains("advantage") && row["advantage"].is_number())
    r.advantage = row["advantage"].get<double>();
  if (row.contains("text") && row["text"].is_string()) r.text = row["text"].get<std::string>();
  r.stopped = !(row.contains("finish_reason") && row["finish_reason"] == "length");
  return r;
}

std::vector<size_t> RolloutBatch::bounds() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < rollouts.size(); ++i)
    if (i == 0 || rollouts[i].group != rollouts[i - 1].group) out.push_back(i);
  out.push_back(rollouts.size());
  return out;
}

}  // namespace temper::rl
