// Sampled completions of a file's prompts, judged by a reward.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/cli/eval/episodes.h"
#include "temper/cli/eval/eval_outcome.h"
#include "temper/cli/eval/eval_output.h"
#include "temper/cli/eval/eval_rows.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/metrics/format.h"
#include "temper/models/family.h"
#include "temper/models/files/hf_config.h"
#include "temper/rewards/closings.h"
#include "temper/rewards/reward.h"
#include "temper/rl/episodes/live_episode.h"
#include "temper/rl/rollout/model_reward.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

std::vector<std::string> reward_names() {
  std::vector<std::string> names;
  for (const rewards::RewardEntry& reward : rewards::registry().list())
    names.push_back(reward.name);
  return names;
}

class Eval : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Samples completions of prompts and judges them: mean reward, pass@1 and pass@k with 95 % "
        "intervals over the prompts.\n"
        "example: temper eval --model runs/x/final --input test.jsonl --columns prompt=question "
        "--reward gsm8k --num-samples 8\n"
        "With --environment or --tools a completion is a multi-turn episode. Its reward is the sum "
        "of the environment's and --reward's, and --pass-threshold applies to that sum. Where the "
        "environment fails, its part is 0, or, with on_failure: drop, the episode is left out. "
        "Built-in rewards read the whole episode, the environment's messages included.\n"
        "example: temper eval --model runs/x/final --input test.jsonl --environment run.yaml\n"
        "With --pairs the rows are pairs {prompt, chosen, rejected}, and the model ranks them: a "
        "reward model by its scalars, a language model by mean log-probabilities.\n"
        "example: temper eval --model runs/reward/final --input pairs.jsonl --pairs\n"
        "With --perplexity the rows are those of SFT, and their supervised tokens are what the "
        "model is to predict.\n"
        "example: temper eval --model DIR --input test.jsonl --perplexity");
    model_.add_to(f, true);
    add_template_date(f, model_.template_date);
    input_.add_to(f, "prompt (text or messages), messages or tokens, and what the reward reads",
                  required());
    input_.add_prompts_as(f);
    f.add("--reward", reward_.name, "a built-in reward (temper list rewards)").choices =
        reward_names();
    f.add("--reward-model", reward_.model, "directory of a reward model to use as the reward");
    f.excludes("--reward-model", {"--reward"});
    f.add("--pairs", pairs_, "accuracy and margin on preference pairs {prompt, chosen, rejected}");
    f.add("--perplexity", perplexity_.on,
          "number of tokens, mean negative log-likelihood and perplexity of SFT rows");
    f.excludes("--perplexity", {"--pairs", "--reward", "--reward-model"});
    f.add("--max-length", perplexity_.max_length,
          "with --perplexity: longer rows are truncated to this many tokens, as data.max_length",
          at_least(1));
    f.needs("--max-length", "--perplexity");
    f.add("--train-on", perplexity_.train_on,
          "with --perplexity: the tokens that count, as data.train_on");
    f.needs("--train-on", "--perplexity");
    f.add("--reward-command", reward_.command,
          "a program and its arguments as the reward, as in \"python3 reward.py\"; in quotes it is "
          "split as a shell splits it, but nothing is expanded")
        .several = true;
    f.excludes("--reward-command", {"--reward", "--reward-model"});
    f.add("--reward-field", reward_.field, "the row's field with the reference answer");
    f.add("--reward-pattern", reward_.pattern, "regular expression of the reward `regex`");
    f.add("--pass-threshold", threshold_, "a completion passes if its reward is at least this");
    f.add("--show", shown_, "number of completions to print", at_least(0));
    f.add("--json", json_, "print one JSON object and nothing else");
    f.add("--output", output_,
          "file of the completions with their rewards, as a run's rollouts/step-N.jsonl has them: "
          "for temper data pairs --rollouts and rl.replay");
    f.excludes("--output", {"--pairs", "--perplexity"});
    sampling_.add_to(f);
    batch_.add_to(f);
    environment_.add_to(f);
  }

  int run() override {
    check_choices();
    if (pairs_) return rank_pairs(model_, input_, json_);
    if (perplexity_.on) return print_perplexity(model_, input_, perplexity_, json_);
    if (environment_.any()) section_ = environment_.section();
    check<ConfigError>(has_reward() || !environment_.any() || !section_.name.empty() ||
                           !section_.command.empty() || !section_.openai.command.empty(),
                       "temper eval: tools alone give no reward; add --reward, --reward-command or "
                       "--reward-model");
    if (reward_.command.size() == 1) reward_.command = split_command(reward_.command[0]);
    tokenizer_ = find_tokenizer(model_.model);
    models::HfConfig::load(model_.model);  // that it is a model at all, before what it lacks
    const std::span<const rewards::RewardSection> asked(&reward_, has_reward() ? 1 : 0);
    rewards::RewardSet rewards(asked, tokenizer_ != nullptr);
    rl::check_reward_models(asked, tokenizer_.get(), models::vocabulary_of(model_.model));
    InputRows input(input_);
    std::optional<EvalOutput> output;
    if (!output_.empty()) output.emplace(output_, input_.input);
    const std::vector<rewards::Sample> samples = complete(input, output);
    check_episodes(samples.size());
    let_interrupts_end();  // there is nothing to keep while a reward thinks
    const std::vector<std::optional<rewards::RewardResult>> verdicts = judge(rewards, samples);
    const std::vector<EvalSample> judged = judged_samples(samples, verdicts);
    if (output) output->finish(rewards.names(), verdicts);
    EvalOutcome outcome = summarize(judged, batch_.num_samples, threshold_);
    outcome.failures = rewards.failures().all();
    outcome.episodes = episodes_;
    if (outcome.failures > 0)
      std::cerr << "warning: the first completion whose reward failed: "
                << printable(rewards.first_failure()) << std::endl;
    if (!rewards.rewarded_failures().empty())
      std::cerr << "warning: the reward " << rewards.rewarded_failures()
                << " also gave negative values: the failures, which count 0, raise the mean"
                << std::endl;
    if (json_) {
      std::cout << to_json(outcome).dump() << "\n";
      return 0;
    }
    for (size_t i = 0; i < samples.size() && i < static_cast<size_t>(shown_); ++i)
      std::cout << "--- reward " << format_brief(judged[i].reward) << ", "
                << samples[i].completion_tokens.size() << " tokens\n"
                << printable(samples[i].completion) << "\n";
    std::cout << "\n" << to_text(outcome);
    return 0;
  }

 private:
  bool has_reward() const {
    return !reward_.name.empty() || !reward_.command.empty() || reward_.model;
  }

  // Throws ConfigError for flags that do not go together.
  void check_choices() const {
    const bool sampled = !pairs_ && !perplexity_.on;
    check<ConfigError>(sampled || !environment_.any(),
                       "temper eval: --environment and --tools are for rows that are sampled, not "
                       "for --pairs and --perplexity");
    check<ConfigError>(sampled || model_.named.empty(),
                       "temper eval: --adapter NAME=DIR is for rows that are sampled; --pairs and "
                       "--perplexity take one --adapter DIR");
    check<ConfigError>(!sampled || has_reward() || environment_.any(),
                       "temper eval: --reward, --reward-command, --reward-model, --environment, "
                       "--pairs or --perplexity is required; temper list rewards names rewards");
    environment_.check_no_beams(batch_);
    const std::string& name = reward_.name;
    const bool program =
        name.find(' ') != name.npos || name.ends_with(".py") || name.ends_with(".sh");
    check<ConfigError>(!program, "--reward: `", name,
                       "` is no built-in reward; of a program write --reward-command \"",
                       name.find(' ') != name.npos ? ""
                       : name.ends_with(".py")     ? "python3 "
                                                   : "sh ",
                       name, "\"");
  }

  // Throws where the episodes say nothing of the model.
  void check_episodes(size_t count) const {
    if (!environment_.any()) return;
    const std::string& file =
        environment_.environment.empty() ? environment_.tools : environment_.environment;
    check(failed_ < count, file,
          ": the environment failed in all episodes (the first failure: ", first_failure_, ")");
    check<ConfigError>(has_reward() || told_reward_, file,
                       ": no answer of the environment had a reward; add --reward, "
                       "--reward-command or --reward-model");
  }

  std::vector<rewards::Sample> complete(InputRows& input, std::optional<EvalOutput>& output) {
    const auto model = load(model_);
    PromptReader reader(model_, tokenizer_, model->vocab_size);
    const std::vector<data::PromptRow> rows = read_all(input, reader);
    check<DataError>(!rows.empty(), input_.input, ": no rows");
    for (const data::PromptRow& row : rows)
      check<DataError>(!reward_.model || row.images.empty(), row.where,
                       ": the row has images, which --reward-model does not see");
    warn_beyond_positions(model_.model, rows, sampling_.options.max_new_tokens);
    const std::vector<int> adapters = adapters_of(model_, rows);
    std::vector<rewards::Sample> samples;
    std::vector<int32_t> ends = sampling_.options.stop_token_ids;
    if (!sampling_.options.ignore_eos)
      ends.insert(ends.end(), model->eos_token_ids.begin(), model->eos_token_ids.end());
    rewards::Closings closings({&reward_, 1}, tokenizer_.get(), ends);
    ChatTemplates templates(model_);
    const auto template_of = [&](size_t index) {
      data::PromptFormat format;
      if (!environment_.any()) return rows[index].chat.get();
      format.chat = templates.of(adapters[index]);
      return rl::episode_template(format, rows[index]);
    };
    const auto keep = [&](size_t index, rl::SampledEpisode sampled) {
      if (output) output->add(static_cast<int64_t>(index), samples.size() - 1, std::move(sampled));
    };
    const auto add = [&](size_t index, rl::SampledEpisode sampled) {
      const data::PromptRow& row = rows[index];
      rl::Episode& episode = sampled.episode;
      std::vector<int32_t> closing;
      if (episode.stopped) closing = closings.after(sampled.completion.tokens, template_of(index));
      samples.push_back({row.fields, row.where, sampled.prompt, sampled.completion.tokens,
                         row.images, tokenizer_ ? tokenizer_->decode(sampled.prompt, true) : "",
                         episode.text, tokenizer_ != nullptr, !episode.stopped,
                         sampling_.options.max_new_tokens, closing});
      if (!environment_.any()) episode.closing_tokens = std::move(closing);
      keep(index, std::move(sampled));
    };
    try {
      if (environment_.any())
        complete_episodes({*model, model_, section_, sampling_, batch_, tokenizer_, rows, adapters},
                          add, keep);
      else
        sample(*model, rows, sampling_, batch_, tokenizer_, adapters, [&](generate::Completion c) {
          const size_t index = static_cast<size_t>(c.index);
          add(index, episode_of(std::move(c), rows[index]));
        });
    } catch (const Interrupted&) {
      throw Stopped(temper::str("stopped after ", samples.size(), " of ",
                                static_cast<int64_t>(rows.size()) * batch_.num_samples,
                                " completions"));
    }
    return samples;
  }

  // An episode in which the environment failed has its reward 0; under on_failure: drop it is not
  // judged.
  template <class Add, class Keep>
  void complete_episodes(const EpisodeInputs& inputs, const Add& add, const Keep& keep) {
    told_reward_ = !section_.name.empty();  // a built-in one
    double turns = 0;
    const EpisodeCounts counts =
        sample_episodes(inputs, [&](size_t row, std::vector<rl::SampledEpisode> episodes) {
          int64_t last = -1;
          for (rl::SampledEpisode& e : episodes) {
            // An agent that branches has several completions with one reward: the first is judged.
            if (std::exchange(last, e.episode.sample) == e.episode.sample) {
              keep(row, std::move(e));
              continue;
            }
            told_reward_ = told_reward_ || e.rewarded;
            const auto sampled = std::ranges::count(e.completion.sampled, true);
            from_environment_.push_back({e.episode.reward, sampled, e.dropped});
            dropped_ += e.dropped;
            failed_ += e.failed;
            if (!e.dropped) turns += static_cast<double>(e.episode.turns);
            add(row, std::move(e));
          }
        });
    const double kept = static_cast<double>(std::ssize(from_environment_) - dropped_);
    episodes_ = {
        .turns = kept > 0 ? turns / kept : 0, .failures = counts.failures, .dropped = dropped_};
    first_failure_ = counts.first_failure;
  }

  static rl::SampledEpisode episode_of(generate::Completion c, const data::PromptRow& row) {
    rl::SampledEpisode out{.prompt = row.tokens, .prompt_images = row.images};
    out.completion.sampled.assign(c.tokens.size(), true);
    out.completion.tokens = std::move(c.tokens);
    out.completion.kept = std::move(c.kept);
    out.completion.logprobs = std::move(c.logprobs);
    out.episode.sample = c.sample;
    out.episode.text = std::move(c.text);
    out.episode.stopped = c.stopped;
    return out;
  }

  // By sample; none of a dropped one.
  std::vector<std::optional<rewards::RewardResult>> judge(
      rewards::RewardSet& rewards, const std::vector<rewards::Sample>& samples) const {
    const auto dropped = [&](size_t i) {
      return !from_environment_.empty() && from_environment_[i].dropped;
    };
    std::vector<rewards::Sample> kept;
    for (size_t i = 0; dropped_ > 0 && i < samples.size(); ++i)
      if (!dropped(i)) kept.push_back(samples[i]);
    const std::vector<rewards::RewardResult> judged = rewards.judge(dropped_ > 0 ? kept : samples);
    std::vector<std::optional<rewards::RewardResult>> out(samples.size());
    for (size_t i = 0, next = 0; i < samples.size(); ++i)
      if (!dropped(i)) out[i] = judged[next++];
    return out;
  }

  std::vector<EvalSample> judged_samples(
      const std::vector<rewards::Sample>& samples,
      const std::vector<std::optional<rewards::RewardResult>>& verdicts) const {
    std::vector<EvalSample> out(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      out[i] = {.reward = verdicts[i] ? verdicts[i]->reward : 0,
                .tokens = std::ssize(samples[i].completion_tokens),
                .truncated = samples[i].truncated,
                .dropped = !verdicts[i]};
      if (from_environment_.empty()) continue;
      out[i].reward += from_environment_[i].reward;
      out[i].tokens = from_environment_[i].sampled_tokens;
    }
    return out;
  }

  ModelFlags model_;
  InputFlags input_;
  SamplingFlags sampling_;
  BatchFlags batch_;
  EnvironmentFlags environment_;
  env::EnvironmentSection section_;  // what its files say
  PerplexityFlags perplexity_;
  rewards::RewardSection reward_;
  double threshold_ = 1;
  std::string output_;  // empty: none
  int64_t shown_ = 3;
  bool json_ = false, pairs_ = false;

  std::shared_ptr<const Tokenizer> tokenizer_;
  // What the environment says of an episode.
  struct FromEnvironment {
    double reward;
    int64_t sampled_tokens;
    bool dropped;
  };
  std::vector<FromEnvironment> from_environment_;  // by sample; empty: no environment
  bool told_reward_ = false;
  size_t failed_ = 0;  // episodes
  int64_t dropped_ = 0;
  std::string first_failure_;
  std::optional<EpisodesOutcome> episodes_;
};

}  // namespace

std::unique_ptr<Command> eval_command() { return std::make_unique<Eval>(); }

}  // namespace temper::cli
