#include "temper/train/sft.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/loader.h"

namespace temper::train {
namespace {
using data::SftRow;

// The rows of one forward pass as a forest of roots, and what is asked of it.
struct MicroBatch {
  std::shared_ptr<Forest> forest = std::make_shared<Forest>();
  std::vector<int64_t> at, target;  // the token before each supervised one, and that one
  nn::DropoutKeys dropout;

  void add(const SftRow& row, size_t row_of_step) {
    const int64_t start = forest->num_tokens();
    forest->add_root(row.tokens);
    for (size_t i = 0; i < row.tokens.size(); ++i) {
      dropout.token.push_back(static_cast<uint64_t>(row_of_step) << 32 | i);
      if (i == 0 || row.labels[i] < 0) continue;
      at.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(row.labels[i]);
    }
  }
};

double sum_of(const at::Tensor& logp) {
  double sum = 0;
  for (int64_t i = 0; i < logp.numel(); ++i) sum += logp.const_data_ptr<float>()[i];
  return sum;
}

class SftRun {
 public:
  SftRun(const RunConfig& config, const RunHost& host);
  RunOutcome run();

 private:
  data::SftFormat format(bool training) const;
  void train_step(int64_t step, const std::vector<SftRow>& rows);
  StepTotals forward_backward(int64_t step, const std::vector<SftRow>& rows);
  void evaluate(int64_t step);
  void warn_about_data();
  Json state() const { return {{"loader", loader_.state().to_json()}}; }
  std::vector<std::pair<std::string, std::string>> summary(int64_t step) const;

