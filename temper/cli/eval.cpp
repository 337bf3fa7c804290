// Sampled completions of a file's prompts, judged by a reward.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/progress.h"
#include "temper/cli/work.h"
#include "temper/data/jsonl.h"
#include "temper/data/prompt_row.h"
#include "temper/metrics/format.h"
#include "temper/metrics/pass_rate.h"
#include "temper/models/hf_config.h"
#include "temper/rewards/reward.h"

namespace temper::cli {
namespace {

struct Flags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string input;
  rewards::RewardSection reward;
  std::vector<std::string> columns;
  double threshold = 1;
  int64_t shown = 3;
  bool json = false;
};

struct Outcome {
  Interval reward, pass_one, pass_k;
  int64_t prompts = 0, failures = 0;
  double length = 0, truncated = 0;  // means
};

bool parse(Flags& f, const Arguments& arguments) {
  CLI::App app(
      "Samples completions of prompts and judges them: mean reward, pass@1 and pass@k with 95 % "
      "intervals over the prompts.\n"
      "example: temper eval --model runs/x/final --input test.jsonl --columns prompt=question "
      "--reward gsm8k --num-samples 8",
      "eval");
  f.model.add_to(app);
  app.add_option("--input", f.input,
                 "rows: prompt (text or messages) or prompt_ids, and what the reward reads")
      ->required();
  auto* name = app.add_option("--reward", f.reward.name, "a built-in reward (temper list rewards)");
  auto* command = app.add_option("--reward-command", f.reward.command,
                                 "a program and its arguments as the reward")
                      ->expected(1, 100);
  app.add_option("--reward-field", f.reward.field, "the row's field that the reward compares with");
  app.add_option("--reward-pattern", f.reward.pattern, "what the reward regex looks for");
  app.add_option("--columns", f.columns, "renames fields, as in prompt=question")->expected(1, 100);
  app.add_option("--pass-threshold", f.threshold, "a completion passes from this reward on")
      ->check(any_number());
  app.add_option("--show", f.shown, "completions to print")->check(non_negative());
  app.add_flag("--json", f.json, "print one JSON object and nothing else");
  f.sampling.add_to(app);
  if (!parse_flags(app, arguments)) return false;
  check<ConfigError>(
      name->count() + command->count() > 0,
      "temper eval: --reward or --reward-command is required; temper list rewards names them");
  return true;
}

data::PromptFormat prompt_format(const Flags& f, std::shared_ptr<const Tokenizer> tokenizer,
                                 int64_t vocabulary) {
  data::PromptFormat format;
  format.tokenizer = std::move(tokenizer);
  if (format.tokenizer && ChatTemplate::exists(f.model.model))
    format.chat = std::make_shared<ChatTemplate>(ChatTemplate::load(f.model.model));
  for (const std::string& column : f.columns) {
    const size_t equals = column.find('=');
    check<ConfigError>(equals != std::string::npos, "--columns: found `", column,
                       "`, expected NAME=FIELD as in prompt=question");
    format.columns[column.substr(0, equals)] = column.substr(equals + 1);
  }
  format.max_length = INT64_MAX;
  format.vocabulary = vocabulary;
  return format;
}

std::vector<data::PromptRow> read_rows(const Flags& f, const data::PromptFormat& format) {
  data::RowReader reader(f.input);
  std::vector<data::PromptRow> rows;
  Json row;
  bool truncated = false;
  while (reader.next(row))
    rows.push_back(*data::read_prompt_row(format, row, reader.where(), &truncated));
  check<DataError>(!rows.empty(), f.input, ": no rows");
  return rows;
}

std::vector<rewards::Sample> sample(const Flags& f, models::CausalLM& model,
                                    const std::vector<data::PromptRow>& rows,
                                    const std::shared_ptr<const Tokenizer>& tokenizer) {
  const size_t each = static_cast<size_t>(f.sampling.num_samples);
  std::vector<rewards::Sample> samples(rows.size() * each);
  std::vector<std::vector<int32_t>> prompts;
  for (const data::PromptRow& row : rows) prompts.push_back(row.tokens);
  catch_interrupts();
  Progress progress("sampled", static_cast<int64_t>(samples.size()));
  size_t done = 0;
  generate::generate(
      model, prompts, f.sampling.num_samples, f.sampling.options,
      [&](generate::Completion c) {
        const data::PromptRow& row = rows[static_cast<size_t>(c.index)];
        samples[done++] = {row.fields,        row.where,
                           row.tokens,        std::move(c.tokens),
                           std::move(c.text), tokenizer != nullptr,
                           !c.stopped,        f.sampling.options.max_new_tokens};
        progress.advance(1, 0);
      },
      tokenizer,
      [&](const generate::Completion&) {
        check(!interrupted(), "stopped after ", done, " of ", samples.size(), " completions");
        progress.advance(0, 1);
      });
  return samples;
}

Outcome summarize(const Flags& f, const std::vector<rewards::Sample>& samples,
                  const std::vector<rewards::Judged>& judged) {
  const int64_t each = f.sampling.num_samples;
  std::vector<double> reward, one, k;
  Outcome out;
  for (size_t i = 0; i < samples.size(); i += static_cast<size_t>(each)) {
    double sum = 0;
    int64_t correct = 0;
    for (size_t s = i; s < i + static_cast<size_t>(each); ++s) {
      sum += judged[s].reward;
      correct += judged[s].reward >= f.threshold;
      out.length += static_cast<double>(samples[s].completion_tokens.size()) /
                    static_cast<double>(samples.size());
      out.truncated += samples[s].truncated ? 1.0 / static_cast<double>(samples.size()) : 0;
    }
    reward.push_back(sum / static_cast<double>(each));
    one.push_back(pass_at_k(each, correct, 1));
    k.push_back(pass_at_k(each, correct, each));
  }
  out.prompts = static_cast<int64_t>(reward.size());
  out.reward = confidence_interval(reward);
  out.pass_one = confidence_interval(one);
  out.pass_k = confidence_interval(k);
  return out;
}

Json as_json(const Interval& i) { return {{"mean", i.mean}, {"low", i.low}, {"high", i.high}}; }

void print(const Flags& f, const Outcome& o, const std::vector<rewards::Sample>& samples,
           const std::vector<rewards::Judged>& judged) {
  const std::string k = "pass@" + std::to_string(f.sampling.num_samples);
  if (f.json) {
    Json all = {{"prompts", o.prompts},
                {"samples", f.sampling.num_samples},
                {"reward", as_json(o.reward)},
                {"pass@1", as_json(o.pass_one)}};
    all[k] = as_json(o.pass_k);
    all["completion_length_mean"] = o.length;
    all["truncated_fraction"] = o.truncated;
    all["reward_failures"] = o.failures;
    std::cout << all.dump() << "\n";
    return;
  }
  for (size_t i = 0; i < samples.size() && i < static_cast<size_t>(f.shown); ++i)
    std::cout << "--- reward " << format_brief(judged[i].reward) << ", "
              << samples[i].completion_tokens.size() << " tokens\n"
              << samples[i].completion << "\n";
  const auto line = [](const std::string& name, const Interval& v) {
    std::cout << name << std::string(name.size() < 10 ? 10 - name.size() : 1, ' ')
              << format_fixed(v.mean, 4) << "  (" << format_fixed(v.low, 4) << " to "
              << format_fixed(v.high, 4) << ")\n";
  };
  std::cout << "\n"
            << o.prompts << " prompts, " << f.sampling.num_samples
            << " samples each; 95 % intervals over prompts\n";
  line("reward", o.reward);
  line("pass@1", o.pass_one);
  if (f.sampling.num_samples > 1) line(k, o.pass_k);
  std::cout << "tokens    " << format_fixed(o.length, 1) << " a completion, "
            << format_fixed(100 * o.truncated, 1) << " % cut at --max-new-tokens\n";
  if (o.failures > 0)
    std::cout << "rewards   " << o.failures << " completions without a verdict, counted as 0\n";
}

}  // namespace

int run_eval(const Arguments& arguments) {
  Flags f;
  if (!parse(f, arguments)) return 0;
  const auto tokenizer = find_tokenizer(f.model.model);
  models::HfConfig::load(f.model.model);  // that it is a model at all, before what it lacks
  rewards::RewardSet rewards({&f.reward, 1}, tokenizer != nullptr);
  const auto model = load(f.model);
  const std::vector<data::PromptRow> rows =
      read_rows(f, prompt_format(f, tokenizer, model->vocab_size));
  const std::vector<rewards::Sample> samples = sample(f, *model, rows, tokenizer);
  let_interrupts_end();  // there is nothing to keep while a reward thinks
  const std::vector<rewards::Judged> judged = rewards.judge(samples);
  Outcome outcome = summarize(f, samples, judged);
  outcome.failures = rewards.failures().all();
  if (outcome.failures > 0)
    std::cerr << "warning: the first completion without a verdict: " << rewards.first_failure()
              << std::endl;
  print(f, outcome, samples, judged);
  return 0;
}

}  // namespace temper::cli
