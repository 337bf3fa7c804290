// Sampled completions of a file's prompts, judged by a reward.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/eval_outcome.h"
#include "temper/cli/eval_pairs.h"
#include "temper/cli/eval_perplexity.h"
#include "temper/cli/progress.h"
#include "temper/cli/work.h"
#include "temper/metrics/format.h"
#include "temper/models/hf_config.h"
#include "temper/rewards/reward.h"
#include "temper/rl/model_reward.h"

namespace temper::cli {
namespace {

class Eval : public Command {
 public:
  void declare(CLI::App& app) override {
    app.description(
        "Samples completions of prompts and judges them: mean reward, pass@1 and pass@k with 95 % "
        "intervals over the prompts.\n"
        "example: temper eval --model runs/x/final --input test.jsonl --columns prompt=question "
        "--reward gsm8k --num-samples 8\n"
        "With --pairs the rows are pairs {prompt, chosen, rejected}, and the model ranks them: a "
        "reward model by its scalars, a language model by mean log-probabilities.\n"
        "example: temper eval --model runs/reward/final --input pairs.jsonl --pairs\n"
        "With --perplexity the rows are those of SFT, and their supervised tokens are what the "
        "model is to predict.\n"
        "example: temper eval --model DIR --input test.jsonl --perplexity");
    model_.add_to(app, true);
    input_.add_to(app, "prompt (text or messages), messages or tokens, and what the reward reads")
        ->required();
    app.add_option("--reward", reward_.name, "a built-in reward (temper list rewards)");
    app.add_option("--reward-model", reward_.model,
                   "directory of a reward model to use as the reward")
        ->excludes("--reward");
    app.add_flag("--pairs", pairs_,
                 "accuracy and margin on preference pairs {prompt, chosen, rejected}");
    CLI::Option* perplexity =
        app.add_flag("--perplexity", perplexity_.on,
                     "number of tokens, mean negative log-likelihood and perplexity of SFT rows");
    perplexity->excludes("--pairs", "--reward", "--reward-model");
    app.add_option(
           "--max-length", perplexity_.max_length,
           "with --perplexity: longer rows are truncated to this many tokens, as data.max_length")
        ->check(at_least_one())
        ->needs(perplexity);
    app.add_option("--train-on", perplexity_.train_on,
                   "with --perplexity: the tokens that count, as data.train_on")
        ->check(CLI::IsMember({"auto", "all", "completion", "assistant"}))
        ->needs(perplexity);
    app.add_option("--reward-command", reward_.command,
                   "a program and its arguments as the reward, as in \"python3 reward.py\"; in "
                   "quotes it is split as a shell splits it, but nothing is expanded")
        ->expected(1, 100);
    app.add_option("--reward-field", reward_.field, "the row's field with the reference answer");
    app.add_option("--reward-pattern", reward_.pattern, "regular expression of the reward `regex`");
    app.add_option("--pass-threshold", threshold_,
                   "a completion passes if its reward is at least this")
        ->check(any_number());
    app.add_option("--show", shown_, "number of completions to print")->check(non_negative());
    app.add_flag("--json", json_, "print one JSON object and nothing else");
    sampling_.add_to(app);
    batch_.add_to(app);
  }

  int run() override {
    check<ConfigError>(model_.named.empty() || !(pairs_ || perplexity_.on),
                       "temper eval: --adapter NAME=DIR is for rows that are sampled; --pairs and "
                       "--perplexity take one --adapter DIR");
    if (pairs_) return rank_pairs(model_, input_, json_);
    if (perplexity_.on) return print_perplexity(model_, input_, perplexity_, json_);
    check<ConfigError>(!reward_.name.empty() || !reward_.command.empty() || reward_.model,
                       "temper eval: --reward, --reward-command, --reward-model, --pairs or "
                       "--perplexity is required; temper list rewards names rewards");
    if (reward_.command.size() == 1) reward_.command = split_command(reward_.command[0]);
    tokenizer_ = find_tokenizer(model_.model);
    models::HfConfig::load(model_.model);  // that it is a model at all, before what it lacks
    rewards::RewardSet rewards({&reward_, 1}, tokenizer_ != nullptr);
    rl::check_reward_models({&reward_, 1}, tokenizer_.get(),
                            models::HfConfig::load(model_.model).integer("vocab_size", 0));
    InputRows input(input_);
    const std::vector<rewards::Sample> samples = complete(input);
    let_interrupts_end();  // there is nothing to keep while a reward thinks
    const std::vector<rewards::RewardResult> judged = rewards.judge(samples);
    EvalOutcome outcome = summarize(samples, judged, batch_.num_samples, threshold_);
    outcome.failures = rewards.failures().all();
    if (outcome.failures > 0)
      std::cerr << "warning: the first completion whose reward failed: " << rewards.first_failure()
                << std::endl;
    if (json_) {
      std::cout << to_json(outcome).dump() << "\n";
      return 0;
    }
    for (size_t i = 0; i < samples.size() && i < static_cast<size_t>(shown_); ++i)
      std::cout << "--- reward " << format_brief(judged[i].reward) << ", "
                << samples[i].completion_tokens.size() << " tokens\n"
                << samples[i].completion << "\n";
    std::cout << "\n" << to_text(outcome);
    return 0;
  }

 private:
  std::vector<rewards::Sample> complete(InputRows& input) {
    const auto model = load(model_);
    PromptReader reader(model_, tokenizer_, model->vocab_size);
    const std::vector<data::PromptRow> rows = read_all(input, reader);
    check<DataError>(!rows.empty(), input_.input, ": no rows");
    warn_beyond_positions(model_.model, rows, sampling_.options.max_new_tokens);
    std::vector<rewards::Sample> samples;
    try {
      sample(*model, rows, sampling_, batch_, tokenizer_, adapters_of(model_, rows),
             [&](generate::Completion c) {
               const data::PromptRow& row = rows[static_cast<size_t>(c.index)];
               samples.push_back({row.fields, row.where, row.tokens, std::move(c.tokens),
                                  tokenizer_ ? tokenizer_->decode(row.tokens, true) : "",
                                  std::move(c.text), tokenizer_ != nullptr, !c.stopped,
                                  sampling_.options.max_new_tokens});
             });
    } catch (const Interrupted&) {
      throw RunError(temper::str("stopped after ", samples.size(), " of ",
                                 static_cast<int64_t>(rows.size()) * batch_.num_samples,
                                 " completions"));
    }
    return samples;
  }

  ModelFlags model_;
  InputFlags input_;
  SamplingFlags sampling_;
  BatchFlags batch_;
  PerplexityFlags perplexity_;
  rewards::RewardSection reward_;
  double threshold_ = 1;
  int64_t shown_ = 3;
  bool json_ = false, pairs_ = false;

  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<Command> eval_command() { return std::make_unique<Eval>(); }

}  // namespace temper::cli
