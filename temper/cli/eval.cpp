// Sampled completions of a file's prompts, judged by a reward.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "temper/base/error.h"
#include "temper/cli/episodes.h"
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
        "With --environment or --tools a completion is an episode of several turns, and its reward "
        "is the environment's plus that of --reward.\n"
        "example: temper eval --model runs/x/final --input test.jsonl --environment run.yaml\n"
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
    environment_.add_to(app);
  }

  int run() override {
    check<ConfigError>(model_.named.empty() || !(pairs_ || perplexity_.on),
                       "temper eval: --adapter NAME=DIR is for rows that are sampled; --pairs and "
                       "--perplexity take one --adapter DIR");
    if (pairs_) return rank_pairs(model_, input_, json_);
    if (perplexity_.on) return print_perplexity(model_, input_, perplexity_, json_);
    const bool has_reward = !reward_.name.empty() || !reward_.command.empty() || reward_.model;
    check<ConfigError>(has_reward || environment_.any(),
                       "temper eval: --reward, --reward-command, --reward-model, --environment, "
                       "--pairs or --perplexity is required; temper list rewards names rewards");
    environment_.check_sampled(batch_);
    if (environment_.any()) {
      const env::EnvironmentSection section = environment_.section();
      check<ConfigError>(has_reward || !section.name.empty() || !section.command.empty(),
                         "temper eval: tools give no rewards; --reward, --reward-command or "
                         "--reward-model is required with them");
    }
    if (reward_.command.size() == 1) reward_.command = split_command(reward_.command[0]);
    tokenizer_ = find_tokenizer(model_.model);
    models::HfConfig::load(model_.model);  // that it is a model at all, before what it lacks
    const std::span<const rewards::RewardSection> asked(&reward_, has_reward ? 1 : 0);
    rewards::RewardSet rewards(asked, tokenizer_ != nullptr);
    rl::check_reward_models(asked, tokenizer_.get(),
                            models::HfConfig::load(model_.model).integer("vocab_size", 0));
    InputRows input(input_);
    const std::vector<rewards::Sample> samples = complete(input);
    check<ConfigError>(has_reward || told_reward_, environment_.environment,
                       ": the environment told no reward; --reward judges its episodes");
    let_interrupts_end();  // there is nothing to keep while a reward thinks
    std::vector<rewards::RewardResult> judged = rewards.judge(samples);
    for (size_t i = 0; i < environment_rewards_.size(); ++i)
      judged[i].reward += environment_rewards_[i];
    EvalOutcome outcome = summarize(samples, judged, batch_.num_samples, threshold_);
    outcome.failures = rewards.failures().all();
    outcome.episodes = episodes_;
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
    const std::vector<int> adapters = adapters_of(model_, rows);
    std::vector<rewards::Sample> samples;
    const auto add = [&](size_t index, const std::vector<int32_t>& prompt,
                         std::vector<int32_t> tokens, std::string text, bool stopped) {
      const data::PromptRow& row = rows[index];
      samples.push_back({row.fields, row.where, prompt, std::move(tokens),
                         tokenizer_ ? tokenizer_->decode(prompt, true) : "", std::move(text),
                         tokenizer_ != nullptr, !stopped, sampling_.options.max_new_tokens});
    };
    try {
      if (environment_.any())
        complete_episodes(
            {*model, model_, environment_, sampling_, batch_, tokenizer_, rows, adapters}, add);
      else
        sample(*model, rows, sampling_, batch_, tokenizer_, adapters, [&](generate::Completion c) {
          const size_t index = static_cast<size_t>(c.index);
          add(index, rows[index].tokens, std::move(c.tokens), std::move(c.text), c.stopped);
        });
    } catch (const Interrupted&) {
      throw RunError(temper::str("stopped after ", samples.size(), " of ",
                                 static_cast<int64_t>(rows.size()) * batch_.num_samples,
                                 " completions"));
    }
    return samples;
  }

  // The environment's reward of an episode that it failed is 0, also where on_failure is drop.
  template <class Add>
  void complete_episodes(const EpisodeInputs& inputs, const Add& add) {
    told_reward_ = !environment_.section().name.empty();  // a built-in one
    double turns = 0;
    const EpisodeCounts counts =
        sample_episodes(inputs, [&](size_t row, std::vector<rl::SampledEpisode> episodes) {
          for (rl::SampledEpisode& e : episodes) {
            told_reward_ = told_reward_ || e.rewarded;
            environment_rewards_.push_back(e.episode.reward);
            turns += static_cast<double>(e.episode.turns);
            add(row, e.prompt, std::move(e.completion.tokens), std::move(e.episode.text),
                e.episode.stopped);
          }
        });
    const double count = static_cast<double>(environment_rewards_.size());
    episodes_ = {.turns = turns / count, .failures = counts.failures};
  }

  ModelFlags model_;
  InputFlags input_;
  SamplingFlags sampling_;
  BatchFlags batch_;
  EnvironmentFlags environment_;
  PerplexityFlags perplexity_;
  rewards::RewardSection reward_;
  double threshold_ = 1;
  int64_t shown_ = 3;
  bool json_ = false, pairs_ = false;

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool told_reward_ = false;                 // by the environment
  std::vector<double> environment_rewards_;  // by sample; empty: no environment
  std::optional<EpisodesOutcome> episodes_;
};

}  // namespace

std::unique_ptr<Command> eval_command() { return std::make_unique<Eval>(); }

}  // namespace temper::cli
