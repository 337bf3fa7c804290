#include "temper/rl/rollout/rollout_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/error.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/row_fields.h"

namespace temper::rl {

namespace {

// Of rewards of at most 1e30, weighted by at most 1e6; its square is a double still.
constexpr double kLargestSum = 1e38;

double finite_number(const Json& value, const char* field, const std::string& where) {
  check<DataError>(value.is_number() && std::isfinite(value.get<double>()), where, ": `", field,
                   "` must be a number, found ", dump_json(value));
  return value.get<double>();
}

// The number that JSON prints with the fewest digits that read back to this float32.
double shortest(float value) {
  const std::string text = float_to_json(value);
  double out = value;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return static_cast<float>(out) == value ? out : static_cast<double>(value);
}

// A value for every token after the prompt, 0 where the policy did not sample it.
Json by_token(const EpisodeGroup& group, const Episode& episode,
              std::vector<float> Segment::* values) {
  Json out = Json::array();
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    if (segment.sampled && (segment.*values).empty()) return Json::array();
    for (size_t t = static_cast<size_t>(segment.repeated); t < segment.tokens.size(); ++t)
      out.push_back(segment.sampled ? shortest((segment.*values)[t]) : 0.0);
  }
  return out;
}

// Segment::kept of every token after the prompt; empty where nothing was truncated.
Json kept_tokens(const EpisodeGroup& group, const Episode& episode) {
  Json out = Json::array();
  bool any = false;
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    for (size_t t = static_cast<size_t>(segment.repeated); t < segment.tokens.size(); ++t) {
      out.push_back(segment.kept.empty() ? Json::array() : Json(segment.kept[t]));
      any = any || !out.back().empty();
    }
  }
  return any ? out : Json::array();
}

// The policy version of an episode: one number where all sampled tokens have the same.
Json advantage_of(const EpisodeGroup& group, const Episode& episode) {
  Json all = by_token(group, episode, &Segment::advantage);
  Json first;
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    if (!segment.sampled) continue;
    for (const float a : segment.advantage) {
      if (first.is_null()) first = shortest(a);
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

Json sources_of(const ImageSpans& images, const NameImage& name) {
  Json sources = Json::array();
  for (const ImageSpan& span : images)
    if (span.first == 0) sources.push_back(name(*span.image));
  return sources;
}

// Whether the episode has the prompt of the one before, and no other image.
bool repeats_images(const EpisodeGroup& group, size_t episode) {
  const Episode& e = group.episodes[episode];
  const auto root = [&](const Episode& of) {
    return group.segments[static_cast<size_t>(of.path[0])].parent;
  };
  return episode > 0 && root(group.episodes[episode - 1]) == root(e) &&
         group.images(e).size() == group.prompt_images(e).size();
}

}  // namespace

std::string to_line(const EpisodeGroup& group, const Episode& e, bool resumable,
                    const NameImage& name) {
  Json row = {{"group", group.id},
              {"sample", e.sample},
              {"prompt_tokens", group.prompt(e)},
              {"completion_tokens", group.completion(e)}};
  if (name)
    if (Json images = sources_of(group.images(e), name); !images.empty())
      row["images"] = std::move(images);
  Json mask = Json::array(), versions = Json::array(), version_tokens = Json::array();
  bool observed = false;
  for (const int32_t s : e.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    observed = observed || !segment.sampled;
    for (size_t t = static_cast<size_t>(segment.repeated); t < segment.tokens.size(); ++t)
      mask.push_back(segment.sampled ? 1 : 0);
    if (!segment.sampled) continue;
    if (versions.empty() || versions.back() != segment.policy_version) {
      versions.push_back(segment.policy_version);
      version_tokens.push_back(0);
    }
    version_tokens.back() = version_tokens.back().get<size_t>() + segment.tokens.size();
  }
  if (observed || e.turns > 0) row["completion_mask"] = std::move(mask);
  if (e.turns > 0) row["turns"] = e.turns;
  if (Json branches = branches_of(group, e); !branches.empty()) row["branches"] = branches;
  row["logprobs"] = by_token(group, e, &Segment::logprobs);
  if (Json kept = kept_tokens(group, e); !kept.empty()) row["kept_tokens"] = std::move(kept);
  row["reward"] = e.reward;
  if (e.penalty != 0) row["penalty"] = e.penalty;
  Json rewards = Json::object();
  for (const auto& [name, value] : e.rewards) rewards[name] = value;
  row["rewards"] = std::move(rewards);
  if (!e.turn_rewards.empty()) row["turn_rewards"] = e.turn_rewards;
  row["advantage"] =
      e.token_credit ? by_token(group, e, &Segment::advantage) : advantage_of(group, e);
  row["policy_version"] = versions.size() == 1 ? versions[0] : versions;
  if (versions.size() > 1) row["version_tokens"] = std::move(version_tokens);
  row["text"] = e.text;
  row["finish_reason"] = e.stopped ? "stop" : "length";
  if (!group.rows.empty()) row["rows"] = group.rows;
  if (!e.closing_tokens.empty()) row["closing_tokens"] = e.closing_tokens;
  if (resumable) {
    row["old_logp"] = by_token(group, e, &Segment::old_logp);
    row["ref_logp"] = by_token(group, e, &Segment::ref_logp);
    row["value"] = by_token(group, e, &Segment::value);
  }
  return dump_json(row);
}

std::string to_lines(const std::vector<EpisodeGroup>& groups, bool resumable) {
  std::string lines;
  for (const EpisodeGroup& group : groups)
    for (size_t i = 0; i < group.episodes.size(); ++i)
      lines += to_line(group, group.episodes[i], resumable,
                       repeats_images(group, i) ? NameImage() : &Image::source) +
               "\n";
  return lines;
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

// CompletionTokens::kept of `tokens`.
std::vector<std::vector<int32_t>> kept_of(const Json& row, const std::vector<int32_t>& tokens,
                                          int64_t vocabulary, const std::string& where) {
  if (!row.contains("kept_tokens") || row["kept_tokens"].is_null()) return {};
  const Json& lists = row["kept_tokens"];
  check<DataError>(lists.is_array() && (lists.empty() || lists.size() == tokens.size()), where,
                   ": `kept_tokens` must have a list of token ids for each of the ", tokens.size(),
                   " completion_tokens");
  std::vector<std::vector<int32_t>> kept;
  for (size_t t = 0; t < lists.size(); ++t) {
    std::vector<int32_t> ids = data::token_ids(lists[t], "kept_tokens", vocabulary, where);
    check<DataError>(ids.empty() || (std::is_sorted(ids.begin(), ids.end(), std::less_equal<>()) &&
                                     std::binary_search(ids.begin(), ids.end(), tokens[t])),
                     where, ": `kept_tokens` must be ascending, with token ", tokens[t],
                     " of place ", t, " among its own");
    kept.push_back(std::move(ids));
  }
  return kept;
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
                      after < at && after >= -static_cast<int64_t>(prompt);
    if (!fits) fail(pair);
    out.push_back({at, after});
  }
  return out;
}

}  // namespace

