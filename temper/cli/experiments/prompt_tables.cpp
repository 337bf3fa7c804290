#include "temper/cli/experiments/prompt_tables.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
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

// The texts that a template writes around a user's message.
struct UserMarks {
  std::string before, behind;
};

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

Report::Table table_of_all(const rl::PairedPrompts& pairs, const std::string& name_a,
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
  Report::Table table =
      difference_table(str(name_b, " less ", name_a, ", paired by prompt, after step ", after),
                       differences, "prompts", name_a, name_b);
  const auto left_out = [&](const char* what, int64_t of_a, int64_t of_b) {
    if (of_a + of_b > 0)
      table.rows.push_back({what, "", std::to_string(of_a), std::to_string(of_b), "", "", ""});
  };
  left_out("left out: groups in one run only", pairs.groups_of_a, pairs.groups_of_b);
  left_out("left out: steps with rollouts in one run only", pairs.steps_of_a, pairs.steps_of_b);
  return table;
}

}  // namespace

Report::Table difference_table(std::string title, const std::vector<PairedDifference>& differences,
                               const std::string& pairs, const std::string& name_a,
                               const std::string& name_b) {
  Report::Table table{
      std::move(title),
      {"metric", pairs, name_a, name_b, "mean difference", "95 % interval", "if unpaired"},
      {}};
  const auto interval = [](double mean, double half_width) {
    if (std::isnan(half_width)) return std::string();
    return str(temper::to_text(mean - half_width), " to ", temper::to_text(mean + half_width));
  };
  for (const PairedDifference& d : differences)
    table.rows.push_back({d.metric, std::to_string(d.pairs), temper::to_text(d.mean_a),
                          temper::to_text(d.mean_b), temper::to_text(d.mean),
                          interval(d.mean, d.half_width), interval(d.mean, d.unpaired_half_width)});
  return table;
}

std::vector<Report::Table> prompt_tables(const RunFiles& a, const std::string& name_a,
                                         const RunFiles& b, const std::string& name_b,
                                         int64_t after) {
  const rl::PairedPrompts pairs = rl::pair_prompts(a.directory, b.directory, after);
  if (pairs.steps + pairs.steps_of_a + pairs.steps_of_b == 0) return {};
  std::vector<Report::Table> tables{table_of_all(pairs, name_a, name_b, after)};
  Report::Table most{str("prompts whose reward changed most, ", name_b, " less ", name_a),
                     {"groups", name_a, name_b, "sum of differences", "prompt"},
                     {}};
  const std::vector<rl::PairedPrompt> changed = rl::most_changed(pairs, kMostPrompts);
  if (changed.empty()) return tables;
  const PromptTexts texts = find_texts(a, b);
  for (const rl::PairedPrompt& prompt : changed)
    most.rows.push_back({std::to_string(prompt.times), temper::to_text(prompt.reward_a),
                         temper::to_text(prompt.reward_b), temper::to_text(prompt.change),
                         last_user_part(rl::tokens_of(prompt, a.directory), texts.tokenizer.get(),
                                        texts.chat.get())});
  tables.push_back(std::move(most));
  return tables;
}

std::string last_user_part(std::vector<int32_t> prompt, const Tokenizer* tokenizer,
                           const ChatTemplate* chat) {
  if (!tokenizer) {
    std::string ids = "token ids";
    for (size_t i = 0; i < std::min(prompt.size(), kMostIds); ++i) ids += str(" ", prompt[i]);
    return ids + (prompt.size() > kMostIds ? " ..." : "");
  }
  // A special token that is repeated stands for an image.
  const auto repeats = [&](int32_t a, int32_t b) {
    return a == b && tokenizer->decode({&a, 1}, true).empty();
  };
  prompt.erase(std::unique(prompt.begin(), prompt.end(), repeats), prompt.end());
  std::string text = tokenizer->decode(prompt);
  const std::optional<UserMarks> marks = chat ? user_marks(*chat) : std::nullopt;
  if (const size_t at = marks ? text.rfind(marks->before) : text.npos; at != text.npos) {
    text = text.substr(at + marks->before.size());
    text = text.substr(0, text.find(marks->behind));
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