  Run run_;
  models::CausalLM& model_;
  data::Loader<SftRow> loader_;
  std::vector<std::unique_ptr<data::RowFile>> eval_files_;
};

SftRun::SftRun(const RunConfig& config, const RunHost& host)
    : run_(config, host),
      model_(*run_.policy.model),
      loader_(sources(config.data.train), loader_options(config, config.train.batch_size),
              data::sft_reader(format(true))) {
  for (const DataSource& s : config.data.eval)
    eval_files_.push_back(std::make_unique<data::RowFile>(s.path));
}

data::SftFormat SftRun::format(bool training) const {
  const DataSection& section = run_.config.data;
  data::SftFormat f;
  f.tokenizer = run_.policy.tokenizer;
  f.chat = run_.policy.chat;
  f.columns = section.columns;
  f.train_on = static_cast<TrainOn>(section.train_on);
  f.max_length = section.max_length;
  f.overlong = static_cast<data::Overlong>(section.overlong);
  if (!training && f.overlong == data::Overlong::kError) f.overlong = data::Overlong::kTruncate;
  f.vocabulary = model_.vocab_size;
  if (!model_.eos_token_ids.empty()) f.eos = model_.eos_token_ids[0];
  return f;
}

StepTotals SftRun::forward_backward(int64_t step, const std::vector<SftRow>& rows) {
  StepTotals totals;
  std::vector<int64_t> lengths;
  for (const SftRow& row : rows) {
    lengths.push_back(static_cast<int64_t>(row.tokens.size()));
    totals.tokens += static_cast<double>(lengths.back());
    totals.supervised_tokens += static_cast<double>(row.supervised());
  }
  const dist::Group& group = *run_.group;
  const std::vector<size_t> mine =
      data::split_rows(lengths, group.size())[static_cast<size_t>(group.rank())];
  std::vector<int64_t> my_lengths;
  for (const size_t i : mine) my_lengths.push_back(lengths[i]);
  double logp_sum = 0;
  for (const std::vector<size_t>& pass :
       data::pack_rows(my_lengths, run_.config.train.micro_batch_tokens)) {
    MicroBatch batch;
    for (const size_t i : pass) batch.add(rows[mine[i]], mine[i]);
    totals.tokens_computed += static_cast<double>(batch.forest->num_tokens());
    if (batch.target.empty()) continue;
    batch.dropout.seed = static_cast<uint64_t>(run_.config.seed);
    batch.dropout.step = static_cast<uint64_t>(step);
    const at::Tensor hidden = model_.forward(
        {.forest = batch.forest,
         .dropout = &batch.dropout,
         .recompute = run_.config.train.recompute == TrainSection::Recompute::kBlocks});
    const at::Tensor logp = model_.token_logp(hidden, batch.at, batch.target).logp;
    logp_sum += sum_of(logp);
    // d loss / d logp is the same for every token: minus one over the step's supervised tokens,
    // whatever the split.
    const at::Tensor gradient =
        at::full({logp.numel()}, -1.0 / totals.supervised_tokens, at::kFloat);
    torch::autograd::backward({logp}, {gradient});
  }
  std::vector<double> sums{logp_sum, totals.tokens_computed};
  run_.group->all_reduce_sum(sums);
  totals.loss = totals.supervised_tokens > 0 ? -sums[0] / totals.supervised_tokens : 0;
  totals.tokens_computed = sums[1];
  return totals;
}

void SftRun::train_step(int64_t step, const std::vector<SftRow>& rows) {
  const double start = wall_seconds();
  const StepTotals totals = forward_backward(step, rows);
  MetricsRow row = run_.update(step, totals);
  const auto& sources = loader_.order().sources();
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    row.set("rows/" + sources[i].name, loader_.state().counts[i]);
  run_.log(std::move(row), totals, wall_seconds() - start);
}

void SftRun::evaluate(int64_t step) {
  if (eval_files_.empty() || run_.evaluated(step)) return;
  run_.set_evaluated(step);
  const at::NoGradGuard no_grad;
  const data::SftFormat form = format(false);
  std::vector<double> sums(3);  // log-probability, tokens, rows
  MicroBatch batch;
  const auto flush = [&] {
    if (!batch.target.empty()) {
      const at::Tensor hidden = model_.forward({.forest = batch.forest});
      sums[0] += sum_of(model_.token_logp(hidden, batch.at, batch.target).logp);
      sums[1] += static_cast<double>(batch.target.size());
    }
    batch = MicroBatch();
  };
  int64_t index = 0;
  for (const auto& file : eval_files_) {
    for (int64_t r = 0; r < file->size(); ++r, ++index) {
      if (index % run_.group->size() != run_.group->rank()) continue;
      bool truncated = false;
      const std::optional<SftRow> row =
          data::read_sft_row(form, file->row(r), file->where(r), &truncated);
      if (!row) continue;
      if (batch.forest->num_tokens() + static_cast<int64_t>(row->tokens.size()) >
          run_.config.train.micro_batch_tokens)
        flush();
      batch.add(*row, 0);
      ++sums[2];
    }
  }
  flush();
  run_.group->all_reduce_sum(sums);
  MetricsRow row(step);
  row.set("eval/loss", sums[1] > 0 ? -sums[0] / sums[1] : 0.0);
  row.set("eval/supervised_tokens", static_cast<int64_t>(sums[1]));
  row.set("eval/rows", static_cast<int64_t>(sums[2]));
  run_.log(row);
}

void SftRun::warn_about_data() {
  const data::LoaderState& s = loader_.state();
  const int64_t longest = run_.config.data.max_length;
  if (s.truncated > 0)
    run_.warn(temper::str(s.truncated, " of ", s.rows, " rows were longer than data.max_length ",
                          longest, " and were cut"));
  if (s.dropped > 0)
    run_.warn(temper::str(s.dropped, " rows were longer than data.max_length ", longest,
                          " and were left out"));
  if (s.untrained > 0) run_.warn(temper::str(s.untrained, " of ", s.rows, " rows train no token"));
  if (s.rows > 0 && s.with_eos == 0 && !model_.eos_token_ids.empty())
    run_.warn(temper::str("no row trains the end token ", model_.eos_token_ids[0],
                          ": the model will not learn to stop"));
}

std::vector<std::pair<std::string, std::string>> SftRun::summary(int64_t step) const {
  const data::LoaderState& rows = loader_.state();
  std::vector<std::pair<std::string, std::string>> lines{
      {"steps", std::to_string(step)},
      {"rows", std::to_string(rows.rows)},
      {"rows cut", std::to_string(rows.truncated)},
      {"rows left out", std::to_string(rows.dropped)}};
  const auto& sources = loader_.order().sources();
  for (size_t i = 0; i < sources.size() && sources.size() > 1; ++i)
    lines.emplace_back("rows of " + sources[i].name, std::to_string(rows.counts[i]));
  return lines;
}

RunOutcome SftRun::run() {
  const TrainSection& train = run_.config.train;
  const int64_t steps =
      train.max_steps ? *train.max_steps : loader_.order().steps(*loader_.order().options().epochs);
  if (!run_.begin(steps, [this](const Json& state, const std::string& where) {
        loader_.restore(loader_state(state, where));
      }))
    return {false, steps};
  int64_t step = run_.first_step();
  bool stopped = false;
  for (; step <= steps && !stopped; ++step) {
    const std::vector<SftRow> rows = loader_.next();
    if (rows.empty()) break;
    train_step(step, rows);
    if (step == run_.first_step()) warn_about_data();
    if (train.eval_every > 0 && step % train.eval_every == 0) evaluate(step);
    stopped = run_.should_stop() && step < steps;
    if (stopped || (train.save_every > 0 && step % train.save_every == 0)) run_.save(step, state());
  }
  const int64_t last = step - 1;
  if (!stopped) {
    evaluate(last);
    warn_about_data();
    run_.finish(last, state());
  }
  run_.close(summary(last));
  return {stopped, last};
}

}  // namespace

RunOutcome run_sft(const RunConfig& config, const RunHost& host) {
  return SftRun(config, host).run();
}

}  // namespace temper::train
