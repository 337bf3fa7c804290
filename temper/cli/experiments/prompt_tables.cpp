#include "temper/cli/experiments/prompt_tables.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/models/files/load.h"
#include "temper/rl/rollout/paired_prompts.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr size_t kMostPrompts = 10;
constexpr size_t kShownText = 80;  // bytes of a prompt's beginning, and of its end
constexpr size_t kMostIds = 20;

std::string shared_end_of(const std::string& a, const std::string& b) {
  const auto [end, _] = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return {end.base(), a.end()};
}

std::string shared_beginning_of(const std::string& a, const std::string& b) {
  return {a.begin(), std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first};
}

// What is the same around messages in different places of two conversations made up for that.
std::optional<UserMarks> user_marks(const ChatTemplate& chat) {
  const std::string first = "temperfirst", last = "temperlast";
  const auto message = [](const char* role, const std::string& text) {
    return Json{{"role", role}, {"content", text}};
  };
  try {
    const std::string alone = chat.render(Json::array({message("user", last)}), {}, true),
                      later = chat.render(
                          Json::array({message("user", first), message("assistant", "said"),
                                       message("user", last)}),
                          {}, true);
    const size_t in_alone = alone.rfind(last), in_later = later.rfind(last),
                 in_first = later.find(first);
    if (in_alone == alone.npos || in_later == later.npos || in_first == later.npos) return {};
    UserMarks marks{shared_end_of(alone.substr(0, in_alone), later.substr(0, in_later)),
                    shared_beginning_of(alone.substr(in_alone + last.size()),
                                        later.substr(in_first + first.size()))};
    const auto is_blank = [](const std::string& text) {
      return text.find_first_not_of(" \n\t") == text.npos;
    };
    if (is_blank(marks.before) || is_blank(marks.behind)) return {};
    return marks;
  } catch (const Error&) {  // a template of other conversations
    return {};
  }
}

struct PromptTexts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;
};

// What the run made its prompts with, or as much of that as is here.
PromptTexts find_texts(const RunFiles& a, const RunFiles& b) {
  PromptTexts found;
  const auto look = [&](const auto& directory_of) {
    if (found.tokenizer) return;
    try {
      const std::string directory = directory_of();
      found.tokenizer = Tokenizer::load_directory(directory);
      if (found.tokenizer) found.chat = ChatTemplate::find(directory);
    } catch (const Error&) {  // it has moved: there are the next one, and the ids
    }
  };
  for (const RunFiles* run : {&b, &a}) look([&] { return run->directory + "/final"; });
  for (const char* key : {"model.tokenizer", "model.path"})
    if (const YamlNode* const named = find_key(b.config, key))
      look([&] { return models::resolve_model_path(named->text); });
  return found;
}

PairedTable table_of_all(const rl::PairedPrompts& pairs, const std::string& name_a,
                         const std::string& name_b, int64_t after) {
  std::vector<std::pair<double, double>> rewards, lengths;
  for (const rl::PairedPrompt& prompt : pairs.prompts) {
    rewards.emplace_back(prompt.reward_a, prompt.reward_b);
    lengths.emplace_back(prompt.length_a, prompt.length_b);
  }
  std::vector<PairedDifference> differences;
  if (!rewards.empty())
    differences = {paired_difference("reward", rewards),
                   paired_difference("completion length (tokens)", lengths)};
  PairedTable table =
      difference_table(str(name_b, " less ", name_a, ", paired by prompt, after step ", after),
                       differences, "prompts", name_a, name_b);
  const auto left_out = [&](const char* what, int64_t rl::LeftOut::* count) {
    const int64_t of_a = pairs.of_a.*count, of_b = pairs.of_b.*count;
    if (of_a + of_b > 0)
      table.add_to_both({what, "", std::to_string(of_a), std::to_string(of_b), "", "", ""});
  };
  left_out("left out: groups in one run only", &rl::LeftOut::groups);
  left_out("left out: steps with rollouts in one run only", &rl::LeftOut::steps);
  left_out("left out: lines that are no rollouts", &rl::LeftOut::lines);
  left_out("left out: ends of damaged files", &rl::LeftOut::ends);
  if (!differences.empty())
    table.add_to_both({"intervals: Student's t, of prompts that are independent of each other"});
  return table;
}

}  // namespace

ComparedNumbers::ComparedNumbers(const std::vector<double>& differences) {
  constexpr int kDigits = 6;
  for (const double difference : differences) {
    if (difference == 0 || !std::isfinite(difference)) continue;
    const int place = static_cast<int>(std::floor(std::log10(std::abs(difference)))) + 1 - kDigits;
    place_ = known_ ? std::min(place_, place) : place;
    known_ = true;
  }
}

std::string ComparedNumbers::operator()(double value) const {
  constexpr int kMostDigits = 15;                // a double has no more
  constexpr double kSmall = 1e-4, kLarge = 1e9;  // within, no exponent is needed
  if (!known_ || !std::isfinite(value)) return temper::to_text(value);
  const double size = std::abs(value);
  if (size < std::pow(10.0, place_) / 2) return "0";
  const int first = static_cast<int>(std::floor(std::log10(size)));
  const int digits = std::clamp(first - place_ + 1, 1, kMostDigits);
  char buffer[64];
  if (size < kSmall || size >= kLarge)
    std::snprintf(buffer, sizeof buffer, "%.*g", digits, value);
  else
    std::snprintf(buffer, sizeof buffer, "%.*f", std::max(digits - 1 - first, 0), value);
  return buffer;
}

