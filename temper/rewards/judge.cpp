#include "temper/rewards/judge.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "temper/base/error.h"

namespace temper::rewards {
namespace {

constexpr size_t kMostKnown = 65536;  // questions
constexpr size_t kQuotedAnswer = 200;

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

// The name in braces that begins at `at`; empty: there is none.
std::string name_at(const std::string& text, size_t at) {
  if (text[at] != '{') return {};
  size_t end = at + 1;
  while (end < text.size() && is_of_name(text[end])) ++end;
  return end < text.size() && text[end] == '}' ? text.substr(at + 1, end - at - 1) : "";
}

// Calls word(text) for what stands for itself and field(name) for each name, in their order.
template <class Word, class Named>
void each_part(const std::string& text, const Word& word, const Named& field) {
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '{' && at + 1 < text.size()) {
      const std::string escaped = name_at(text, at + 1);
      const size_t end = at + escaped.size() + 3;  // of the inner braces
      if (!escaped.empty() && end < text.size() && text[end] == '}') {
        word("{" + escaped + "}");
        at = end + 1;
        continue;
      }
    }
    if (const std::string name = name_at(text, at); !name.empty()) {
      field(name);
      at += name.size() + 2;
      continue;
    }
    word(std::string(1, text[at++]));
  }
}

std::string text_of_messages(const Json& messages) {
  std::string text;
  for (const Json& message : messages) {
    const Json *role = find_field(message, "role"), *content = find_field(message, "content");
    const std::string words = !content               ? ""
                              : content->is_string() ? content->get<std::string>()
                                                     : dump_json(*content);
    if (messages.size() == 1) return words;
    text += str(text.empty() ? "" : "\n", role && role->is_string() ? role->get<std::string>() : "",
                ": ", words);
  }
  return text;
}

std::string prompt_of(const Sample& sample) {
  for (const char* field : {"prompt", "messages"}) {
    const auto found = sample.row->find(field);
    if (found == sample.row->end()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_array()) return text_of_messages(*found);
  }
  return sample.prompt;
}

std::optional<double> number_in(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

Regex pattern_of(const RewardSection& section) {
  try {
    return Regex(section.judge.pattern, "rewards: judge.pattern");
  } catch (const DataError& e) {
    throw ConfigError(e.what());
  }
}

}  // namespace

std::string filled(const std::string& text, const Sample& sample) {
  std::string out;
  each_part(
      text, [&](const std::string& word) { out += word; },
      [&](const std::string& name) {
        out += name == "completion" ? sample.completion
               : name == "prompt"   ? prompt_of(sample)
                                    : text_field(sample, name);
      });
  return out;
}

std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> names;
  each_part(
      text, [](const std::string&) {},
      [&](const std::string& name) {
        const bool own = name == "prompt" || name == "completion";
        if (!own && std::ranges::count(names, name) == 0) names.push_back(name);
      });
  return names;
}

Judge::Judge(RewardSection section)
    : section_(std::move(section)), pattern_(pattern_of(section_)) {}

std::vector<std::string> Judge::required_fields() const { return fields_of(section_.judge.prompt); }

Verdict Judge::verdict_of(const std::string& answer) const {
  const auto malformed = [&](const std::string& problem) {
    return Verdict{Verdict::Kind::kMalformed, 0,
                   str("the judge answered `", answer.substr(0, kQuotedAnswer), "`, ", problem)};
  };
  Regex::Match match, group, last{std::string::npos, 0};
  try {
    for (size_t from = 0; from <= answer.size() && pattern_.find(answer, from, match, &group);) {
      last = group.begin == std::string::npos ? match : group;
      from = match.end > match.begin ? match.end : match.end + 1;
      while (from < answer.size() && (static_cast<unsigned char>(answer[from]) & 0xC0) == 0x80)
        ++from;
    }
  } catch (const DataError& e) {
    return malformed(e.what());
  }
  if (last.begin == std::string::npos) return malformed("in which judge.pattern matches nothing");
  const std::string found = answer.substr(last.begin, last.end - last.begin);
  const std::optional<double> number = number_in(found);
  if (!number)
    return malformed(str("in which judge.pattern matches `", found.substr(0, kQuotedAnswer),
                         "`, expected a number"));
  return valued(*number * section_.judge.scale);
}

void Judge::remember(const std::string& question, const Verdict& verdict) {
  const auto [at, added] = known_.emplace(question, verdict);
  if (!added) return;
  oldest_.push_back(at);
  if (oldest_.size() <= kMostKnown) return;
  known_.erase(oldest_.front());
  oldest_.pop_front();
}

std::vector<Verdict> Judge::judge(std::span<const Sample> samples) {
  std::vector<Verdict> verdicts(samples.size());
  std::vector<std::string> questions;
  std::map<std::string, std::vector<size_t>> asked_by;  // samples
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::string question = filled(section_.judge.prompt, samples[i]);
    if (const auto found = known_.find(question); found != known_.end()) {
      verdicts[i] = found->second;
      continue;
    }
    std::vector<size_t>& askers = asked_by[question];
    if (askers.empty()) questions.push_back(question);
    askers.push_back(i);
  }
  if (questions.empty()) return verdicts;
  ask(questions, [&](size_t question, Answer answer) {
    const std::string& text = questions.at(question);
    const auto* said = std::get_if<std::string>(&answer);
    const Verdict verdict = said ? verdict_of(*said) : std::get<Verdict>(answer);
    if (verdict.kind != Verdict::Kind::kValue)
      heard_(verdict.detail, false);
    else
      remember(text, verdict);
    for (const size_t i : asked_by.at(text)) verdicts[i] = verdict;
  });
  return verdicts;
}

}  // namespace temper::rewards
