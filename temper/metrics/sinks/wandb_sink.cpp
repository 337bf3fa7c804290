// OUTPUT_DIR/wandb/offline-run-TIME-ID/run-ID.wandb, an offline run of Weights & Biases:
//
//   wandb sync OUTPUT_DIR/wandb/offline-run-*
//
// uploads it. The environment's WANDB_PROJECT, WANDB_ENTITY and WANDB_NAME say where to and under
// what name; otherwise the project is "temper" and the name that of the output directory. A run
// that resumes goes on in the same file.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/metrics/sink.h"
#include "temper/metrics/sinks/wandb_log.h"

namespace temper {
namespace fs = std::filesystem;
namespace {

using Items = std::vector<std::pair<std::string, std::string>>;

std::string environment(const char* name, const std::string& otherwise = {}) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

// Eight letters and digits, as W&B's own.
std::string new_id() {
  constexpr std::string_view kCharacters = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::random_device device;
  std::string id;
  for (int i = 0; i < 8; ++i) id += kCharacters[device() % kCharacters.size()];
  return id;
}

// JSON as Python reads it, which has names for NaN and infinities.
std::string value_json(const MetricsRow::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return dump_json(Json(*text));
  const std::string number = to_text(value);
  if (number == "nan") return "NaN";
  if (number.ends_with("inf")) return number[0] == '-' ? "-Infinity" : "Infinity";
  return number;
}

std::string histogram_json(const Histogram& histogram) {
  return dump_json(
      {{"_type", "histogram"}, {"bins", histogram.edges}, {"values", histogram.counts}});
}

void set(Items& items, const std::string& name, std::string json) {
  for (auto& [known, old] : items)
    if (known == name) {
      old = std::move(json);
      return;
    }
  items.emplace_back(name, std::move(json));
}

std::string last_name(const std::string& directory) {
  const fs::path path = fs::absolute(directory).lexically_normal();
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

class WandbSink : public Sink {
 public:
  explicit WandbSink(const SinkOptions& options)
      : directory_(options.output_dir + "/wandb"),
        name_(last_name(options.output_dir)),
        config_(options.config),
        started_(wall_seconds()) {
    std::error_code error;
    fs::create_directories(directory_, error);
    check(!error, directory_, ": cannot create: ", error.message());
  }
  // The rows of one step are one of W&B's, which is written again when another one comes: a run
  // that is killed loses none.
  void log(const MetricsRow& row) override {
    if (row.step() != step_) begin_row();
    for (const auto& [name, value] : row.values())
      if (name != "step") set(row_, name, value_json(value));
    for (const auto& [name, histogram] : row.histograms())
      set(row_, name, histogram_json(histogram));
    set(row_, "_timestamp", to_text(wall_seconds()));
    set(row_, "_runtime", to_text(wall_seconds() - started_));
    write_row(row.step());
  }

  // The file is written again with the rows that stay, so `wandb sync` uploads all of it again. The
  // config stays that of the first start, and the run's time goes on from the last of these rows.
  void truncate_after(int64_t step) override {
    out_.close();
    records_ = 0;
    step_ = -1;
    row_.clear();
    summary_.clear();
    const std::string path = newest_run();
    if (path.empty()) return;
    if (step < 0) {
      fs::remove_all(fs::path(path).parent_path());
      return;
    }
    std::string kept = wandb_header();
    for (const std::string& record : read_wandb_records(read_file(path))) {
      const int64_t of = wandb_history_step(record);
      const bool begins = records_ < 2;  // the header and the run
      if (!begins && (of < 0 || of > step)) continue;
      if (!begins) take(record, kept.size());
      kept += wandb_frames(record, kept.size());
      ++records_;
    }
    if (records_ < 2) return;  // damaged: a new run
    write_file_atomic(path, kept);
    fs::remove(path + ".synced");
    open(path);
  }

  void remove_evaluation(int64_t step) override {
    if (step != step_ || !out_.is_open()) return;
    const auto is_eval = [](const auto& item) { return item.first.starts_with("eval/"); };
    std::erase_if(row_, is_eval);
    if (std::any_of(row_.begin(), row_.end(),
                    [](const auto& item) { return !item.first.starts_with('_'); })) {
      write_row(step);
    } else {
      take_back_row();
      step_ = -1;
      row_.clear();
    }
  }

  void finish() override {
    if (!out_.is_open() || step_ < 0) return;
    Items summary = summary_;
    for (const auto& [name, json] : row_) set(summary, name, json);
    set(summary, "_step", std::to_string(step_));
    write(wandb_summary_record(++records_, summary));
    write(wandb_exit_record(++records_, static_cast<int64_t>(wall_seconds() - started_)));
  }

 private:
  // The file of an earlier start in this output directory, or nothing.
  std::string newest_run() const {
    std::string newest;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("offline-run-")) continue;
      const std::string path =
          entry.path().string() + "/run-" + name.substr(name.rfind('-') + 1) + ".wandb";
      if (path > newest && fs::exists(path)) newest = path;
    }
    return newest;
  }

