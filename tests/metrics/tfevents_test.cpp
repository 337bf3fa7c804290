#include "temper/metrics/sinks/tfevents.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "temper/base/file.h"
#include "temper/metrics/sink.h"
#include "temper/metrics/sinks/crc32c.h"

using namespace temper;

TEST_CASE("crc32c gives the known answers of RFC 3720, appendix B.4") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("123456789") == 0xe3069283u);
}

// tests/golden/make_tfevents_goldens.py
TEST_CASE("event files are byte for byte those of TensorBoard's own writer") {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  const std::string golden =
      read_file(std::string(root ? root : ".") + "/tests/golden/tfevents.bin");
  const std::vector<std::pair<std::string, float>> train = {{"train/loss", 2.5f},
                                                            {"train/learning_rate", 2e-5f}};
  const std::vector<std::pair<std::string, float>> eval = {{"eval/loss", 0.1f}};
  const std::string file = tf_record(version_event(1700000000.25)) +
                           tf_record(session_start_event(1700000001.5, 0)) +
                           tf_record(scalar_event(1700000002.0, 1, train)) +
                           tf_record(scalar_event(1700000003.0, 300, eval));
  CHECK(file == golden);
}

TEST_CASE("of an event file that is cut or damaged all whole records are read") {
  const std::vector<std::pair<std::string, float>> loss = {{"eval/loss", 1}, {"b", 2}};
  const std::vector<std::string> events = {version_event(1), session_start_event(2, 7),
                                           scalar_event(3, 300, loss)};
  std::string file;
  std::vector<size_t> ends;
  for (const std::string& event : events) {
    file += tf_record(event);
    ends.push_back(file.size());
  }
  CHECK(read_tf_records(file) == events);
  CHECK(read_scalar_event(events[2]).step == 300);
  CHECK(read_scalar_event(events[2]).tags == std::vector<std::string>{"eval/loss", "b"});
  for (const size_t i : {0, 1}) CHECK(read_scalar_event(events[i]).tags.empty());
  CHECK(read_scalar_event(std::string(30, '\xff')).tags.empty());
  for (size_t size = 0; size < file.size(); ++size) {
    const auto whole = std::count_if(ends.begin(), ends.end(), [&](size_t e) { return e <= size; });
    CHECK(std::ssize(read_tf_records(file.substr(0, size))) == whole);
    std::string damaged = file;
    damaged[size] ^= 0x41;
    std::vector<std::string> others = events;
    others.erase(others.begin() + whole);
    CHECK(read_tf_records(damaged) == others);
  }
}

namespace {

// Points of a directory's event files, in the order of their names: without those of steps at or
// after a later session's start where `forgets`.
std::multimap<std::pair<int64_t, std::string>, int> points_of(const std::string& directory,
                                                              bool forgets) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::multimap<std::pair<int64_t, std::string>, int> points;
  for (const std::string& file : files)
    for (const std::string& event : read_tf_records(read_file(file))) {
      const ScalarEvent of = read_scalar_event(event);
      // A session's start ends with field 7, of two bytes: status (field 1) START.
      if (event.ends_with("\x3a\x02\x08\x01") && forgets)
        std::erase_if(points, [&](const auto& point) { return point.first.first >= of.step; });
      for (const std::string& tag : of.tags) points.insert({{of.step, tag}, 0});
    }
  return points;
}

}  // namespace

TEST_CASE("event files of a run that resumes have each point once, in every reading") {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("temper-events-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  const auto start = [&dir] { return sinks().find("tensorboard")({.output_dir = dir.string()}); };
  const auto log = [](Sink& sink, int64_t step, const char* name) {
    MetricsRow row(step);
    row.set(name, 0.5);
    sink.log(row);
  };
  using Points = std::multimap<std::pair<int64_t, std::string>, int>;
  const auto has = [&](const Points& points) {
    const std::string events = (dir / "tensorboard").string();
    CHECK(points_of(events, true) == points);
    CHECK(points_of(events, false) == points);
  };
  start();  // a run that is complete already logs nothing
  CHECK(std::filesystem::is_empty(dir / "tensorboard"));
  {
    const auto sink = start();
    sink->truncate_after(-1);
    for (const int64_t step : {1, 2, 3}) log(*sink, step, "loss");
    log(*sink, 3, "eval/loss");
    log(*sink, 4, "loss");
    log(*sink, 4, "eval/lost");
  }
  std::ofstream(std::filesystem::directory_iterator(dir / "tensorboard")->path(), std::ios::app)
      << "ha";
  const Points trained = {{{1, "train/loss"}, 0}, {{2, "train/loss"}, 0}, {{3, "train/loss"}, 0}};
  Points evaluated = trained;
  evaluated.insert({{3, "eval/loss"}, 0});
  Points whole = evaluated;
  whole.insert({{4, "train/loss"}, 0});
  for (const bool again : {false, true, true}) {
    const auto sink = start();
    sink->truncate_after(3);
    has(evaluated);
    if (again) {
      sink->remove_evaluation(3);
      has(trained);
      log(*sink, 3, "eval/loss");
    }
    log(*sink, 4, "loss");
    has(whole);
  }
  {
    const auto sink = start();
    sink->truncate_after(-1);
    has({});
    log(*sink, 1, "loss");
    has({{{1, "train/loss"}, 0}});
  }
  std::filesystem::remove_all(dir);
}
