#include "temper/preference/pair_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/metrics/activity.h"
#include "temper/models/family.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/preference/losses.h"
#include "temper/train/group_means.h"
#include "temper/train/roles/blind_models.h"
#include "temper/train/run/opening.h"
#include "temper/train/run/row_messages.h"

namespace temper::preference {

namespace {

// Whether the verb's loss has a gradient where both sides are the same tokens.
bool equal_sides_train(const PreferenceConfig& config) {
  const PreferenceSection& p = config.preference;
  if (config.verb == "orpo") return true;  // the likelihood of chosen
  if (config.verb == "reward") return p.center_rewards_coefficient > 0;
  if (config.is_unpaired()) return p.desirable_weight != p.undesirable_weight;
  return any_loss(p.loss, &PreferenceLoss::equal_sides_train);
}

}  // namespace

data::PreferenceFormat format_of(const PreferenceConfig& config,
                                 std::shared_ptr<const Tokenizer> tokenizer,
                                 std::shared_ptr<const ChatTemplate> chat) {
  const std::string& directory = config.model.path;
  data::PreferenceFormat f;
  f.tokenizer = std::move(tokenizer);
  f.chat = std::move(chat);
  config.data.apply_to(f);
  f.images = train::images_of(config, f.tokenizer.get());
  f.train_on =
      config.data.train_on == TrainOn::kAssistant ? TrainOn::kAssistant : TrainOn::kCompletion;
  f.conversation = config.data.conversation;
  f.unpaired = config.is_unpaired();
  f.equal_sides_train = equal_sides_train(config);
  f.vocabulary = models::vocabulary_of(directory);
  f.set_ends(directory, models::eos_ids(directory, models::HfConfig::load(directory)));
  return f;
}

double total(const at::Tensor& values) {
  const at::Tensor x = values.detach().to(at::kDouble).contiguous();
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += x.const_data_ptr<double>()[i];
  return sum;
}

void add_means(train::Loss& loss, const Batch& batch, const PassRewards& rewards, bool unpaired) {
  const train::GroupOfUnit group_of = [&batch](int64_t row) -> const std::string& {
    return batch.rows.at(static_cast<size_t>(row)).group;
  };
  const auto mean = [&](const char* name, const at::Tensor& values,
                        const std::vector<int64_t>& rows) {
    if (values.numel() == 0) return;
    loss.means.push_back({name, total(values), static_cast<double>(values.numel())});
    if (batch.grouped) train::add_group_means(loss.means, name, values, rows, group_of);
  };
  const Matched pairs = matched(rewards.chosen_row_C, rewards.rejected_row_R);
  const at::Tensor chosen_P = rewards.chosen_C.detach().index_select(0, pairs.chosen_P),
                   rejected_P = rewards.rejected_R.detach().index_select(0, pairs.rejected_P);
  std::vector<int64_t> paired;  // rows
  for (int64_t i = 0; i < pairs.chosen_P.numel(); ++i)
    paired.push_back(
        rewards.chosen_row_C.at(static_cast<size_t>(pairs.chosen_P.const_data_ptr<int64_t>()[i])));
  mean("reward_chosen", rewards.chosen_C, rewards.chosen_row_C);
  mean("reward_rejected", rewards.rejected_R, rewards.rejected_row_R);
  mean("margin", chosen_P - rejected_P, paired);
  mean("accuracy", chosen_P > rejected_P, paired);
  if (!batch.grouped) return;
  std::vector<int64_t> rows = rewards.chosen_row_C;
  if (unpaired)
    rows.insert(rows.end(), rewards.rejected_row_R.begin(), rewards.rejected_row_R.end());
  at::Tensor sum = at::zeros({std::ssize(rows)}, at::kDouble);
  for (const train::Term& term : loss.terms) sum = sum + term.coefficient * term.value.detach();
  train::add_group_means(loss.means, "loss", sum, rows, group_of);
}

train::VerbRows<PreferenceRow> pair_rows(const PreferenceConfig& config,
                                         const data::PreferenceFormat& format) {
  train::VerbRows<PreferenceRow> rows{data::preference_reader(format),
                                      data::preference_reader(train::evaluation_format(format)),
                                      train::loader_options(config, config.train.batch_size)};
  // Completions that stand alone are compared with those of the batch's other rows.
  if (config.is_unpaired()) rows.options.smallest_batch = kFewestUnpaired;
  if (const auto& model = config.preference.reference_model; model && config.has_reference())
    train::refuse_unseen(rows, train::blind_model(config, "preference.reference_model", *model));
  return rows;
}

void check_pair_metrics(const PreferenceConfig& config,
                        const data::Loader<PreferenceRow>::Read& read) {
  if (!config.is_unpaired()) return;
  const auto sources = data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed));
  const std::vector<std::string> names = train::set_names(sources);
  for (const auto& [key, named] :
       {std::pair{"train.early_stopping.metric", &config.train.early_stopping.metric},
        {"train.keep_best.metric", &config.train.keep_best.metric}}) {
    const std::string metric = named->value_or("");
    const auto is = [&](const std::string& prefix) {
      return metric == prefix + "margin" || metric == prefix + "accuracy";
    };
    bool asked = false, any = false;
    for (size_t s = 0; s < sources.size() && !any; ++s) {
      if (!is("eval/") && !is("eval/" + names[s] + "/")) continue;
      asked = true;
      const data::RowSet set(sources[s]);
      for (int64_t r = 0; r < set.size() && !any; ++r) {
        const auto row = data::read_one(read, set, r);
        any = row && row->paired();
      }
    }
    config.require(any || !asked, key, "found ", metric, ", which no evaluation of this run has: ",
                   "no evaluation row is a pair of chosen and rejected");
  }
}

