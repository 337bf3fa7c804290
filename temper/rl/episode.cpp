#include "temper/rl/episode.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/data/row_fields.h"

namespace temper::rl {

const std::vector<int32_t>& EpisodeGroup::prompt(const Episode& episode) const {
  const Segment& first = segments[static_cast<size_t>(episode.path.front())];
  return segments[static_cast<size_t>(first.parent)].tokens;
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

namespace {

double finite_number(const Json& value, const char* field, const std::string& where) {
  check<DataError>(value.is_number() && std::isfinite(value.get<double>()), where, ": `", field,
                   "` must be a number, found ", dump_json(value));
  return value.get<double>();
}

// A value for every token after the prompt, 0 where the policy did not sample it.
Json by_token(const EpisodeGroup& group, const Episode& episode,
              std::vector<float> Segment::* values) {
  Json out = Json::array();
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    if (segment.sampled && (segment.*values).empty()) return Json::array();
    for (size_t t = static_cast<size_t>(segment.repeated); t < segment.tokens.size(); ++t)
      out.push_back(segment.sampled ? (segment.*values)[t] : 0.0F);
  }
  return out;
}

// One number where all sampled tokens have the same.
Json advantage_of(const EpisodeGroup& group, const Episode& episode) {
  Json all = by_token(group, episode, &Segment::advantage);
  Json first;
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    if (!segment.sampled) continue;
    for (const float a : segment.advantage) {
      if (first.is_null()) first = a;
      if (first.get<float>() != a) return all;
    }
  }
  return first.is_null() ? Json(0.0) : first;
}

// [at, after] of CompletionTokens::Branch, where a segment does not follow the one before.
Json branches_of(const EpisodeGroup& group, const Episode& episode) {
  Json branches = Json::array();
  std::map<int32_t, int64_t> ends;  // of the segments, in the completion
  const int32_t prompt = group.segments[static_cast<size_t>(episode.path[0])].parent;
  ends[prompt] = 0;
  int64_t at = 0;
  int32_t before = prompt;
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    if (segment.parent < 0) {
      const size_t size = group.segments[static_cast<size_t>(prompt)].tokens.size();
      branches.push_back({at, segment.repeated - static_cast<int64_t>(size)});
    } else if (segment.parent != before) {
      branches.push_back({at, ends.at(segment.parent)});
    }
    at += static_cast<int64_t>(segment.tokens.size()) - segment.repeated;
    ends[s] = at;
    before = s;
  }
  return branches;
}

}  // namespace

std::string to_line(const EpisodeGroup& group, const Episode& e, bool resumable) {
  Json row = {{"group", group.id},
              {"sample", e.sample},
              {"prompt_tokens", group.prompt(e)},
              {"completion_tokens", group.completion(e)}};
  Json mask = Json::array(), versions = Json::array();
  bool observed = false;
  for (const int32_t s : e.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    observed = observed || !segment.sampled;
    for (size_t t = static_cast<size_t>(segment.repeated); t < segment.tokens.size(); ++t)
      mask.push_back(segment.sampled ? 1 : 0);
    if (segment.sampled && (versions.empty() || versions.back() != segment.policy_version))
      versions.push_back(segment.policy_version);
  }
  if (observed || e.turns > 0) row["completion_mask"] = std::move(mask);
  if (e.turns > 0) row["turns"] = e.turns;
  if (Json branches = branches_of(group, e); !branches.empty()) row["branches"] = branches;
  row["logprobs"] = by_token(group, e, &Segment::logprobs);
  row["reward"] = e.reward;
  if (e.penalty != 0) row["penalty"] = e.penalty;
  Json rewards = Json::object();
  for (const auto& [name, value] : e.rewards) rewards[name] = value;
  row["rewards"] = std::move(rewards);
  row["advantage"] = advantage_of(group, e);
  row["policy_version"] = versions.size() == 1 ? versions[0] : versions;
  row["text"] = e.text;
  row["finish_reason"] = e.stopped ? "stop" : "length";
  if (resumable) {
    row["old_logp"] = by_token(group, e, &Segment::old_logp);
    row["ref_logp"] = by_token(group, e, &Segment::ref_logp);
    row["value"] = by_token(group, e, &Segment::value);
  }
  return dump_json(row);
}

namespace {

// The fields of a line that hold a number for each token of the completion; empty: it has none.
std::vector<float> numbers(const Json& row, const char* field, size_t tokens,
                           const std::string& where) {
  if (!row.contains(field) || row[field].is_null()) return {};
  check<DataError>(row[field].is_array(), where, ": `", field, "` must be a list of numbers");
  std::vector<float> out;
  for (const Json& p : row[field])
    out.push_back(static_cast<float>(finite_number(p, field, where)));
  check<DataError>(out.empty() || out.size() == tokens, where, ": `", field, "` has ", out.size(),
                   " numbers, `completion_tokens` ", tokens);
  return out;
}

std::vector<bool> mask_of(const Json& row, size_t tokens, const std::string& where) {
  std::vector<bool> mask(tokens, true);
  if (!row.contains("completion_mask") || row["completion_mask"].is_null()) return mask;
  const Json& list = row["completion_mask"];
  check<DataError>(list.is_array() && list.size() == tokens, where,
                   ": `completion_mask` must have a 0 or 1 for each of the ", tokens,
                   " completion_tokens");
  for (size_t t = 0; t < tokens; ++t) {
    check<DataError>(list[t] == 0 || list[t] == 1, where,
                     ": `completion_mask` must hold 0 and 1, found ", dump_json(list[t]));
    mask[t] = list[t] == 1;
  }
  return mask;
}

std::vector<CompletionTokens::Branch> branches(const Json& row, size_t prompt, size_t tokens,
                                               const std::string& where) {
  std::vector<CompletionTokens::Branch> out;
  if (!row.contains("branches") || row["branches"].is_null()) return out;
  const auto fail = [&](const Json& found) {
    throw DataError(str(where, ": `branches` must be a list of [token, token that it follows], ",
                        "found ", dump_json(found)));
  };
  if (!row["branches"].is_array()) fail(row["branches"]);
  for (const Json& pair : row["branches"]) {
    const bool numbers = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                         pair[1].is_number_integer();
    if (!numbers) fail(pair);
    const auto at = pair[0].get<int64_t>(), after = pair[1].get<int64_t>();
    const bool fits = at > (out.empty() ? 0 : out.back().at) && at < static_cast<int64_t>(tokens) &&
                      after < at && after > -static_cast<int64_t>(prompt);
    if (!fits) fail(pair);
    out.push_back({at, after});
  }
  return out;
}

}  // namespace