PairedTable difference_table(const std::string& title,
                             const std::vector<PairedDifference>& differences,
                             const std::string& pairs, const std::string& name_a,
                             const std::string& name_b, bool are_in_order) {
  Report::Table empty{
      title,
      {"metric", pairs, name_a, name_b, "mean difference", "95 % interval", "if unpaired"},
      {}};
  if (are_in_order) empty.header.push_back("if autocorrelated");
  PairedTable table{empty, empty};
  int64_t constant = 0;
  for (const PairedDifference& d : differences) {
    const auto row = [&](const auto& text) {
      const auto interval = [&](double half_width) {
        return std::isnan(half_width)
                   ? std::string()
                   : str(text(d.mean - half_width), " to ", text(d.mean + half_width));
      };
      std::vector<std::string> cells{d.metric,
                                     std::to_string(d.pairs),
                                     text(d.mean_a),
                                     text(d.mean_b),
                                     text(d.mean),
                                     interval(d.half_width),
                                     interval(d.unpaired_half_width)};
      if (are_in_order) cells.push_back(interval(d.series_half_width));
      return cells;
    };
    table.whole.rows.push_back(row([](double value) { return temper::to_text(value); }));
    if (d.is_constant) {
      ++constant;
      continue;
    }
    // Digits far below the interval's width say nothing.
    const double least = std::max(std::abs(d.mean), d.half_width / 100);
    table.brief.rows.push_back(row(ComparedNumbers({least, d.half_width})));
  }
  if (constant > 0)
    table.brief.rows.push_back({str("left out: ", constant, constant == 1 ? " metric" : " metrics",
                                    " with equal values in both runs, or one value in each")});
  return table;
}

std::vector<PairedTable> prompt_tables(const RunFiles& a, const std::string& name_a,
                                       const RunFiles& b, const std::string& name_b, int64_t after,
                                       std::vector<std::string>& problems) {
  const rl::PairedPrompts pairs = rl::pair_prompts(a.directory, b.directory, after);
  problems.insert(problems.end(), pairs.problems.begin(), pairs.problems.end());
  if (pairs.steps + pairs.of_a.steps + pairs.of_b.steps == 0) return {};
  std::vector<PairedTable> tables{table_of_all(pairs, name_a, name_b, after)};
  const std::vector<rl::PairedPrompt> changed = rl::most_changed(pairs, kMostPrompts);
  if (changed.empty()) return tables;
  const Report::Table empty{str("prompts whose reward changed most, ", name_b, " less ", name_a),
                            {"groups", name_a, name_b, "sum of differences", "prompt"},
                            {}};
  PairedTable most{empty, empty};
  const PromptTexts texts = find_texts(a, b);
  const PromptNames name_of(texts.tokenizer, texts.chat);
  std::vector<std::vector<int32_t>> tokens = rl::tokens_of(changed, a.directory);
  for (size_t i = 0; i < changed.size(); ++i) {
    const rl::PairedPrompt& p = changed[i];
    const std::string name = name_of(std::move(tokens[i]));
    const auto row = [&](const auto& text) -> std::vector<std::string> {
      return {std::to_string(p.times), text(p.reward_a), text(p.reward_b), text(p.change), name};
    };
    most.whole.rows.push_back(row([](double value) { return temper::to_text(value); }));
    most.brief.rows.push_back(row(ComparedNumbers({p.change / static_cast<double>(p.times)})));
  }
  tables.push_back(std::move(most));
  return tables;
}

PromptNames::PromptNames(std::shared_ptr<const Tokenizer> tokenizer,
                         const std::shared_ptr<const ChatTemplate>& chat)
    : tokenizer_(std::move(tokenizer)) {
  if (chat) marks_ = user_marks(*chat);
}

std::string PromptNames::operator()(std::vector<int32_t> prompt) const {
  if (prompt.empty()) return "(not known)";
  if (!tokenizer_) {
    std::string ids = "token ids";
    for (size_t i = 0; i < std::min(prompt.size(), kMostIds); ++i) ids += str(" ", prompt[i]);
    return ids + (prompt.size() > kMostIds ? " ..." : "");
  }
  // A special token that is repeated stands for an image.
  const auto repeats = [&](int32_t a, int32_t b) {
    return a == b && tokenizer_->decode({&a, 1}, true).empty();
  };
  prompt.erase(std::unique(prompt.begin(), prompt.end(), repeats), prompt.end());
  std::string text = tokenizer_->decode(prompt);
  if (const size_t at = marks_ ? text.rfind(marks_->before) : text.npos; at != text.npos) {
    text = text.substr(at + marks_->before.size());
    text = text.substr(0, text.find(marks_->behind));
  }
  if (text.size() > 2 * kShownText) {
    std::string_view end = std::string_view(text).substr(text.size() - kShownText);
    while (!end.empty() && (static_cast<unsigned char>(end[0]) & 0xC0) == 0x80)
      end.remove_prefix(1);
    text = repair_utf8(text.substr(0, kShownText), true) + " ... " + std::string(end);
  }
  return printable_line(text);
}

}  // namespace temper::cli