void check_number_of_rows(const PreferenceConfig& config, const data::RowOrder& order,
                          const data::RowSurvey& survey,
                          std::span<const std::unique_ptr<data::RowSet>> evaluation) {
  if (!config.is_unpaired()) return;
  const auto enough = [&config](int64_t rows, const std::string& name) {
    check<DataError>(rows >= kFewestUnpaired, name, ": found ", rows, rows == 1 ? " row" : " rows",
                     ", expected at least ", kFewestUnpaired, ": ", config.preference.loss.text(),
                     " compares each completion with those after prompts of other rows");
  };
  enough(survey.complete ? survey.rows - survey.dropped : order.rows(), order.sources()[0].path);
  for (const auto& set : evaluation) enough(set->size(), set->path());
}

void check_pairs_train(const PreferenceConfig& config, const data::LoaderState& rows,
                       int64_t all_rows, bool last) {
  train::check_rows_train(config, rows, all_rows, last,
                          str("data.max_length ", config.data.max_length,
                              " cuts chosen and rejected to the same tokens"));
}

Targets targets_of(const PreferenceConfig& config) {
  if (config.is_scalar()) return Targets::kScores;
  const bool prompt =
      config.verb == "orpo" && config.preference.train_on == PreferenceSection::TrainOn::kAll;
  return prompt ? Targets::kWithChosenPrompt : Targets::kCompletions;
}

PairTask::PairTask(const PreferenceConfig& config, data::PreferenceFormat format,
                   dist::Group& group, train::Messages& messages)
    : config_(config),
      messages_(messages),
      format_(std::move(format)),
      rows_(pair_rows(config, format_)),
      targets_(targets_of(config)),
      group_(group),
      loader_(data::training_sources(config.data, static_cast<uint64_t>(config.seed)),
              rows_.options, rows_.train),
      survey_(train::survey_rows<PreferenceRow>(loader_.order(), rows_.train)),
      eval_sources_(data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed))) {
  done_ = loader_.state();
  steps_ = loader_.order().steps(config.train.epochs.value_or(1), survey_);
  for (const data::SourceSpec& source : eval_sources_)
    eval_rows_.push_back(std::make_unique<data::RowSet>(source));
  train::check_rows(eval_rows_, [this](const data::RowSet& set, int64_t row) {
    return data::read_one(rows_.evaluation, set, row).has_value();
  });
  check_number_of_rows(config, loader_.order(), survey_, eval_rows_);
  check_pair_metrics(config, rows_.evaluation);
}

int64_t PairTask::planned_steps() const { return steps_; }

std::string PairTask::work() const {
  return str("batches of up to ", config_.train.batch_size, " pairs, from ",
             train::text_of(loader_.order(), survey_));
}

