// OUTPUT_DIR/tensorboard/events.out.tfevents.*, a file a start of the run:
//
//   tensorboard --logdir OUTPUT_DIR
//
// A run that resumes leaves the points that an uninterrupted one leaves.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/sink.h"
#include "temper/metrics/sinks/tfevents.h"

namespace temper {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The event files of a directory. Readers take them together, in the order of their names. Without
// what a crash left of a file that was being replaced.
std::vector<std::string> event_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (const std::string name = entry.path().filename();
        name.starts_with(kPrefix) && name.find(".tmp-") == std::string::npos)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// A file a start of the run. Its name has a later second than those of earlier starts, so that it
// is read after them.
std::string new_event_file(const std::string& directory) {
  auto second = static_cast<int64_t>(wall_seconds());
  for (const std::string& file : event_files(directory)) {
    const std::string name = std::filesystem::path(file).filename();
    second = std::max<int64_t>(second, std::atoll(name.c_str() + kPrefix.size()) + 1);
  }
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return str(directory, "/", kPrefix, second, ".", host, ".", ::getpid());
}

class TensorboardSink : public Sink {
 public:
  explicit TensorboardSink(const SinkOptions& options)
      : directory_(options.output_dir + "/tensorboard") {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    check(!error, directory_, ": cannot create: ", error.message());
  }

  void log(const MetricsRow& row) override {
    const auto tag = [](const std::string& name) {
      return name.find('/') == std::string::npos ? "train/" + name : name;
    };
    std::vector<std::pair<std::string, float>> scalars;
    for (const auto& [name, value] : row.values())
      if (const auto number = row.number(name); number && name != "step")
        scalars.emplace_back(tag(name), static_cast<float>(*number));
    write(scalar_event(wall_seconds(), row.step(), scalars));
    for (const auto& [name, histogram] : row.histograms())
      write(histogram_event(wall_seconds(), row.step(), tag(name), histogram));
  }

  // Earlier files lose these steps; a TensorBoard that has read them already is told to forget
  // them.
  void truncate_after(int64_t step) override {
    if (step < 0)
      for (const std::string& file : event_files(directory_)) std::filesystem::remove(file);
    cut([step](const ScalarEvent& event) { return event.step <= step; });
    write(session_start_event(wall_seconds(), step + 1));
  }

  // A reader can be told to forget a step as a whole alone: what stays of it is written again.
  void remove_evaluation(int64_t step) override {
    std::vector<std::string> again;
    cut([step](const ScalarEvent& event) { return event.step != step; }, &again);
    write(session_start_event(wall_seconds(), step));
    for (const std::string& event : again)
      if (!read_scalar_event(event).tags[0].starts_with("eval/")) write(event);
  }

 private:
  // Takes events of scalars that `stays` is not true for out of the files of earlier starts, and
  // what a crash left half-written.
  void cut(const std::function<bool(const ScalarEvent& event)>& stays,
           std::vector<std::string>* removed = nullptr) {
    for (const std::string& file : event_files(directory_)) {
      if (file == path_) continue;
      const std::string bytes = read_file(file);
      std::string kept;
      for (std::string& event : read_tf_records(bytes)) {
        const ScalarEvent of = read_scalar_event(event);
        if (of.tags.empty() || stays(of))
          kept += tf_record(event);
        else if (removed)
          removed->push_back(std::move(event));
      }
      if (kept != bytes) write_file_atomic(file, kept);
    }
  }

  void write(const std::string& event) {
    if (!out_.is_open()) {
      path_ = new_event_file(directory_);
      out_.open(path_, std::ios::app | std::ios::binary);
      out_ << tf_record(version_event(wall_seconds()));
    }
    out_ << tf_record(event) << std::flush;
    check(out_.good(), path_, ": cannot write");
  }

  std::string directory_;
  std::string path_;   // empty until the first event
  std::ofstream out_;  // closed until the first event
};

std::unique_ptr<Sink> make_tensorboard_sink(const SinkOptions& options) {
  return std::make_unique<TensorboardSink>(options);
}

const Registered<MakeSink> kTensorboardSink(
    &sinks, {"tensorboard", &make_tensorboard_sink,
             "OUTPUT_DIR/tensorboard/, event files for `tensorboard --logdir`"});

}  // namespace
}  // namespace temper
