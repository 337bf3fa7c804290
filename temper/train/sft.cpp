#include "temper/train/sft.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/loader.h"
#include "temper/dist/group.h"
#include "temper/metrics/report.h"
#include "temper/metrics/sink.h"
#include "temper/models/adapter.h"
#include "temper/models/load.h"
#include "temper/train/checkpoint.h"

namespace temper::train {
namespace {
namespace fs = std::filesystem;
using data::SftRow;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

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

std::vector<int64_t> lengths_of(const std::vector<SftRow>& rows) {
  std::vector<int64_t> lengths;
  for (const SftRow& row : rows) lengths.push_back(static_cast<int64_t>(row.tokens.size()));
  return lengths;
}

struct StepTotals {
  double loss_sum = 0, supervised = 0, tokens = 0, computed = 0;
};

class SftRun {
 public:
  SftRun(const RunConfig& config, std::ostream& console, bool terminal, const std::function<bool()>& stop)
      : config_(config), console_(console), terminal_(terminal), stop_(stop), checkpoints_(config.output_dir, config.train.keep_checkpoints) {}

  RunOutcome run();

 private:
  bool writer() const { return group_->rank() == 0; }
  void build_model();
  void build_data();
  data::SftFormat format(bool training) const;
  bool resume();  // false: the run is complete
  void train_step(int64_t step, const std::vector<SftRow>& rows);
  StepTotals forward_backward(int64_t step, const std::vector<SftRow>& rows);
  void reduce_gradients();
  void evaluate(int64_t step);
  void save(int64_t step);
  void finish(int64_t step);
  void warn_about_data();
  void report(int64_t step);

