#include "temper/train/run/reward_evaluation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/read/source_format.h"
#include "temper/generate/config.h"
#include "temper/generate/engine.h"
#include "temper/generate/request_check.h"
#include "temper/generate/scheduler.h"
#include "temper/metrics/activity.h"
#include "temper/models/vision/image_rows.h"
#include "temper/train/evaluation.h"

namespace temper::train {
namespace {

// Numbers of the prompts among the random numbers, apart from those of training: the ones that
// evaluations of reinforcement learning have (rl/rollout/prompts.cpp).
constexpr int64_t kFirstPrompt = int64_t{1} << 40;
constexpr size_t kJudgedAtOnce = 64;  // completions between looks at whether to stop

struct CutShort {};

// The prompt of a row of ids with labels.
void take_labeled_prompt(Json& row) {
  for (const char* other : {"prompt", "prompt_ids", "messages", "tokens"})
    if (row.contains(other)) return;
  if (!row.contains("input_ids") || !row.contains("labels")) return;
  const Json &ids = row["input_ids"], &labels = row["labels"];
  if (!ids.is_array() || !labels.is_array() || ids.size() != labels.size()) return;
  Json prompt = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && labels[i].is_number_integer() && labels[i].get<int64_t>() >= 0) break;
    prompt.push_back(ids[i]);
  }
  row["prompt_ids"] = std::move(prompt);
}

data::PromptFormat format_of(const RunConfig& config, const Policy& policy) {
  data::PromptFormat format;
  format.tokenizer = policy.tokenizer;
  format.chat = policy.chat;
  config.data.apply_to(format);
  format.images = images_of(config, policy.tokenizer.get());
  format.vocabulary = policy.model->vocab_size;
  if (format.overlong == data::Overlong::kSplit) format.overlong = data::Overlong::kTruncate;
  return evaluation_format(std::move(format));
}

// Ranks that compute the same rows schedule them alike, whatever memory each has. They call it at
// the same places.
generate::EngineOptions agreed_options(const RunConfig& config, dist::Group& group) {
  generate::EngineOptions options = config.sampling()->engine_options();
  options.cache_bytes = std::stoll(group.agreed(str(generate::cache_bytes(options))));
  return options;
}

// Throws ConfigError that names the row whose prompt and completion the key-value cache cannot
// hold.
class CacheFits {
 public:
  CacheFits(const generate::EngineOptions& engine, models::CausalLM& model, int64_t new_tokens)
      : bytes_(generate::cache_bytes(engine)), cache_(model, bytes_) {
    request_.options.max_new_tokens = new_tokens;
  }
  void check(const data::PromptRow& row) {
    request_.prompt = row.tokens;
    check_fits(generate::Scheduler::pages_needed(request_, cache_.page_tokens()), request_,
               {cache_, bytes_}, row.where + ": ");
  }

 private:
  int64_t bytes_;
  generate::PageCache cache_;  // takes no memory before it is used
  generate::Request request_;
};

}  // namespace

std::vector<std::string> rewarded_metrics(const TrainSection& section) {
  if (section.eval_rewards.empty()) return {};
  std::vector<std::string> names{"reward_mean", "completion_length_mean", "truncated_fraction"};
  for (const rewards::RewardSection& reward : section.eval_rewards)
    names.push_back("rewards/" + reward.label());
  return names;
}

std::vector<std::vector<data::PromptRow>> evaluation_prompts(const RunConfig& config,
                                                             const Policy& policy,
                                                             const rewards::RewardSet& rewards) {
  const data::PromptFormat format = format_of(config, policy);
  std::vector<std::vector<data::PromptRow>> prompts;
  for (const data::SourceSpec& source :
       data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed))) {
    const data::RowSet set(source);
    std::vector<data::PromptRow>& rows = prompts.emplace_back();
    for (int64_t r = 0; r < set.size(); ++r) {
      Json json = set.row(r);
      if (json.is_object()) take_labeled_prompt(json);
      bool truncated = false;
      std::optional<data::PromptRow> row = data::read_prompt_row(
          data::of_source(format, set, r), std::move(json), set.where(r), &truncated);
      if (!row) continue;
      rewards.check_row(*row->fields, row->where);
      rows.push_back(std::move(*row));
    }
    check<DataError>(!rows.empty(), set.path(), data::kAllLeftOut);
  }
  return prompts;
}

RewardEvaluation::RewardEvaluation(const RunConfig& config, const Policy& policy,
                                   const dist::Mesh& mesh, Messages& messages,
                                   const rewards::RewardSet::Make& make_reward)
    : config_(config),
      policy_(policy),
      group_(*mesh.data_parallel),
      messages_(messages),
      options_(config.sampling()->options(config.seed)),
      rewards_(config.train.eval_rewards, policy.tokenizer != nullptr, make_reward),
      closings_(config.train.eval_rewards, policy.tokenizer.get(),
                generate::ends_of(options_, *policy.model)),
      set_names_(
          set_names(data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed)))),
      prompts_(evaluation_prompts(config, policy, rewards_)) {
  rewards_.check_tokens(policy.tokenizer.get(), policy.model->vocab_size);
  rewards_.check_answers();
  generate::check_options(options_, *policy.model, policy.tokenizer.get());
  const generate::EngineOptions engine = agreed_options(config, group_);
  if (mesh.tensor->size() > 1) return;  // each rank has a part of the cache
  CacheFits fits(engine, *policy.model, options_.max_new_tokens);
  for (const std::vector<data::PromptRow>& rows : prompts_)
    for (const data::PromptRow& row : rows) fits.check(row);
}

