#include "temper/train/run.h"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper::train {
namespace fs = std::filesystem;

std::vector<data::SourceSpec> sources(const std::vector<DataSource>& section) {
  std::vector<data::SourceSpec> specs;
  for (const DataSource& s : section) specs.push_back({s.path, s.weight, s.name});
  return specs;
}

data::LoaderOptions loader_options(const RunConfig& config, int64_t batch_size) {
  data::LoaderOptions options{batch_size, config.data.shuffle, static_cast<uint64_t>(config.seed),
                              std::nullopt};
  if (!config.train.max_steps) options.epochs = config.train.epochs.value_or(1);
  return options;
}

data::LoaderState loader_state(const Json& checkpoint, const std::string& where) {
  check<DataError>(checkpoint.contains("loader"), where, ": no `loader`");
  return data::LoaderState::from_json(checkpoint["loader"], where);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

Run::Run(const RunConfig& run_config, RunHost run_host)
    : config(run_config),
      host(std::move(run_host)),
      group(dist::Group::from_environment()),
      policy(load_policy(config)),
      optimizer(config.optimizer, trainable_parameters(*policy.model)),
      checkpoints_(config.output_dir, config.train.keep_checkpoints) {
  fs::create_directories(config.output_dir);
}

bool Run::begin(int64_t steps,
                const std::function<void(const Json&, const std::string&)>& restore) {
  steps_ = steps;
  if (writer()) {
    const SinkOptions options{config.output_dir, steps_, &host.console, host.terminal, 100};
    metrics_ =
        std::make_unique<Metrics>(config.metrics.sinks, options, config.where("metrics.sinks"));
  }
  std::optional<std::string> from;
  if (config.resume == "auto")
    from = checkpoints_.newest();
  else if (config.resume != "never")
    from = config.resume;
  bool complete = false;
  if (from) {
    const Json state = Checkpoints::load(*from, optimizer);
    restore(state, *from + "/state.json");
    saved_ = state["step"].get<int64_t>();
    first_step_ = saved_ + 1;
    complete = (state.value("complete", false) || saved_ >= steps_) &&
               fs::exists(config.output_dir + "/final");
  }
  std::vector<double> last_evaluation{0};
  if (writer()) {
    metrics_->truncate_after(from ? saved_ : -1);
    if (complete)
      host.console << config.output_dir << ": this run is complete; its model is in final/"
                   << std::endl;
    else if (from)
      host.console << "resuming from " << *from << std::endl;
    if (!complete)
      write_file_atomic(config.output_dir + "/config.yaml", dump_run_config(config, true));
    for (const MetricsRow& row : read_metrics_file(config.output_dir + "/metrics.jsonl"))
      if (row.is_eval()) last_evaluation[0] = static_cast<double>(row.step());
  }
  group->all_reduce_sum(last_evaluation);
  evaluated_ = static_cast<int64_t>(last_evaluation[0]);
  return !complete;
}

void Run::reduce_gradients() {
  if (group->size() == 1) return;
  for (const NamedParameter& p : optimizer.parameters()) {
    at::Tensor& grad = p.parameter->value().mutable_grad();
    if (!grad.defined()) grad = at::zeros(p.parameter->shape(), at::kFloat);
    group->all_reduce_sum(grad);
  }
}

MetricsRow Run::update(int64_t step, const StepTotals& totals) {
  reduce_gradients();
  const double norm = optimizer.grad_norm();
  check(std::isfinite(totals.loss) && std::isfinite(norm), "step ", step, ": the loss is ",
        totals.loss, " and the gradient's norm ", norm,
        "; a lower optimizer.learning_rate may help");
  const double limit = config.optimizer.max_grad_norm;
  const double rate = learning_rate(config.optimizer, step, steps_);
  optimizer.step(rate, limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0);
  MetricsRow row(step);
  row.set("loss", totals.loss);
  row.set("grad_norm", norm);
  row.set("learning_rate", rate);
  row.set("tokens", static_cast<int64_t>(totals.tokens));
  row.set("tokens_computed", static_cast<int64_t>(totals.tokens_computed));
  row.set("supervised_tokens", static_cast<int64_t>(totals.supervised_tokens));
  row.set("padding_tokens", 0);
  return row;
}

void Run::log(MetricsRow row, const StepTotals& totals, double seconds) {
  row.set("step_seconds", seconds);
  row.set("tokens_per_second", totals.tokens / seconds);
  row.set("peak_memory_bytes", peak_memory_bytes());
  log(row);
}

void Run::log(const MetricsRow& row) {
  if (writer()) metrics_->log(row);
}

void Run::warn(const std::string& message) {
  if (writer()) metrics_->warn(message);
}

void Run::note(const std::string& text) {
  if (writer()) metrics_->note(text);
}

bool Run::should_stop() {
  std::vector<double> asked{host.stop() ? 1.0 : 0.0};
  group->all_reduce_sum(asked);
  return asked[0] > 0;
}

void Run::save(int64_t step, Json state) {
  if (saved_ == step || !writer()) return;
  checkpoints_.save(step, optimizer, state);
  saved_ = step;
}

void Run::finish(int64_t step, Json state) {
  if (!writer()) return;
  checkpoints_.write_final(
      [&](const std::string& directory) { save_policy(policy, config.model.path, directory); });
  if (saved_ == step && step >= steps_) return;
  state["complete"] = true;
  checkpoints_.save(step, optimizer, state);
}

void Run::close(std::vector<std::pair<std::string, std::string>> summary,
                std::vector<Report::Table> tables) {
  group->barrier();
  if (!writer()) return;
  metrics_->finish();
  summary.emplace_back("peak memory, MB", std::to_string(peak_memory_bytes() / 1000000));
  Report page{config.verb.value_or("run") + " of " + config.model.path,
              read_metrics_file(config.output_dir + "/metrics.jsonl"), std::move(summary),
              dump_run_config(config), std::move(tables)};
  write_file_atomic(config.output_dir + "/report.html", render_report(page));
}

}  // namespace temper::train