  const RunConfig& config_;
  std::ostream& console_;
  bool terminal_;
  const std::function<bool()>& stop_;
  Checkpoints checkpoints_;
  std::shared_ptr<dist::Group> group_;
  std::unique_ptr<models::CausalLM> model_;
  std::optional<models::LoraConfig> lora_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<std::unique_ptr<data::RowFile>> eval_files_;
  std::unique_ptr<Metrics> metrics_;
  int64_t steps_ = 0, first_step_ = 1, saved_ = -1, evaluated_ = -1;
};

void SftRun::build_model() {
  check<ConfigError>(config_.model.device != ModelSection::Device::kCuda, config_.where("model.device"), ": this build has no CUDA; use cpu or auto");
  check<ConfigError>(config_.model.dtype == ModelSection::Dtype::kFloat32, config_.where("model.dtype"),
                     ": bfloat16 compute is not in this build on a CPU; use float32 (bfloat16 weights are read and converted)");
  check<ConfigError>(config_.adapter.method != AdapterSection::Method::kQlora, config_.where("adapter.method"), ": qlora is not in this build; use lora");
  model_ = models::load_model(config_.model.path);
  const AdapterSection& a = config_.adapter;
  if (a.path) {
    lora_ = models::load_adapter(*model_, *a.path);
    const auto agree = [&](const char* key, bool same, auto found) {
      check<ConfigError>(!config_.was_set(key) || same, config_.where(key), ": the adapter ", *a.path, " says ", found, "; leave the key out or make it agree");
    };
    agree("adapter.rank", a.rank == lora_->rank, lora_->rank);
    agree("adapter.alpha", a.alpha == lora_->alpha, lora_->alpha);
    if (config_.was_set("adapter.dropout")) lora_->dropout = a.dropout;
  } else if (a.method == AdapterSection::Method::kLora) {
    lora_ = models::LoraConfig{a.rank, a.alpha, a.dropout, a.use_rslora, a.target_modules};
    models::add_lora(*model_, *lora_, static_cast<uint64_t>(config_.seed));
  } else {
    model_->each_parameter([](const std::string&, nn::Parameter& p) {
      p.own();
      p.set_trainable(true);
    });
  }
  optimizer_ = std::make_unique<Optimizer>(config_.optimizer, trainable_parameters(*model_));
}

data::SftFormat SftRun::format(bool training) const {
  data::SftFormat f;
  const std::string& directory = config_.model.path;
  if (fs::exists(directory + "/tokenizer.json")) f.tokenizer = Tokenizer::load(directory + "/tokenizer.json");
  if (f.tokenizer && ChatTemplate::exists(directory)) f.chat = std::make_shared<ChatTemplate>(ChatTemplate::load(directory));
  f.columns = config_.data.columns;
  f.train_on = static_cast<TrainOn>(config_.data.train_on);
  f.max_length = config_.data.max_length;
  f.overlong = static_cast<data::Overlong>(config_.data.overlong);
  if (!training && f.overlong == data::Overlong::kError) f.overlong = data::Overlong::kTruncate;
  f.vocabulary = model_->vocab_size;
  if (!model_->eos_token_ids.empty()) f.eos = model_->eos_token_ids[0];
  return f;
}

void SftRun::build_data() {
  std::vector<data::SourceSpec> sources;
  for (const DataSource& s : config_.data.train) sources.push_back({s.path, s.weight, s.name});
  data::LoaderOptions options{config_.train.batch_size, config_.data.shuffle, static_cast<uint64_t>(config_.seed), std::nullopt};
  if (!config_.train.max_steps) options.epochs = config_.train.epochs.value_or(1);
  loader_ = std::make_unique<data::Loader>(sources, format(true), options);
  for (const DataSource& s : config_.data.eval) eval_files_.push_back(std::make_unique<data::RowFile>(s.path));
  steps_ = config_.train.max_steps ? *config_.train.max_steps : loader_->steps(*options.epochs);
}

bool SftRun::resume() {
  if (config_.resume == "never") {
    if (writer()) metrics_->truncate_after(-1);
    return true;
  }
  std::optional<std::string> from = config_.resume == "auto" ? checkpoints_.newest() : std::optional(config_.resume);
  if (!from) {
    if (writer()) metrics_->truncate_after(-1);
    return true;
  }
  const Json state = Checkpoints::load(*from, *optimizer_);
  const int64_t step = state["step"].get<int64_t>();
  check<DataError>(state.contains("loader"), *from, "/state.json: no `loader`");
  loader_->restore(data::LoaderState::from_json(state["loader"], *from + "/state.json"));
  first_step_ = step + 1;
  saved_ = step;
  if (writer()) metrics_->truncate_after(step);
  const bool complete = state.value("complete", false) || step >= steps_;
  if (writer() && !(complete && fs::exists(config_.output_dir + "/final"))) console_ << "resuming from " << *from << std::endl;
  return !complete || !fs::exists(config_.output_dir + "/final");
}

StepTotals SftRun::forward_backward(int64_t step, const std::vector<SftRow>& rows) {
  StepTotals totals;
  std::vector<int64_t> lengths = lengths_of(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    totals.tokens += static_cast<double>(lengths[i]);
    totals.supervised += static_cast<double>(rows[i].supervised());
  }
  const std::vector<size_t> mine = data::split_rows(lengths, group_->size())[static_cast<size_t>(group_->rank())];
  std::vector<int64_t> my_lengths;
  for (const size_t i : mine) my_lengths.push_back(lengths[i]);
  for (const std::vector<size_t>& pass : data::pack_rows(my_lengths, config_.train.micro_batch_tokens)) {
    MicroBatch batch;
    for (const size_t i : pass) batch.add(rows[mine[i]], mine[i]);
    totals.computed += static_cast<double>(batch.forest->num_tokens());
    if (batch.target.empty()) continue;
    batch.dropout.seed = static_cast<uint64_t>(config_.seed);
    batch.dropout.step = static_cast<uint64_t>(step);
    const at::Tensor hidden = model_->forward({.forest = batch.forest,
                                                .dropout = &batch.dropout,
                                                .recompute = config_.train.recompute == TrainSection::Recompute::kBlocks});
    const at::Tensor logp = model_->token_logp(hidden, batch.at, batch.target).logp;
    const float* values = logp.const_data_ptr<float>();
    for (int64_t i = 0; i < logp.numel(); ++i) totals.loss_sum -= values[i];
    // d loss / d logp is the same for every token: minus one over the step's supervised tokens, whatever the split.
    const at::Tensor gradient = at::full({logp.numel()}, -1.0 / totals.supervised, at::kFloat);
    torch::autograd::backward({logp}, {gradient});
  }
  return totals;
}

void SftRun::reduce_gradients() {
  if (group_->size() == 1) return;
  for (const NamedParameter& p : optimizer_->parameters()) {
    at::Tensor& grad = p.parameter->value().mutable_grad();
    if (!grad.defined()) grad = at::zeros(p.parameter->shape(), at::kFloat);
    group_->all_reduce_sum(grad);
  }
}

void SftRun::train_step(int64_t step, const std::vector<SftRow>& rows) {
  const double start = seconds();
  StepTotals totals = forward_backward(step, rows);
  std::vector<double> sums{totals.loss_sum, totals.computed};
  group_->all_reduce_sum(sums);
  reduce_gradients();
  const double norm = optimizer_->grad_norm();
  const double loss = totals.supervised > 0 ? sums[0] / totals.supervised : 0;
  check(std::isfinite(loss) && std::isfinite(norm), "step ", step, ": the loss is ", loss, " and the gradient's norm ", norm,
        "; a lower optimizer.learning_rate may help");
  const double limit = config_.optimizer.max_grad_norm;
  const double rate = learning_rate(config_.optimizer, step, steps_);
  optimizer_->step(rate, limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0);
  if (!writer()) return;
  const double took = seconds() - start;
  MetricsRow row(step);
  row.set("loss", loss);
  row.set("grad_norm", norm);
  row.set("learning_rate", rate);
  row.set("tokens", static_cast<int64_t>(totals.tokens));
  row.set("tokens_computed", static_cast<int64_t>(sums[1]));
  row.set("supervised_tokens", static_cast<int64_t>(totals.supervised));
  row.set("padding_tokens", 0);
  if (loader_->sources().size() > 1)
    for (size_t i = 0; i < loader_->sources().size(); ++i) row.set("rows/" + loader_->sources()[i].name, loader_->state().counts[i]);
  row.set("step_seconds", took);
  row.set("tokens_per_second", totals.tokens / took);
  row.set("peak_memory_bytes", peak_memory());
  metrics_->log(row);
}

void SftRun::evaluate(int64_t step) {
  if (eval_files_.empty() || evaluated_ == step) return;
  evaluated_ = step;
  const at::NoGradGuard no_grad;
  const data::SftFormat form = format(false);
  double loss = 0, count = 0, rows_read = 0;
  MicroBatch batch;
  const auto flush = [&] {
    if (!batch.target.empty()) {
      const at::Tensor hidden = model_->forward({.forest = batch.forest});
      const at::Tensor logp = model_->token_logp(hidden, batch.at, batch.target).logp;
      for (int64_t i = 0; i < logp.numel(); ++i) loss -= logp.const_data_ptr<float>()[i];
      count += static_cast<double>(logp.numel());
    }
    batch = MicroBatch();
  };
  int64_t index = 0;
  for (const auto& file : eval_files_) {
    for (int64_t r = 0; r < file->size(); ++r, ++index) {
      if (index % group_->size() != group_->rank()) continue;
      bool truncated = false;
      const std::optional<SftRow> row = data::read_sft_row(form, file->row(r), file->where(r), &truncated);
      if (!row) continue;
      if (batch.forest->num_tokens() + static_cast<int64_t>(row->tokens.size()) > config_.train.micro_batch_tokens) flush();
      batch.add(*row, 0);
      ++rows_read;
    }
  }
  flush();
  std::vector<double> sums{loss, count, rows_read};
  group_->all_reduce_sum(sums);
  if (!writer()) return;
  MetricsRow row(step);
  row.set("eval/loss", sums[1] > 0 ? sums[0] / sums[1] : 0.0);
  row.set("eval/supervised_tokens", static_cast<int64_t>(sums[1]));
  row.set("eval/rows", static_cast<int64_t>(sums[2]));
  metrics_->log(row);
}

void SftRun::save(int64_t step) {
  if (saved_ == step || !writer()) return;
  checkpoints_.save(step, *optimizer_, {{"verb", "sft"}, {"loader", loader_->state().to_json()}});
  saved_ = step;
}

void SftRun::finish(int64_t step) {
  if (!writer()) return;
  checkpoints_.write_final([&](const std::string& directory) {
    if (lora_) {
      models::save_adapter(*model_, *lora_, config_.model.path, directory);
    } else {
      models::write_model_files({config_.model.path, config_.model.path}, directory, at::kFloat);
      models::save_weights(*model_, directory, at::kFloat);
    }
  });
  if (saved_ != step || step < steps_)
    checkpoints_.save(step, *optimizer_, {{"verb", "sft"}, {"loader", loader_->state().to_json()}, {"complete", true}});
}

void SftRun::warn_about_data() {
  const data::LoaderState& s = loader_->state();
  if (s.truncated > 0) metrics_->warn(temper::str(s.truncated, " of ", s.rows, " rows were longer than data.max_length ", config_.data.max_length, " and were cut"));
  if (s.dropped > 0) metrics_->warn(temper::str(s.dropped, " rows were longer than data.max_length ", config_.data.max_length, " and were left out"));
  if (s.untrained > 0) metrics_->warn(temper::str(s.untrained, " of ", s.rows, " rows train no token"));
  if (s.rows > 0 && s.with_eos == 0 && !model_->eos_token_ids.empty())
    metrics_->warn(temper::str("no row trains the end token ", model_->eos_token_ids[0], ": the model will not learn to stop"));
}

void SftRun::report(int64_t step) {
  Report page{"sft of " + config_.model.path, read_metrics_file(config_.output_dir + "/metrics.jsonl"), {}, dump_run_config(config_)};
  const data::LoaderState& rows = loader_->state();
  page.summary = {{"steps", std::to_string(step)}, {"rows", std::to_string(rows.rows)}, {"rows cut", std::to_string(rows.truncated)},
                  {"rows left out", std::to_string(rows.dropped)}, {"peak memory, MB", std::to_string(peak_memory() / 1000000)}};
  for (size_t i = 0; i < rows.counts.size() && rows.counts.size() > 1; ++i)
    page.summary.emplace_back("rows of " + loader_->sources()[i].name, std::to_string(rows.counts[i]));
  write_file_atomic(config_.output_dir + "/report.html", render_report(page));
}

RunOutcome SftRun::run() {
  group_ = dist::Group::from_environment();
  fs::create_directories(config_.output_dir);
  build_model();
  build_data();
  if (writer()) {
    SinkOptions options{config_.output_dir, steps_, &console_, terminal_, 100};
    metrics_ = std::make_unique<Metrics>(config_.metrics.sinks, options, config_.where("metrics.sinks"));
  }
  if (!resume()) {
    if (writer()) console_ << config_.output_dir << ": this run is complete; its model is in final/" << std::endl;
    return {false, steps_};
  }
  if (writer()) write_file_atomic(config_.output_dir + "/config.yaml", dump_run_config(config_, true));
  int64_t step = first_step_;
  bool stopped = false;
  for (; step <= steps_ && !stopped; ++step) {
    const std::vector<SftRow> rows = loader_->next();
    if (rows.empty()) break;
    train_step(step, rows);
    if (writer() && step == first_step_) warn_about_data();
    if (config_.train.eval_every > 0 && step % config_.train.eval_every == 0) evaluate(step);
    // Every rank stops at the same step, if one of them was asked to.
    std::vector<double> asked{stop_() ? 1.0 : 0.0};
    group_->all_reduce_sum(asked);
    stopped = asked[0] > 0 && step < steps_;
    if (stopped || (config_.train.save_every > 0 && step % config_.train.save_every == 0)) save(step);
  }
  const int64_t last = step - 1;
  if (!stopped) {
    evaluate(last);
    if (writer()) warn_about_data();
    finish(last);
  }
  group_->barrier();
  if (writer()) {
    metrics_->finish();
    report(last);
  }
  return {stopped, last};
}

}  // namespace

RunOutcome run_sft(const RunConfig& config, std::ostream& console, bool terminal, const std::function<bool()>& stop) {
  return SftRun(config, console, terminal, stop).run();
}

}  // namespace temper::train
