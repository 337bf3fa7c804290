// Rewards for the form of a completion: its format, its length, repetition, JSON.
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/rewards/answer.h"
#include "temper/rewards/reward.h"

namespace temper::rewards {
namespace {

size_t count(std::string_view text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size()))
    ++n;
  return n;
}

// DeepSeek-R1's format (arXiv 2501.12948, table 1): each tag once, in this order, nothing outside.
struct Format : SimpleReward {
  double score(const Sample& sample) const override {
    const std::string_view text = trimmed(sample.completion);
    for (const std::string_view tag : {"<think>", "</think>", "<answer>", "</answer>"})
      if (count(text, tag) != 1) return 0;
    const size_t close = text.find("</think>"), open = text.find("<answer>");
    if (!text.starts_with("<think>") || !text.ends_with("</answer>") || open < close) return 0;
    return trimmed(text.substr(close + 8, open - close - 8)).empty() ? 1 : 0;
  }
};

struct Length : SimpleReward {
  bool needs_text() const override { return false; }
  double score(const Sample& sample) const override {
    const double most = static_cast<double>(std::max<int64_t>(sample.max_new_tokens, 1));
    return -static_cast<double>(sample.completion_tokens.size()) / most;
  }
};

// The repetition penalty of Yeo et al., "Demystifying long chain-of-thought", arXiv 2502.03373,
// with n = 3 and a largest penalty of 1.
struct Repetition : SimpleReward {
  double score(const Sample& sample) const override {
    std::vector<std::string> words;
    std::string word;
    for (const char c : sample.completion + " ") {
      if (!std::isspace(static_cast<unsigned char>(c))) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (!word.empty()) {
        words.push_back(std::move(word));
        word.clear();
      }
    }
    if (words.size() < 3) return 0;
    std::set<std::string> seen;
    const size_t total = words.size() - 2;
    for (size_t i = 0; i < total; ++i)
      seen.insert(words[i] + ' ' + words[i + 1] + ' ' + words[i + 2]);
    return static_cast<double>(seen.size()) / static_cast<double>(total) - 1;
  }
};

struct JsonValid : SimpleReward {
  double score(const Sample& sample) const override {
    std::string_view text = trimmed(sample.completion);
    if (text.starts_with("```") && text.ends_with("```") && text.size() >= 6) {
      const size_t line = text.find('\n');
      if (line == std::string_view::npos) return 0;
      text = trimmed(text.substr(line, text.size() - 3 - line));
    }
    try {
      const Json value = parse_json(text, "completion");
      return 1;
    } catch (const DataError&) {
      return 0;
    }
  }
};

std::unique_ptr<Reward> make_format(const RewardSection&) { return std::make_unique<Format>(); }
std::unique_ptr<Reward> make_length(const RewardSection&) { return std::make_unique<Length>(); }
std::unique_ptr<Reward> make_repetition(const RewardSection&) {
  return std::make_unique<Repetition>();
}
std::unique_ptr<Reward> make_json(const RewardSection&) { return std::make_unique<JsonValid>(); }

const Registered<MakeReward> kFormatReward(
    &registry, {"format", &make_format,
                "1 where the completion is <think>...</think><answer>...</answer> and nothing else",
                "DeepSeek-AI (R1), arXiv 2501.12948, table 1"});
const Registered<MakeReward> kLengthReward(
    &registry,
    {"length", &make_length,
     "the completion's length as a share of rollout.max_new_tokens, negative: a penalty"});
const Registered<MakeReward> kRepetitionReward(
    &registry,
    {"repetition", &make_repetition,
     "the share of the completion's word trigrams that occurred before, negative: a penalty",
     "Yeo et al., arXiv 2502.03373"});
const Registered<MakeReward> kJsonReward(
    &registry,
    {"json", &make_json, "1 where the completion is one JSON value, also in a code block"});

}  // namespace
}  // namespace temper::rewards
