#include "temper/rl/rollout/model_reward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/models/vision/image_rows.h"
#include "temper/rl/scalar_directory.h"

namespace temper::rl {
namespace {

// most tokens of a forward pass; a longer completion has a pass of its own
constexpr int64_t kMostTokens = 8192;

std::unique_ptr<rewards::Reward> make_model_reward(const rewards::RewardSection& section) {
  check<ConfigError>(section.model.has_value(), "rewards: ", section.label(),
                     ": expected `model`, the directory of a reward model");
  return std::make_unique<ModelReward>(*section.model);
}

[[maybe_unused]] const bool kRegistered =
    (rewards::register_reward({"model", make_model_reward,
                               "the scalar of the reward model in `model` at the last token"}),
     true);

// What the model reads of a sample: its prompt, what follows, and the images of each.
struct Read {
  std::vector<int32_t> prompt, completion;
  ImageSpans of_prompt, of_completion;
  bool same_prompt(const Read& other) const {
    return prompt == other.prompt && of_prompt == other.of_prompt;
  }
};

void erase_images(std::vector<int32_t>& tokens, const ImageSpans& images) {
  for (size_t i = images.size(); i-- > 0;) {
    const auto at = tokens.begin() + static_cast<ptrdiff_t>(images[i].begin);
    tokens.erase(at, at + static_cast<ptrdiff_t>(images[i].count));
  }
}

Read read_sample(const rewards::Sample& sample, bool sees) {
  Read read{sample.prompt_tokens, sample.completion_tokens, {}, {}};
  const int64_t begin = std::ssize(read.prompt), end = begin + std::ssize(read.completion);
  read.of_prompt = spans_within(sample.images, 0, begin);
  read.of_completion = spans_within(sample.images, begin, end);
  if (!sees) {
    erase_images(read.prompt, std::exchange(read.of_prompt, {}));
    erase_images(read.completion, std::exchange(read.of_completion, {}));
  }
  read.completion.insert(read.completion.end(), sample.closing_tokens.begin(),
                         sample.closing_tokens.end());
  return read;
}

}  // namespace

ModelReward::ModelReward(const std::string& directory)
    : directory_(directory),
      model_(load_scalar_directory(find_scalar_directory(directory, "rewards: ", "reward model"))
                 .model) {}

std::vector<rewards::Verdict> ModelReward::judge(std::span<const rewards::Sample> samples) {
  const at::NoGradGuard no_grad;
  std::vector<rewards::Verdict> verdicts;
  const int64_t vocabulary = model_->config().vocab_size;
  std::vector<Read> all;
  for (const rewards::Sample& sample : samples)
    all.push_back(read_sample(sample, model_->vision != nullptr));
  for (size_t first = 0; first < samples.size();) {
    const auto forest = std::make_shared<Forest>();
    std::vector<int64_t> last;  // last token of each sample
    const std::vector<int32_t>& prompt = all[first].prompt;
    const std::vector<ExternalRows> of_prompt = models::external_rows(all[first].of_prompt);
    if (!prompt.empty()) forest->add_root(prompt, 0, of_prompt);
    size_t end = first;
    for (; end < samples.size() && all[end].same_prompt(all[first]); ++end) {
      const std::vector<int32_t>& tokens = all[end].completion;
      const std::vector<ExternalRows> rows = models::external_rows(all[end].of_completion);
      const int64_t more = static_cast<int64_t>(tokens.size());
      if (end > first && forest->num_tokens() + more > kMostTokens) break;
      check(!prompt.empty() || !tokens.empty(), samples[end].where,
            ": neither prompt nor completion has a token");
      if (!tokens.empty())
        prompt.empty() ? forest->add_root(tokens, 0, rows) : forest->add_child(0, tokens, rows);
      last.push_back(tokens.empty() ? static_cast<int64_t>(prompt.size()) - 1
                                    : forest->num_tokens() - 1);
    }
    for (const int32_t token : forest->tokens)
      check(token < vocabulary, "the reward model has no token ", token, ", only ", vocabulary);
    const at::Tensor values = model_->values(model_->forward({.forest = forest}), last);
    for (int64_t i = 0; i < values.size(0); ++i)
      verdicts.push_back(rewards::valued(values.const_data_ptr<float>()[i]));
    first = end;
  }
  return verdicts;
}

void ModelReward::check_tokens(const Tokenizer* tokenizer, int64_t vocabulary) const {
  check_reads_tokens(directory_, tokenizer, vocabulary, "rewards: the reward model " + directory_);
}

void check_reward_models(std::span<const rewards::RewardSection> sections,
                         const Tokenizer* tokenizer, int64_t vocabulary) {
  for (const rewards::RewardSection& section : sections) {
    if (!section.model) continue;
    check_reads_tokens(*section.model, tokenizer, vocabulary,
                       str("rewards: ", section.label(), ": the reward model ", *section.model));
  }
}

}  // namespace temper::rl
