#include "temper/rl/rollout/model_judge.h"

#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::rl {
namespace {

constexpr const char* kKey = "rewards: judge.model";

std::unique_ptr<rewards::Reward> make_model_judge(const rewards::RewardSection& section) {
  check<ConfigError>(section.judge.model.has_value(), "rewards: ", section.label(),
                     ": expected `judge`, as in {judge: {model: DIR, prompt: 'Rate from 0 to 10: "
                     "{completion}'}}");
  return std::make_unique<ModelJudge>(section);
}

[[maybe_unused]] const bool kJudgeIsRegistered =
    (rewards::register_reward({"judge", make_model_judge,
                               "a number in the answer of the language model that `judge` names"}),
     true);

}  // namespace

ModelJudge::ModelJudge(const rewards::RewardSection& section)
    : Judge(section),
      directory_(models::named_model(*section.judge.model, kKey)),
      tokenizer_(Tokenizer::load_directory(directory_)) {
  models::HfConfig::load(directory_);  // that it is a model at all, before what it lacks
  check<ConfigError>(tokenizer_ != nullptr, kKey, ": ", directory_,
                     " has no tokenizer, and a judge reads and writes text");
  chat_ = ChatTemplate::find(directory_, {});
}

std::vector<int32_t> ModelJudge::tokens_of(const std::string& question) const {
  // A completion that spells a control token does not end the question.
  constexpr Tokenizer::Quotes kQuotes = Tokenizer::Quotes::kMarked;
  const Json asked = quoted(*tokenizer_, kQuotes, question);
  if (!chat_)
    return encode_beginning(*tokenizer_, asked.get_ref<const std::string&>(), SIZE_MAX, kQuotes);
  const Json messages = Json::array({{{"role", "user"}, {"content", asked}}});
  return tokenizer_->encode_first(chat_->render(messages, Json(), true), SIZE_MAX, kQuotes);
}

void ModelJudge::ask(const std::vector<std::string>& questions, const Take& take) {
  const at::NoGradGuard no_grad;
  if (!engine_) {
    model_ = models::load_model(directory_);
    engine_ = std::make_unique<generate::Engine>(*model_, generate::EngineOptions{}, tokenizer_);
  }
  generate::GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = section().judge.max_new_tokens;
  for (size_t i = 0; i < questions.size(); ++i) {
    try {
      engine_->submit({.index = static_cast<int64_t>(i),
                       .prompt = tokens_of(questions[i]),
                       .num_samples = 1,
                       .options = options});
    } catch (const DataError& e) {  // no text, or one that cannot be rendered
      take(i, rewards::Verdict{rewards::Verdict::Kind::kMalformed, 0,
                               temper::str("the judge cannot be asked: ", e.what())});
    }
  }
  engine_->run([&](generate::Completion answer) {
    take(static_cast<size_t>(answer.index), std::move(answer.text));
  });
  engine_->release_memory();
}

}  // namespace temper::rl