namespace {

// The version that sampled it; of several, those of its tokens are set.
int64_t version_of(const Json& row, CompletionTokens& completion, const std::string& where) {
  if (!row.contains("policy_version") || row["policy_version"].is_null()) return 0;
  const Json& versions = row["policy_version"];
  if (versions.is_number_integer()) return versions.get<int64_t>();
  const Json counts = row.value("version_tokens", Json());
  const auto numbers = [](const Json& list) {
    return list.is_array() && !list.empty() &&
           std::all_of(list.begin(), list.end(),
                       [](const Json& n) { return n.is_number_integer() && n >= 0; });
  };
  const auto sampled = std::count(completion.sampled.begin(), completion.sampled.end(), true);
  std::vector<int64_t> by_token;
  bool fits = numbers(versions) && numbers(counts) && versions.size() == counts.size();
  for (size_t i = 0; fits && i < counts.size(); ++i) {
    const int64_t count = counts[i].get<int64_t>();
    fits = count <= sampled - std::ssize(by_token);
    if (fits) by_token.insert(by_token.end(), static_cast<size_t>(count), versions[i]);
  }
  check<DataError>(fits && std::ssize(by_token) == sampled, where,
                   ": `policy_version` must be a whole number, or a list of them with as many "
                   "`version_tokens`, whose sum is that of the sampled tokens");
  size_t next = 0;
  for (const bool token : completion.sampled)
    completion.version.push_back(token ? by_token[next++] : 0);
  return 0;
}

// The images of the line's prompt and completion. `before`: the episode that it follows in its
// group; null: none.
ImageSpans images_of(const LineFormat& format, const Json& row, const std::vector<int32_t>& prompt,
                     const std::vector<int32_t>& completion, const EpisodeGroup* before,
                     const std::string& where) {
  data::TextFormat text;
  text.images = format.images;
  text.directory = format.directory;
  if (before && !row.contains("images") && before->prompt(before->episodes.back()) == prompt &&
      data::ImagePlaces(text, {}).count(completion) == 0)
    return before->prompt_images(before->episodes.back());
  Json sources = Json::object();
  if (row.contains("images")) sources["images"] = row["images"];
  const data::RowImages images = data::place_images(text, sources, {}, where);
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), completion.begin(), completion.end());
  return data::spans_of(text, images, tokens, where);
}

}  // namespace

