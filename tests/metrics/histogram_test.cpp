#include "temper/metrics/histogram.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <protozero/pbf_reader.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/sink.h"
#include "temper/metrics/sinks/tfevents.h"
#include "temper/metrics/sinks/wandb_log.h"

using namespace temper;
namespace fs = std::filesystem;

TEST_CASE("a histogram counts every finite value once") {
  const std::vector<double> values{0, 0, 1, 3, 3, 2.9, std::nan(""), HUGE_VAL};
  const Histogram h = histogram_of(values);
  CHECK(h.min == 0);
  CHECK(h.max == 3);
  CHECK(h.sum == doctest::Approx(9.9));
  CHECK(h.sum_squares == doctest::Approx(1 + 9 + 9 + 2.9 * 2.9));
  REQUIRE(h.edges.size() == h.counts.size() + 1);
  CHECK(std::accumulate(h.counts.begin(), h.counts.end(), int64_t{0}) == 6);
  CHECK(h.counts.front() == 2);
  CHECK(h.counts.back() == 2);  // of 2.9 to 3: 2.9 itself is on an edge that rounds
  const Histogram same = histogram_of(std::vector<double>{7, 7});
  CHECK(same.counts == std::vector<int64_t>{2});
  CHECK(same.edges == std::vector<double>{7, 7});
  CHECK(histogram_of({}).counts.empty());
}

TEST_CASE("TensorBoard and W&B get a row's histograms, and its JSON does not") {
  const fs::path directory = fs::temp_directory_path() / str("temper-histogram-", ::getpid());
  MetricsRow row(4);
  row.set("loss", 0.5);
  row.set_histogram("reward", histogram_of(std::vector<double>{1, 2, 2}));
  row.set_histogram("empty", histogram_of({}));
  CHECK(row.json() == R"({"step": 4, "loss": 0.5})");
  for (const char* name : {"tensorboard", "wandb"}) {
    const auto sink = sinks().find(name)({.output_dir = directory.string()});
    sink->truncate_after(-1);
    sink->log(row);
    sink->finish();
  }
  int64_t seen = 0;
  for (const auto& file : fs::directory_iterator(directory / "tensorboard"))
    for (const std::string& event : read_tf_records(read_file(file.path())))
      if (read_scalar_event(event).tags == std::vector<std::string>{"train/reward"}) {
        ++seen;
        CHECK(read_scalar_event(event).step == 4);
        const std::string again = histogram_event(0, 4, "train/reward", row.histograms()[0].second);
        CHECK(event.substr(9) == again.substr(9));  // behind the time
      }
  CHECK(seen == 1);
  for (const auto& file : fs::recursive_directory_iterator(directory / "wandb"))
    if (file.path().extension() == ".wandb") {
      for (const std::string& record : read_wandb_records(read_file(file.path())))
        for (const auto& [name, json] : wandb_history_items(record))
          if (name == "reward") {
            ++seen;
            CHECK(json.find(R"("_type":"histogram")") != std::string::npos);
          }
    }
  CHECK(seen == 2);
  fs::remove_all(directory);
}
