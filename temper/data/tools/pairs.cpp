#include "temper/data/tools/pairs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/random.h"

namespace temper::data {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits with what is a part of the number before and after them: 1,234 and 0.5 are one.
struct Span {
  size_t begin, end;
};

std::vector<Span> numbers_in(std::string_view text) {
  std::vector<Span> out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_digit(text[i])) continue;
    size_t end = i + 1;
    while (end < text.size() &&
           (is_digit(text[end]) || ((text[end] == ',' || text[end] == '.') &&
                                    end + 1 < text.size() && is_digit(text[end + 1]))))
      ++end;
    out.push_back({i, end});
    i = end;
  }
  return out;
}

// The number with another digit; a first digit does not become 0.
std::string other_number(std::string number, const RandomStream& random) {
  std::vector<size_t> digits;
  for (size_t i = 0; i < number.size(); ++i)
    if (is_digit(number[i])) digits.push_back(i);
  const size_t place = digits[random.below(0, digits.size())];
  const uint64_t old = static_cast<uint64_t>(number[place] - '0');
  uint64_t digit = (old + 1 + random.below(1, 9)) % 10;
  if (digit == 0 && place == digits[0] && digits.size() > 1) digit = old == 1 ? 2 : 1;
  number[place] = static_cast<char>('0' + digit);
  return number;
}

const std::string& required_text(const Json& row, const char* field, const std::string& where) {
  const auto it = row.find(field);
  check<DataError>(it != row.end() && it->is_string(), where, ": expected text in `", field, "`");
  return it->get_ref<const std::string&>();
}

}  // namespace

std::optional<Json> pair_with_wrong_number(const Json& row, uint64_t seed, uint64_t index,
                                           const std::string& where) {
  const std::string& completion = required_text(row, "completion", where);
  const std::vector<Span> numbers = numbers_in(completion);
  if (numbers.empty()) return {};
  const auto text = [&](const Span& s) { return completion.substr(s.begin, s.end - s.begin); };
  const std::string right = text(numbers.back());
  const std::string wrong = other_number(right, RandomStream(seed, RandomPurpose::kPairs, index));
  std::string rejected;
  size_t at = 0;
  for (const Span& number : numbers) {
    if (text(number) != right) continue;
    rejected += completion.substr(at, number.begin - at) + wrong;
    at = number.end;
  }
  rejected += completion.substr(at);
  return Json{{"prompt", required_text(row, "prompt", where)},
              {"chosen", completion},
              {"rejected", rejected}};
}

namespace {

// Of rows with one prompt.
std::optional<Json> pair_of(const std::vector<const Json*>& group, const std::string& where) {
  const auto reward = [&](const Json& row) {
    const auto it = row.find("reward");
    check<DataError>(it != row.end() && it->is_number() && std::isfinite(it->get<double>()), where,
                     ": expected a number in `reward`");
    return it->get<double>();
  };
  const auto ids = [&](const Json& row, const char* field) -> const Json& {
    const auto it = row.find(field);
    check<DataError>(it != row.end() && it->is_array(), where, ": expected a list in `", field,
                     "`");
    return *it;
  };
  for (const Json* const row : group) {
    const auto mask = row->find("completion_mask");
    check<DataError>(mask == row->end() || !mask->is_array() ||
                         std::find(mask->begin(), mask->end(), Json(0)) == mask->end(),
                     where,
                     ": `completion_mask` marks tokens that the policy did not sample; pairs "
                     "are made of completions without an environment");
  }
  const Json *best = nullptr, *worst = nullptr;
  for (const Json* const row : group) {
    if (!best || reward(*row) > reward(*best)) best = row;
    if (!worst || reward(*row) < reward(*worst)) worst = row;
  }
  if (!best || reward(*best) == reward(*worst)) return {};
  if (ids(*best, "completion_tokens") == ids(*worst, "completion_tokens")) return {};
  const auto side = [&](const Json& row) {
    Json tokens = ids(row, "completion_tokens");
    if (row.contains("closing_tokens"))
      for (const Json& token : ids(row, "closing_tokens")) tokens.push_back(token);
    return tokens;
  };
  const Json chosen = side(*best), rejected = side(*worst);
  Json pair{{"prompt_ids", ids(*best, "prompt_tokens")},
            {"chosen_ids", chosen},
            {"rejected_ids", rejected},
            {"reward_difference", reward(*best) - reward(*worst)}};
  if (best->contains("images")) pair["images"] = (*best)["images"];
  return pair;
}

}  // namespace

std::vector<Json> best_against_worst(const std::vector<Json>& group, const std::string& where) {
  std::vector<std::vector<const Json*>> prompts;  // the rows of each, in their order
  const auto prompt_of = [&](const Json& row) -> const Json& {
    const auto it = row.find("prompt_tokens");
    check<DataError>(it != row.end() && it->is_array(), where,
                     ": expected a list in `prompt_tokens`");
    return *it;
  };
  for (const Json& row : group) {
    const Json& prompt = prompt_of(row);
    const auto same = std::find_if(prompts.begin(), prompts.end(),
                                   [&](const auto& rows) { return prompt_of(*rows[0]) == prompt; });
    if (same == prompts.end())
      prompts.push_back({&row});
    else
      same->push_back(&row);
  }
  std::vector<Json> pairs;
  for (const auto& rows : prompts)
    if (std::optional<Json> pair = pair_of(rows, where)) pairs.push_back(std::move(*pair));
  return pairs;
}

}  // namespace temper::data
