#include "temper/cli/data/show_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/metrics/format.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr const char *kTrainedColor = "\033[1;32m", *kFaint = "\033[2m", *kPlain = "\033[0m";

std::string text_of_run(const std::vector<int32_t>& tokens, size_t begin, size_t end,
                        const Tokenizer* tokenizer) {
  if (tokenizer) return tokenizer->decode(std::span(tokens).subspan(begin, end - begin));
  std::string text;
  for (size_t i = begin; i < end; ++i) text += (i == begin ? "" : " ") + std::to_string(tokens[i]);
  return text + " ";
}

void show_path(std::ostream& out, const checks::ShownPath& path, const Tokenizer* tokenizer,
               bool terminal) {
  for (size_t begin = 0; begin < path.tokens.size();) {
    size_t end = begin;
    while (end < path.tokens.size() && path.trained[end] == path.trained[begin]) ++end;
    const bool trained = path.trained[begin];
    const std::string text = printable(text_of_run(path.tokens, begin, end, tokenizer));
    if (terminal)
      out << (trained ? kTrainedColor : kFaint) << text << kPlain;
    else
      out << (trained ? "⟦" : "") << text << (trained ? "⟧" : "");
    begin = end;
  }
  out << "\n";
}

}  // namespace

void show_row(std::ostream& out, const checks::ShownRow& row, const Tokenizer* tokenizer,
              bool terminal) {
  for (const checks::ShownPath& path : row.paths) {
    const auto trained = std::count(path.trained.begin(), path.trained.end(), true);
    out << "\n"
        << printable_line(row.where) << (path.name.empty() ? "" : ", " + path.name) << ": "
        << format_count(static_cast<double>(path.tokens.size())) << " tokens, "
        << format_count(static_cast<double>(trained)) << " trained"
        << (terminal ? " (green)" : " (between ⟦ and ⟧)") << "\n";
    show_path(out, path, tokenizer, terminal);
  }
  out << std::flush;
}

Json json_of_row(const checks::ShownRow& row, const Tokenizer* tokenizer) {
  Json out{{"where", row.where}, {"paths", Json::array()}};
  for (const checks::ShownPath& path : row.paths) {
    Json item{{"name", path.name}, {"tokens", path.tokens}, {"trained", Json::array()}};
    for (const bool trained : path.trained) item["trained"].push_back(trained ? 1 : 0);
    if (tokenizer) item["text"] = tokenizer->decode(path.tokens);
    out["paths"].push_back(std::move(item));
  }
  return out;
}

}  // namespace temper::cli
