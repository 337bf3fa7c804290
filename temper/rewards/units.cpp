#include "temper/rewards/units.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "temper/rewards/answer.h"
#include "temper/rewards/spelling.h"

namespace temper::rewards {
namespace {

// Names of units, each with the name by which it is compared. Other words after a number are not
// units.
constexpr auto kUnits = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"mm", "mm"},
    {"millimeter", "mm"},
    {"cm", "cm"},
    {"centimeter", "cm"},
    {"dm", "dm"},
    {"m", "m"},
    {"meter", "m"},
    {"metre", "m"},
    {"km", "km"},
    {"kilometer", "km"},
    {"kilometre", "km"},
    {"in", "in"},
    {"inch", "in"},
    {"inche", "in"},
    {"ft", "ft"},
    {"feet", "ft"},
    {"foot", "ft"},
    {"yd", "yd"},
    {"yard", "yd"},
    {"mile", "mi"},
    {"mi", "mi"},
    {"mg", "mg"},
    {"g", "g"},
    {"gram", "g"},
    {"kg", "kg"},
    {"kilogram", "kg"},
    {"lb", "lb"},
    {"pound", "lb"},
    {"oz", "oz"},
    {"ounce", "oz"},
    {"ton", "ton"},
    {"ml", "ml"},
    {"milliliter", "ml"},
    {"l", "l"},
    {"liter", "l"},
    {"litre", "l"},
    {"gallon", "gal"},
    {"quart", "qt"},
    {"cup", "cup"},
    {"s", "s"},
    {"sec", "s"},
    {"second", "s"},
    {"min", "min"},
    {"minute", "min"},
    {"h", "h"},
    {"hr", "h"},
    {"hour", "h"},
    {"day", "day"},
    {"week", "week"},
    {"month", "month"},
    {"yr", "year"},
    {"year", "year"},
    {"am", "am"},
    {"pm", "pm"},
    {"dollar", "dollar"},
    {"cent", "cent"},
    {"euro", "euro"},
    {"mph", "mph"},
    {"degree", "degree"},
    {"radian", "radian"},
    {"unit", "unit"},
    {"square unit", "square unit"},
    {"cubic unit", "cubic unit"},
    {"way", ""},
    {"point", ""},
    {"student", ""},
    {"people", ""},
    {"person", ""},
    {"apple", ""},
    {"game", ""},
    {"ticket", ""},
    {"book", ""},
    {"digit", ""},
    {"edge", ""},
    {"integer", ""},
    {"time", ""},
    {"mark", ""},
    {"coin", ""},
    {"marble", ""},
    {"ball", ""},
    {"item", ""},
});

// Words in \text{} that say more than a unit.
constexpr auto kMeaningful = std::to_array<std::string_view>({
    "and",    "or",      "not",      "if",        "else",    "when",          "where",     "for",
    "to",     "hundred", "thousand", "million",   "billion", "trillion",      "dozen",     "half",
    "halves", "squared", "cubed",    "factorial", "over",    "mod",           "base",      "plus",
    "minus",  "times",   "pi",       "percent",   "about",   "approximately", "otherwise",
});

std::string canonical_unit(const std::string& name, bool& known) {
  for (const std::string& one :
       {name, name.size() > 2 && name.ends_with('s') ? name.substr(0, name.size() - 1) : name})
    for (const auto& [unit, canonical] : kUnits)
      if (one == unit) {
        known = true;
        return std::string(canonical);
      }
  known = false;
  return {};
}

bool says_more(std::string_view words) {
  if (std::any_of(words.begin(), words.end(), [](char c) {
        return !is_letter(c) && std::string_view(" ./-^").find(c) == std::string_view::npos;
      }))
    return true;
  for (size_t at = 0; at < words.size();) {
    size_t end = at;
    while (end < words.size() && is_letter(words[end])) ++end;
    if (std::count(kMeaningful.begin(), kMeaningful.end(), lower_case(words.substr(at, end - at))) >
        0)
      return true;
    at = std::max(end, at + 1);
  }
  return false;
}

void drop_last(std::string& text, size_t to) {
  text.resize(to);
  while (!text.empty() && text.back() == ' ') text.pop_back();
}

// The power of a unit, cm^2, taken from the end; "" where there is none.
std::string take_power(std::string& text) {
  for (const std::string_view power : {"^2", "^3", "^{2}", "^{3}"}) {
    if (!text.ends_with(power)) continue;
    const size_t at = text.size() - power.size();
    // The power must follow a unit: x^2 and 5^2 keep theirs.
    if (at == 0 || !(text[at - 1] == '}' || is_letter(text[at - 1]))) return "";
    drop_last(text, at);
    return power.find('2') != power.npos ? "2" : "3";
  }
  return "";
}

// Takes one unit from the end; false: there is none.
bool take_one(std::string& text, Unit& unit) {
  if (text.ends_with(kDegree)) {
    drop_last(text, text.size() - 1);
    unit.name = "degree";
    return true;
  }
  if (text.ends_with('%')) {
    drop_last(text, text.size() - 1);
    unit.percent = true;
    return true;
  }
  std::string rest = text;
  const std::string power = take_power(rest);
  bool known = false;
  std::string word;
  if (rest.ends_with('}')) {
    const size_t at = rest.rfind("\\text{");
    if (at == std::string::npos || at == 0 || end_of_braces(rest, at + 5) != rest.size())
      return false;
    std::string words =
        lower_case(trimmed(std::string_view(rest).substr(at + 6, rest.size() - at - 7)));
    if (words == "percent") {
      drop_last(rest, at);
      text = rest + "%";
      return take_one(text, unit);
    }
    if (says_more(words)) return false;
    std::erase(words, '.');
    word = canonical_unit(words, known);
    drop_last(rest, at);
  } else {
    size_t at = rest.size();
    while (at > 0 && (is_letter(rest[at - 1]) || rest[at - 1] == ' ')) --at;
    const bool in_command = at > 0 && rest[at - 1] == '\\';
    while (in_command && at < rest.size() && is_letter(rest[at])) ++at;
    while (at < rest.size() && rest[at] == ' ') ++at;
    const std::string words = rest.substr(at);
    // A letter alone is a variable.
    if (words.size() < 2 || at == 0) return false;
    word = canonical_unit(words, known);
    if (!known) return false;
    drop_last(rest, at);
  }
  text = rest;
  unit.name = known && !word.empty() ? word + power : "";
  return true;
}

}  // namespace

Unit take_unit(std::string& text) {
  Unit unit;
  // Degrees in an argument are part of it.
  for (const char* function : {"\\sin", "\\cos", "\\tan", "\\cot", "\\sec", "\\csc"})
    if (text.find(function) != std::string::npos) return unit;
  for (int i = 0; i < 3; ++i) {
    Unit one;
    const std::string before = text;
    if (!take_one(text, one)) break;
    if (text.empty()) {  // a unit of nothing
      text = before;
      break;
    }
    unit.percent |= one.percent;
    if (!one.name.empty()) unit.name = one.name + (unit.name.empty() ? "" : " " + unit.name);
  }
  return unit;
}

}  // namespace temper::rewards
