#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "temper/base/error.h"
#include "temper/metrics/sink.h"
#include "temper/metrics/tfevents.h"

namespace temper {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A file a start of the run: a reader takes a directory's files together.
std::string event_file(const std::string& directory) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return str(directory, "/events.out.tfevents.", static_cast<int64_t>(wall_time()), ".", host, ".",
             ::getpid());
}

class TensorboardSink : public Sink {
 public:
  explicit TensorboardSink(const SinkOptions& options) {
    const std::string directory = options.output_dir + "/tensorboard";
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    check(!error, directory, ": cannot create: ", error.message());
    path_ = event_file(directory);
    out_.open(path_, std::ios::app | std::ios::binary);
    write(version_event(wall_time()));
  }

  void log(const MetricsRow& row) override {
    std::vector<std::pair<std::string, float>> scalars;
    for (const auto& [name, value] : row.values())
      if (const auto number = row.number(name); number && name != "step")
        scalars.emplace_back(name.find('/') == std::string::npos ? "train/" + name : name,
                             static_cast<float>(*number));
    write(scalar_event(wall_time(), row.step(), scalars));
  }

  // Readers forget what earlier files say of these steps.
  void truncate_after(int64_t step) override { write(session_start_event(wall_time(), step + 1)); }

 private:
  void write(const std::string& event) {
    out_ << tf_record(event) << std::flush;
    check(out_.good(), path_, ": cannot write");
  }

  std::string path_;
  std::ofstream out_;
};

std::unique_ptr<Sink> make_tensorboard_sink(const SinkOptions& options) {
  return std::make_unique<TensorboardSink>(options);
}

const Registered<MakeSink> kTensorboardSink(&sinks, {"tensorboard", &make_tensorboard_sink,
                                                     "OUTPUT_DIR/tensorboard/, event files"});

}  // namespace
}  // namespace temper