ReferenceRows PairTask::all_rows() const {
  ReferenceRows rows;
  for (size_t s = 0; s < loader_.order().sources().size(); ++s)
    rows.sets.push_back(&loader_.order().rows_of(s));
  for (const auto& set : eval_rows_) rows.sets.push_back(set.get());
  rows.read = [read = rows_.evaluation](const data::RowSet& set, int64_t row) {
    return data::read_one(read, set, row);
  };
  return rows;
}

Batch PairTask::batch_of(std::vector<PreferenceRow> rows, bool training) const {
  Batch batch;
  batch.rows = std::move(rows);
  batch.training = training;
  batch.grouped = format_.groups != nullptr;
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    batch.units.push_back(unit_of(batch.rows[i], static_cast<int64_t>(i), targets_));
    batch.chosen += batch.rows[i].has(Side::kChosen);
    batch.chosen_tokens += supervised(batch.units.back(), Side::kChosen);
    batch.rejected += batch.rows[i].has(Side::kRejected);
  }
  return batch;
}

train::PassOptions PairTask::pass_options(const Batch& batch) const {
  using Recompute = train::TrainSection::Recompute;
  return {.recompute = batch.training && config_.train.recompute == Recompute::kBlocks,
          .dropout = batch.training,
          .watched = batch.training};
}

std::optional<train::StepPlan> PairTask::next(int64_t) {
  batch_ = batch_of(loader_.next(), true);
  if (batch_.rows.empty()) return {};
  check<DataError>(!format_.unpaired || std::ssize(batch_.rows) >= kFewestUnpaired,
                   loader_.order().sources()[0].path, ": the step has one row alone, and ",
                   config_.preference.loss.text(),
                   " compares each completion with those of other rows; expected more rows, or "
                   "train.max_steps in the place of train.epochs");
  train::StepPlan plan;
  for (const PreferenceRow& row : batch_.rows) plan.tokens += static_cast<double>(row.num_tokens());
  for (const train::PackUnit& unit : batch_.units) plan.supervised_tokens += supervised(unit);
  plan.count_images(batch_.units);
  prepare(batch_, &group_);
  plan.every_token = config_.train.router_aux_loss.has_value();
  plan.passes =
      train::plan_passes(batch_.units, train::pass_tokens(config_), group_, plan.every_token);
  return plan;
}

void PairTask::describe_step(MetricsRow& row) {
  done_ = loader_.state();
  const auto chosen = row.number("reward_chosen"), rejected = row.number("reward_rejected");
  if (!row.find("margin") && chosen && rejected) row.set("margin", *chosen - *rejected);
  const auto& sources = loader_.order().sources();
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    row.set("rows/" + sources[i].name, loader_.state().counts[i]);
}

void PairTask::evaluate_batch(size_t set, Batch batch, train::EvaluationSums& sums) {
  if (batch.rows.empty()) return;
  prepare(batch, nullptr);
  double count = 0;
  for (const train::ForwardPass& pass :
       train::plan_passes(batch.units, train::pass_tokens(config_))) {
    const train::Loss loss = loss_of(batch, pass);
    for (const train::Term& term : loss.terms) {
      sums.add_mean(set, "loss", term.coefficient * train::ordered_sum(term.value, term.weight), 0);
      count = term.denominator;
    }
    sums.add_means(set, loss.means);
  }
  sums.add_mean(set, "loss", 0, count);
  sums.add_total(set, "rows", static_cast<int64_t>(batch.rows.size()));
}

