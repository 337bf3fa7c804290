#include "temper/env/grid_actions.h"

#include <cctype>

#include "temper/base/error.h"

namespace temper::env {
namespace {

constexpr std::string_view kOpen = "<answer>", kClose = "</answer>";
constexpr size_t kLargestGrid = 64;

// The index of the move; kMoves.size(): it is none.
size_t move_named(const std::string& word) {
  for (size_t m = 0; m < kMoves.size(); ++m) {
    const std::string_view name = kMoves[m].name;
    bool same = name.size() == word.size();
    for (size_t i = 0; same && i < name.size(); ++i)
      same = std::tolower(static_cast<unsigned char>(word[i])) == std::tolower(name[i]);
    if (same) return m;
  }
  return kMoves.size();
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (letter && !inside) words.emplace_back();
    if (letter) words.back() += c;
    inside = letter;
  }
  return words;
}

}  // namespace

std::vector<size_t> moves_of(const std::string& completion) {
  const size_t open = completion.rfind(kOpen);
  const size_t close = open == std::string::npos ? open : completion.find(kClose, open);
  std::vector<size_t> moves;
  if (close == std::string::npos) {
    for (const std::string& word : words_of(completion))
      if (const size_t m = move_named(word); m < kMoves.size()) return {m};
    return {};
  }
  const size_t begin = open + kOpen.size();
  for (const std::string& word :
       words_of(std::string_view(completion).substr(begin, close - begin))) {
    const size_t m = move_named(word);
    if (m == kMoves.size()) return {};
    if (moves.size() < kMostMoves) moves.push_back(m);
  }
  return moves;
}

int64_t RowFields::whole(const char* field, int64_t otherwise, int64_t least, int64_t most) const {
  const Json value = row.value(field, Json(otherwise));
  check<DataError>(value.is_number_integer() && value >= least && value <= most, "the environment ",
                   environment, " reads the field `", field, "`, a whole number from ", least,
                   " to ", most, "; found ", dump_json(value));
  return value.get<int64_t>();
}

double RowFields::number(const char* field, double otherwise, double least, double most) const {
  const Json value = row.value(field, Json(otherwise));
  check<DataError>(value.is_number() && value >= least && value <= most, "the environment ",
                   environment, " reads the field `", field, "`, a number from ", least, " to ",
                   most, "; found ", dump_json(value));
  return value.get<double>();
}

bool RowFields::truth(const char* field, bool otherwise) const {
  const Json value = row.value(field, Json(otherwise));
  check<DataError>(value.is_boolean(), "the environment ", environment, " reads the field `", field,
                   "`, true or false; found ", dump_json(value));
  return value.get<bool>();
}

std::vector<std::string> RowFields::grid(const char* field, const std::string& known) const {
  const Json value = row.value(field, Json::array());
  std::vector<std::string> rows;
  bool good = value.is_array() && value.size() <= kLargestGrid;
  for (size_t r = 0; good && r < value.size(); ++r) {
    good = value[r].is_string();
    if (!good) break;
    rows.push_back(value[r].get<std::string>());
    good = !rows[r].empty() && rows[r].size() <= kLargestGrid && rows[r].size() == rows[0].size() &&
           rows[r].find_first_not_of(known) == std::string::npos;
  }
  check<DataError>(good, "the environment ", environment, " reads the field `", field,
                   "`, texts of one length, at most ", kLargestGrid, ", of the characters ", known);
  return rows;
}

void show_grid(Observation& observation, const std::string& before, const std::string& grid) {
  observation.messages.push_back({{"role", "user"}, {"content", before + grid}});
}

}  // namespace temper::env