  void open(const std::string& path) {
    path_ = path;
    out_.open(path_, std::ios::app | std::ios::binary);
    check(out_.good(), path_, ": cannot write");
    size_ = fs::file_size(path_);
  }

  void begin() {
    const std::time_t now = static_cast<std::time_t>(started_);
    std::tm local{};
    ::localtime_r(&now, &local);
    char time[32];
    std::strftime(time, sizeof time, "%Y%m%d_%H%M%S", &local);
    char host[256] = "localhost";
    ::gethostname(host, sizeof host - 1);
    const std::string id = new_id();
    const std::string directory = directory_ + "/offline-run-" + time + "-" + id;
    fs::create_directories(directory + "/files");
    write_file_atomic(directory + "/run-" + id + ".wandb", wandb_header());
    open(directory + "/run-" + id + ".wandb");
    records_ = 1;
    write(wandb_first_record());
    write(wandb_run_record(++records_,
                           {id, environment("WANDB_PROJECT", "temper"), environment("WANDB_ENTITY"),
                            environment("WANDB_NAME", name_), host, started_, config_}));
  }

  void begin_row() {
    for (auto& [name, json] : row_) set(summary_, name, std::move(json));
    row_.clear();
  }

  // A row that stays in the file, where it begins `at` bytes into it.
  void take(const std::string& record, uint64_t at) {
    begin_row();
    row_ = wandb_history_items(record);
    step_ = wandb_history_step(record);
    row_at_ = at;
    for (const auto& [name, json] : row_)
      if (name == "_runtime") started_ = wall_seconds() - std::atof(json.c_str());
  }

  // Writes row_ as the row of this step, in the place of what was written of it before. That is
  // there until the new one is: a run may be killed at any moment.
  void write_row(int64_t step) {
    if (!out_.is_open()) begin();
    if (step != step_) {
      step_ = step;
      row_at_ = size_;
      write(wandb_history_record(++records_, step, row_));
      return;
    }
    out_.close();
    std::string whole = read_file(path_).substr(0, row_at_);
    whole += wandb_frames(wandb_history_record(records_, step, row_), row_at_);
    write_file_atomic(path_, whole);
    open(path_);
  }

  // The file then ends before the last row.
  void take_back_row() {
    fs::resize_file(path_, row_at_);
    size_ = row_at_;
    --records_;
  }

  void write(const std::string& record) {
    const std::string bytes = wandb_frames(record, size_);
    out_ << bytes << std::flush;
    check(out_.good(), path_, ": cannot write");
    size_ += bytes.size();
  }

  std::string directory_, name_, path_;
  Items config_;
  double started_;
  std::ofstream out_;  // closed until the first row
  uint64_t size_ = 0;  // bytes of the file
  int64_t records_ = 0;
  int64_t step_ = -1;    // of the last row; -1: there is none
  Items row_;            // the last row
  uint64_t row_at_ = 0;  // where it begins in the file
  Items summary_;        // newest values of the rows before it
};

std::unique_ptr<Sink> make_wandb_sink(const SinkOptions& options) {
  return std::make_unique<WandbSink>(options);
}

const Registered<MakeSink> kWandbSink(&sinks,
                                      {"wandb", &make_wandb_sink,
                                       "OUTPUT_DIR/wandb/, an offline run for `wandb sync`"});

}  // namespace
}  // namespace temper
