#include "temper/train/run.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

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

namespace {

// Refused before a model is read.
const RunConfig& with_output_dir(const RunConfig& config) {
  check<ConfigError>(!fs::exists(config.output_dir) || fs::is_directory(config.output_dir),
                     config.where("output_dir"), ": ", config.output_dir, " is no directory");
  return config;
}

}  // namespace

struct Run::Lock {
  explicit Lock(const RunConfig& config) {
    const std::string path = config.output_dir + "/.lock";
    file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    check<ConfigError>(file >= 0, config.where("output_dir"), ": cannot write to ",
                       config.output_dir, ": ", std::strerror(errno));
    const bool locked = ::flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked) ::close(file);
    check<ConfigError>(locked || errno != EWOULDBLOCK, config.where("output_dir"),
                       ": another run is writing to ", config.output_dir);
  }
  ~Lock() { ::close(file); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  int file;
};

Run::Run(const RunConfig& run_config, RunHost run_host)
    : config(with_output_dir(run_config)),
      host(std::move(run_host)),
      group(dist::Group::from_environment()),
      policy(load_policy(config)),
      optimizer(config.optimizer, trainable_parameters(*policy.model)),
      checkpoints_(config.output_dir, config.train.keep_checkpoints) {
  std::error_code failed;
  fs::create_directories(config.output_dir, failed);
  check<ConfigError>(!failed, config.where("output_dir"), ": cannot make the directory ",
                     config.output_dir, ": ", failed.message());
  if (writer()) lock_ = std::make_unique<Lock>(config);
}

Run::~Run() = default;

// A checkpoint that is damaged is passed over for the one before; where none is whole, the newest
// one's error stands.
std::optional<Json> Run::load_checkpoint(std::string& where) {
  if (config.resume == "never") return {};
  where = config.resume;
  if (config.resume != "auto") return Checkpoints::load(where, optimizer);
  std::exception_ptr first;
  for (const std::string& directory : checkpoints_.all()) {
    try {
      where = directory;
      Json state = Checkpoints::load(directory, optimizer);
      return state;
    } catch (const DataError& e) {
      if (!first) first = std::current_exception();
      warn(temper::str("passed over a checkpoint: ", e.what()));
    }
  }
  if (first) std::rethrow_exception(first);
  return {};
}

// Lines of the resolved config that an earlier part of the run did not have.
void Run::point_out_changes() {
  const std::string path = config.output_dir + "/config.yaml";
  if (!fs::exists(path)) return;
  std::ifstream before(path);
  std::set<std::string> known;
  for (std::string line; std::getline(before, line);) known.insert(line);
  std::istringstream now(dump_run_config(config, true));
  std::string changed;
  for (std::string line; std::getline(now, line);) {
    const size_t text = line.find_first_not_of(" -");
    const bool same = text == std::string::npos || known.contains(line);
    if (!same && !line.starts_with("resume:"))
      changed += (changed.empty() ? "" : ", ") + line.substr(text);
  }
  if (!changed.empty()) warn("the run goes on with other settings than it began with: " + changed);
}

bool Run::begin(int64_t steps,
                const std::function<void(const Json&, const std::string&)>& restore) {
  steps_ = steps;
  if (writer()) {
    const SinkOptions options{config.output_dir, steps_, &host.console, host.terminal, 100};
    metrics_ =
        std::make_unique<Metrics>(config.metrics.sinks, options, config.where("metrics.sinks"));
  }
  std::string from;
  const std::optional<Json> state = load_checkpoint(from);
  bool complete = false;
  int64_t resumed = -1;
  if (state) {
    check<DataError>(!state->contains("verb") || (*state)["verb"] == config.verb.value_or(""), from,
                     ": a checkpoint of another verb, ", dump_json(state->value("verb", Json())));
    restore(*state, from + "/state.json");
    resumed = (*state)["step"].get<int64_t>();
    first_step_ = resumed + 1;
    // A run may end before its last step where its data does; with another plan it goes on.
    complete = state->value("complete", false) && fs::exists(config.output_dir + "/final") &&
               (resumed >= steps_ || state->value("planned_steps", Json()) == steps_);
  }
  std::vector<double> last_evaluation{0};
  if (writer()) {
    metrics_->truncate_after(resumed);
    if (complete)
      host.console << config.output_dir << ": this run is complete; its model is in final/"
                   << std::endl;
    else if (state)
      host.console << "resuming from " << from << std::endl;
    if (!complete) {
      if (state) point_out_changes();
      write_file_atomic(config.output_dir + "/config.yaml", dump_run_config(config, true));
    }
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
  state["verb"] = config.verb.value_or("");
  state["planned_steps"] = steps_;
  checkpoints_.save(step, optimizer, state);
  saved_ = step;
}

// The model first: `complete` says that it is there.
void Run::finish(int64_t step, Json state) {
  if (!writer()) return;
  checkpoints_.write_final(
      [&](const std::string& directory) { save_policy(policy, config.model.path, directory); });
  save(step, std::move(state));
  checkpoints_.mark_complete(step);
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