// Segments are runs of tokens that the policy sampled or did not, cut where branches begin and
// where they leave.
void add_episode(EpisodeGroup& group, const std::vector<int32_t>& prompt, Episode episode,
                 const CompletionTokens& c, int64_t policy_version) {
  const bool shares = !group.episodes.empty() && group.prompt(group.episodes.back()) == prompt;
  if (!shares) group.segments.push_back({.tokens = prompt});
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
  std::map<int64_t, int32_t> ends;  // the segment that ends there
  for (size_t t = 0; t < c.tokens.size(); ++t) {
    const int64_t at = static_cast<int64_t>(t);
    if (t == 0 || c.sampled[t] != c.sampled[t - 1] || cuts.contains(at)) {
      ends[at] = before;
      Segment next{.parent = before, .sampled = c.sampled[t], .policy_version = policy_version};
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
    if (!c.logprobs.empty()) segment.logprobs.push_back(c.logprobs[t]);
    if (!c.old_logp.empty()) segment.old_logp.push_back(c.old_logp[t]);
    if (!c.ref_logp.empty()) segment.ref_logp.push_back(c.ref_logp[t]);
    if (!c.value.empty()) segment.value.push_back(c.value[t]);
  }
  check<DataError>(group.segments[static_cast<size_t>(episode.path[0])].parent == root,
                   "`branches`: a completion begins behind its prompt");
  group.episodes.push_back(std::move(episode));
}

void add_line(std::vector<EpisodeGroup>& groups, const Json& row, int64_t vocabulary,
              const std::string& where) {
  check<DataError>(row.is_object(), where, ": a rollout is an object");
  for (const char* field : {"group", "prompt_tokens", "completion_tokens", "reward"})
    check<DataError>(row.contains(field), where, ": no `", field, "`; the row has ",
                     data::field_names(row));
  check<DataError>(row["group"].is_number_integer(), where, ": `group` must be a whole number");
  const int64_t id = row["group"].get<int64_t>();
  const std::vector<int32_t> prompt =
      data::token_ids(row["prompt_tokens"], "prompt_tokens", vocabulary, where);
  std::vector<int32_t> tokens =
      data::token_ids(row["completion_tokens"], "completion_tokens", vocabulary, where);
  check<DataError>(!prompt.empty(), where, ": `prompt_tokens` is empty");
  check<DataError>(!tokens.empty(), where, ": `completion_tokens` is empty");
  Episode episode;
  episode.reward = finite_number(row["reward"], "reward", where);
  if (row.contains("penalty")) episode.penalty = finite_number(row["penalty"], "penalty", where);
  if (row.contains("sample") && row["sample"].is_number_integer())
    episode.sample = row["sample"].get<int64_t>();
  if (row.contains("rewards") && row["rewards"].is_object())
    for (const auto& [name, value] : row["rewards"].items())
      episode.rewards.emplace_back(name, finite_number(value, "rewards", where));
  if (row.contains("text") && row["text"].is_string())
    episode.text = row["text"].get<std::string>();
  episode.stopped = !(row.contains("finish_reason") && row["finish_reason"] == "length");
  if (row.contains("turns") && row["turns"].is_number_integer())
    episode.turns = row["turns"].get<int64_t>();
  CompletionTokens completion;
  completion.sampled = mask_of(row, tokens.size(), where);
  completion.logprobs = numbers(row, "logprobs", tokens.size(), where);
  completion.old_logp = numbers(row, "old_logp", tokens.size(), where);
  completion.ref_logp = numbers(row, "ref_logp", tokens.size(), where);
  completion.value = numbers(row, "value", tokens.size(), where);
  completion.branches = branches(row, prompt.size(), tokens.size(), where);
  completion.tokens = std::move(tokens);
  check<DataError>(std::find(completion.sampled.begin(), completion.sampled.end(), true) !=
                       completion.sampled.end(),
                   where, ": `completion_mask` marks no token as sampled");
  int64_t version = 0;
  if (row.contains("policy_version") && row["policy_version"].is_number_integer())
    version = row["policy_version"].get<int64_t>();
  if (groups.empty() || groups.back().id != id) groups.push_back({.id = id});
  try {
    add_episode(groups.back(), prompt, std::move(episode), completion, version);
  } catch (const DataError& e) {
    throw DataError(where + ": " + e.what());
  }
}

}  // namespace temper::rl
