#include "temper/serve/body.h"

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/generate/sampling/option_table.h"
#include "temper/text/unicode.h"

namespace temper::serve {
namespace {

// Keys that change nothing here.
const std::set<std::string_view> kIgnored{
    "user",         "metadata",  "store",     "service_tier",     "request_id",
    "priority",     "n_probs",   "verbosity", "prompt_cache_key", "safety_identifier",
    "cache_prompt", "cache_salt"};

struct Default {
  const char *key, *value;  // JSON
};
// Keys that are obeyed in one way only.
constexpr Default kOnlyDefaults[] = {{"best_of", "1"},
                                     {"suffix", "\"\""},
                                     {"modalities", R"(["text"])"},
                                     {"functions", "[]"},
                                     {"use_beam_search", "false"},
                                     {"length_penalty", "1"},
                                     {"skip_special_tokens", "true"},
                                     {"spaces_between_special_tokens", "true"},
                                     {"include_stop_str_in_output", "false"},
                                     {"add_special_tokens", "true"},
                                     {"add_generation_prompt", "true"},
                                     {"continue_final_message", "false"}};

// True where the words differ by one inserted, missing or replaced letter, or by two swapped ones.
bool is_misspelled(std::string_view word, std::string_view key) {
  constexpr size_t kShortest = 6;  // shorter names of different things are as near
  if (key.size() < kShortest || word.size() < kShortest) return false;
  const size_t shorter = std::min(word.size(), key.size());
  if (std::max(word.size(), key.size()) - shorter > 1) return false;
  size_t same = 0, same_end = 0;
  while (same < shorter && word[same] == key[same]) ++same;
  while (same_end < shorter - same &&
         word[word.size() - 1 - same_end] == key[key.size() - 1 - same_end])
    ++same_end;
  const std::string_view left = word.substr(same, word.size() - same - same_end),
                         right = key.substr(same, key.size() - same - same_end);
  const bool swapped =
      left.size() == 2 && right.size() == 2 && left[0] == right[1] && left[1] == right[0];
  return swapped || (left.size() <= 1 && right.size() <= 1);
}

}  // namespace

std::string quoted(const Json& value) {
  constexpr size_t kLongest = 100;
  std::string text = dump_json(value);
  if (text.size() <= kLongest) return text;
  text.resize(kLongest);
  text.append("...");
  return text;
}

void wrong(std::string_view key, const Json& found, const std::string& expected) {
  throw DataError(temper::str("`", key, "`: found ", quoted(found), ", expected ", expected));
}

const Json* Members::find(std::string_view key) {
  known_.emplace(key);
  const auto it = body_.find(key);
  return it == body_.end() || it->is_null() ? nullptr : &*it;
}

bool Members::flag(std::string_view key) {
  const Json* value = find(key);
  if (value && !value->is_boolean()) wrong(key, *value, "true or false");
  return value && value->get<bool>();
}

std::optional<int64_t> Members::integer(std::string_view key, int64_t low, int64_t high) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
  const int64_t number = fits ? value->get<int64_t>() : 0;
  if (fits && number >= low && number <= high) return number;
  const bool too_large = value->is_number_unsigned() && !fits;
  wrong(key, *value,
        high == kUnbounded && low > INT64_MIN && !too_large
            ? temper::str("a whole number of at least ", low)
            : temper::str("a whole number from ", low, " to ", high));
}

void Members::number(std::string_view key, double& out, const Rule& rule) {
  const Json* value = find(key);
  if (!value) return;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!generate::allows(rule, number)) wrong(key, *value, generate::allowed(rule, false));
  out = number;
}

std::string Members::text(std::string_view key) {
  const Json* value = find(key);
  if (value && !value->is_string()) wrong(key, *value, "a string");
  return value ? value->get<std::string>() : "";
}

std::vector<std::string> Members::rest() {
  for (const auto& [key, value] : kOnlyDefaults) {
    const Json* found = find(key);
    if (found && *found != parse_json(value, key))
      wrong(key, *found, temper::str(value, ": only the default value is supported"));
  }
  std::vector<std::string> out;
  for (const auto& [key, value] : body_.items()) {
    if (known_.contains(key) || kIgnored.contains(key)) continue;
    for (const std::string& known : known_)
      check<DataError>(!is_misspelled(key, known), "`", printable(key),
                       "`: unknown parameter; did you mean `", known, "`?");
    out.push_back(key);
  }
  return out;
}

void Members::check_no_rest() {
  const std::vector<std::string> unknown = rest();
  check<DataError>(unknown.empty(), "`", unknown.empty() ? "" : printable(unknown.front()),
                   "`: unknown parameter");
}

}  // namespace temper::serve