// In batches of train.batch_size rows, whole batches shared out among the ranks: what depends on a
// batch (KTO's estimate) is the same with any number of ranks.
bool PairTask::evaluate(MetricsRow& row, const std::function<bool()>& stop) {
  if (eval_rows_.empty()) return false;
  const at::NoGradGuard no_grad;
  train::EvaluationSums sums(train::set_names(eval_sources_));
  const int64_t size = config_.train.batch_size;
  for (size_t set = 0; set < eval_rows_.size(); ++set) {
    const data::RowSet& file = *eval_rows_[set];
    // A last batch that would be too small joins the one before.
    const int64_t rest = file.size() % size;
    const bool joins = format_.unpaired && file.size() > size && rest < kFewestUnpaired;
    const int64_t batches = file.size() / size + (rest > 0 && !joins);
    Activity activity("evaluating: batch",
                      (batches - group_.rank() + group_.size() - 1) / group_.size());
    for (int64_t batch = group_.rank(); batch < batches && !stop(); batch += group_.size()) {
      activity.advance();
      const int64_t end = batch + 1 == batches ? file.size() : (batch + 1) * size;
      std::vector<PreferenceRow> rows;
      for (int64_t r = batch * size; r < end; ++r) {
        std::optional<PreferenceRow> read = data::read_one(rows_.evaluation, file, r);
        if (read) rows.push_back(std::move(*read));
      }
      evaluate_batch(set, batch_of(std::move(rows), false), sums);
    }
  }
  if (!sums.reduce(group_, stop())) return false;
  sums.write(row);
  return true;
}

train::TaskState PairTask::state() const {
  train::TaskState state;
  state.values["loader"] = done_.to_json();
  return state;
}

void PairTask::restore(const train::TaskState& state, const std::string& where) {
  loader_.restore(train::loader_state(state.values, where));
  done_ = loader_.state();
}

void PairTask::before_update(int64_t step) {
  train::warn_about_notices(survey_, format_.control_tokens, messages_);
  const data::LoaderState& s = loader_.state();
  const int64_t longest = config_.data.max_length;
  if (s.truncated > 0)
    messages_.warn_once(
        "truncated rows",
        str("completions that with their prompt are longer than data.max_length, ", longest,
            " tokens, are cut (in ", s.truncated, " of the first ", s.rows, " rows)"));
  if (std::ssize(batch_.rows) > config_.train.batch_size && !std::exchange(said_joined_, true))
    messages_.note(str("this step has ", batch_.rows.size(),
                       " rows: an epoch's last row joins the step before it, as one row alone has "
                       "no other to compare with"));
  if (s.dropped > 0)
    messages_.warn_once("dropped rows", str("rows of which data.max_length, ", longest,
                                            " tokens, leaves no completion are left out (",
                                            s.dropped, " of the first ", s.rows + s.dropped, ")"));
  if (s.untrained > 0)
    messages_.warn_once("untrained rows", str(s.untrained, " of the first ", s.rows,
                                              " pairs are cut to equal sides and train nothing"));
  check_pairs_train(config_, s, loader_.order().rows(),
                    step == config_.train.max_steps.value_or(steps_));
}

std::vector<MetricInfo> PairTask::metrics() const {
  return pair_metrics(static_cast<bool>(format_.groups));
}

std::vector<MetricInfo> pair_metrics(bool groups) {
  std::vector<MetricInfo> infos{
      {"accuracy", "", "accuracy", "share of pairs whose chosen completion has the larger reward",
       "from 0.5 upwards", true, "accuracy"},
      {"margin", "", "rewards", "mean reward of chosen minus that of rejected", "rises slowly",
       true, "margin"},
      {"reward_chosen", "", "rewards",
       "mean reward of chosen completions; DPO's is beta times the difference of the "
       "log-probability to the reference's",
       "falls slower than that of rejected"},
      {"reward_rejected", "", "rewards", "mean reward of rejected completions"},
      {"logps/*", "nats", "log-probabilities", "mean summed log-probability of completions",
       "a steep fall of chosen's: lower the rate or raise beta"},
      {"log_odds_ratio", "", "log odds ratio", "ORPO: mean log odds of chosen against rejected",
       "rises"},
      {"kl", "nats", "KL", "KTO: KL estimate from mismatched completions", "small"},
  };
  if (!groups) return infos;
  for (const auto& [metric, help] :
       {std::pair{"loss", "mean loss of a group's rows"},
        {"accuracy", "share of a group's pairs whose chosen completion has the larger reward"},
        {"margin", "mean reward of chosen minus that of rejected, of a group's pairs"},
        {"reward_chosen", "mean reward of a group's chosen completions"},
        {"reward_rejected", "mean reward of a group's rejected completions"}})
    infos.push_back(train::group_metric_info(metric, "", help));
  return infos;
}

std::vector<std::pair<std::string, std::string>> PairTask::summary() const {
  return train::row_summary(loader_.state(), loader_.order().sources());
}

}  // namespace temper::preference