LineHead read_head(const Json& row, int64_t vocabulary, const std::string& where) {
  check<DataError>(row.is_object(), where, ": a rollout is an object");
  for (const char* field : {"group", "prompt_tokens", "completion_tokens", "reward"})
    check<DataError>(row.contains(field), where, ": no `", field, "`; the row has ",
                     data::field_names(row));
  check<DataError>(row["group"].is_number_integer(), where, ": `group` must be a whole number");
  LineHead head{.group = row["group"].get<int64_t>()};
  head.prompt = data::token_ids(row["prompt_tokens"], "prompt_tokens", vocabulary, where);
  head.completion =
      data::token_ids(row["completion_tokens"], "completion_tokens", vocabulary, where);
  check<DataError>(!head.prompt.empty(), where, ": `prompt_tokens` is empty");
  check<DataError>(!head.completion.empty(), where, ": `completion_tokens` is empty");
  head.reward = finite_number(row["reward"], "reward", where);
  check<DataError>(std::abs(head.reward) <= kLargestSum, where, ": `reward`: found ", head.reward,
                   ", expected at most ", kLargestSum);
  head.sampled = mask_of(row, head.completion.size(), where);
  check<DataError>(std::find(head.sampled.begin(), head.sampled.end(), true) != head.sampled.end(),
                   where, ": `completion_mask` marks no token as sampled");
  return head;
}

void add_line(std::vector<EpisodeGroup>& groups, const Json& row, const LineFormat& format,
              const std::string& where) {
  const int64_t vocabulary = format.vocabulary;
  LineHead head = read_head(row, vocabulary, where);
  const int64_t id = head.group;
  const std::vector<int32_t> prompt = std::move(head.prompt);
  std::vector<int32_t> tokens = std::move(head.completion);
  Episode episode;
  episode.reward = head.reward;
  if (row.contains("penalty")) episode.penalty = finite_number(row["penalty"], "penalty", where);
  if (row.contains("sample") && row["sample"].is_number_integer())
    episode.sample = row["sample"].get<int64_t>();
  if (row.contains("rewards") && row["rewards"].is_object())
    for (const auto& [name, value] : row["rewards"].items())
      episode.rewards.emplace_back(name, finite_number(value, "rewards", where));
  if (row.contains("text") && row["text"].is_string())
    episode.text = row["text"].get<std::string>();
  episode.stopped = !(row.contains("finish_reason") && row["finish_reason"] == "length");
  if (row.contains("closing_tokens"))
    episode.closing_tokens =
        data::token_ids(row["closing_tokens"], "closing_tokens", vocabulary, where);
  if (row.contains("turns") && row["turns"].is_number_integer())
    episode.turns = row["turns"].get<int64_t>();
  if (row.contains("turn_rewards") && !row["turn_rewards"].is_null()) {
    check<DataError>(row["turn_rewards"].is_array(), where,
                     ": `turn_rewards` must be a list of numbers");
    for (const Json& one : row["turn_rewards"])
      episode.turn_rewards.push_back(finite_number(one, "turn_rewards", where));
  }
  CompletionTokens completion;
  completion.sampled = std::move(head.sampled);
  completion.kept = kept_of(row, tokens, vocabulary, where);
  completion.logprobs = numbers(row, "logprobs", tokens.size(), where);
  completion.old_logp = numbers(row, "old_logp", tokens.size(), where);
  completion.ref_logp = numbers(row, "ref_logp", tokens.size(), where);
  completion.value = numbers(row, "value", tokens.size(), where);
  completion.branches = branches(row, prompt.size(), tokens.size(), where);
  completion.tokens = std::move(tokens);
  const int64_t version = version_of(row, completion, where);
  const bool goes_on = !groups.empty() && groups.back().id == id;
  const ImageSpans images =
      images_of(format, row, prompt, completion.tokens, goes_on ? &groups.back() : nullptr, where);
  const int64_t begin = std::ssize(prompt);
  completion.images = spans_within(images, begin, begin + std::ssize(completion.tokens));
  if (!goes_on) groups.push_back({.id = id});
  if (row.contains("rows") && row["rows"].is_string())
    groups.back().rows = row["rows"].get<std::string>();
  try {
    add_episode(groups.back(), prompt, std::move(episode), completion, version,
                spans_within(images, 0, begin));
  } catch (const DataError& e) {
    throw DataError(where + ": " + e.what());
  }
  const EpisodeGroup& group = groups.back();
  const size_t rewarded = group.episodes.back().turn_rewards.size(),
               turns = group.turns(group.episodes.back()).size();
  // Turns without an observation between them stand together.
  check<DataError>(rewarded == 0 || rewarded >= turns, where, ": `turn_rewards` has ", rewarded,
                   " numbers, `completion_mask` ", turns, " turns");
}

void add_lines(std::vector<EpisodeGroup>& groups, const std::string& lines,
               const LineFormat& format, const std::string& where) {
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);)
    add_line(groups, parse_json(line, where), format, where);
}

}  // namespace temper::rl