// This rank's completions of a set whose first prompt has that number. Throws CutShort.
std::vector<RewardEvaluation::Answer> RewardEvaluation::complete(
    size_t set, int64_t first, const std::function<bool()>& stop) const {
  const std::vector<data::PromptRow>& rows = prompts_[set];
  const int64_t ranks = group_.size(), samples = config_.train.eval_completions;
  Activity activity("evaluating", (std::ssize(rows) - group_.rank() + ranks - 1) / ranks * samples);
  generate::Engine engine(*policy_.model, agreed_options(config_, group_), policy_.tokenizer);
  std::vector<Answer> answers;
  for (int64_t r = group_.rank(); r < std::ssize(rows); r += ranks) {
    const data::PromptRow& row = rows[static_cast<size_t>(r)];
    generate::Request request{first + r, row.tokens, samples, options_};
    request.rows = models::external_rows(row.images);
    engine.submit(std::move(request));
  }
  const auto done = [&](generate::Completion completion) {
    activity.advance();
    answers.push_back({std::move(completion), {}});
  };
  engine.run(done, {}, [&] {
    if (stop()) throw CutShort();
  });
  std::sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) {
    return std::pair(a.completion.index, a.completion.sample) <
           std::pair(b.completion.index, b.completion.sample);
  });
  return answers;
}

// Ranks that sampled the same take over one rank's verdicts: two might be different. Throws
// CutShort.
void RewardEvaluation::judge(size_t set, int64_t first, std::vector<Answer>& answers,
                             const std::function<bool()>& stop) {
  Json verdicts = Json::array();
  for (size_t begin = 0; begin < answers.size(); begin += kJudgedAtOnce) {
    if (stop()) throw CutShort();
    if (!group_.leads()) continue;
    std::vector<rewards::Sample> samples;
    for (size_t i = begin; i < std::min(answers.size(), begin + kJudgedAtOnce); ++i) {
      const generate::Completion& c = answers[i].completion;
      const data::PromptRow& row = prompts_[set][static_cast<size_t>(c.index - first)];
      rewards::Sample s{row.fields, row.where, row.tokens, c.tokens, row.images, c.text};
      s.has_text = policy_.tokenizer != nullptr;
      if (s.has_text) s.prompt = policy_.tokenizer->decode(row.tokens, true);
      s.truncated = !c.stopped;
      s.max_new_tokens = options_.max_new_tokens;
      if (c.stopped) s.closing_tokens = closings_.after(c.tokens, row.chat.get());
      samples.push_back(std::move(s));
    }
    for (const rewards::RewardResult& found : rewards_.judge(samples))
      verdicts.push_back({found.reward, found.each, found.dropped});
  }
  if (group_.has_twins()) verdicts = parse_json(group_.agreed(verdicts.dump()), "another rank");
  for (size_t i = 0; i < answers.size(); ++i) {
    const Json& verdict = verdicts.at(i);
    answers[i].verdict = {.reward = verdict[0].get<double>(),
                          .each = verdict[1].get<std::vector<double>>(),
                          .dropped = verdict[2].get<bool>()};
  }
}

void RewardEvaluation::warn_of_failures() {
  const int64_t failed = rewards_.failures().all() - failures_;
  failures_ += failed;
  if (failed > 0)
    messages_.warn_once("failed evaluation rewards",
                        str("rewards of ", failed,
                            " completions of an evaluation failed; the "
                            "first: ",
                            rewards_.first_failure()));
}

Hook::Evaluated RewardEvaluation::evaluate(MetricsRow& row, const std::function<bool()>& stop) {
  const at::NoGradGuard no_grad;
  EvaluationSums sums(set_names_);
  int64_t first = kFirstPrompt;
  bool cut = false;
  try {
    for (size_t set = 0; set < prompts_.size(); ++set) {
      std::vector<Answer> answers = complete(set, first, stop);
      judge(set, first, answers, stop);
      for (const auto& [completion, verdict] : answers) {
        if (verdict.dropped) continue;
        sums.add_mean(set, "reward_mean", verdict.reward, 1);
        for (size_t n = 0; n < verdict.each.size(); ++n)
          sums.add_mean(set, "rewards/" + rewards_.names()[n], verdict.each[n], 1);
        sums.add_mean(set, "completion_length_mean", static_cast<double>(completion.tokens.size()),
                      1);
        sums.add_mean(set, "truncated_fraction", completion.stopped ? 0 : 1, 1);
      }
      first += std::ssize(prompts_[set]);
    }
  } catch (const CutShort&) {
    cut = true;
  }
  warn_of_failures();
  if (!sums.reduce(group_, cut)) return Evaluated::kCutShort;
  sums.write(row);
  return Evaluated::kYes;
}

}  // namespace temper::train
