#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <protozero/pbf_reader.hpp>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/metrics/sink.h"
#include "temper/metrics/sinks/wandb_log.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

using Items = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> golden_records() {
  const auto long_text = [](size_t size, char c) { return '"' + std::string(size, c) + '"'; };
  const Items one = {{"loss", "1"}};
  const Items config = {{"seed", "0"}, {"optimizer", "{\"learning_rate\":2e-05}"}};
  return {
      wandb_first_record(),
      wandb_run_record(2, {"abcd1234", "temper", "us", "x", "here", 1700000000.25, config}),
      wandb_history_record(3, 0, Items{{"loss", "0.5"}, {"x/y", "NaN"}}),
      wandb_history_record(4, 1, Items{{"note", long_text(70000, 'a')}}),
      wandb_history_record(5, 5, Items{{"note", std::string(28009, 'b')}}),
      wandb_history_record(6, 6, one),
      wandb_history_record(7, 7, Items{{"note", std::string(32680, 'b')}}),
      wandb_history_record(8, 8, one),
      wandb_summary_record(9, one),
      wandb_exit_record(10, 12),
  };
}

std::string log_of(const std::vector<std::string>& records) {
  std::string file = wandb_header();
  for (const std::string& record : records) file += wandb_frames(record, file.size());
  return file;
}

// The items of a history record, as JSON. Empty: another record.
Json history_items(std::string_view record) {
  Json items;
  for (protozero::pbf_reader fields(record.data(), record.size()); fields.next();) {
    if (fields.tag() != 2) {
      fields.skip();
      continue;
    }
    for (auto history = fields.get_message(); history.next(1);) {
      auto item = history.get_message();
      REQUIRE(item.next(1));
      const std::string name = item.get_string();
      REQUIRE(item.next(16));
      items[name] = item.get_string();
    }
    break;
  }
  for (const char* name : {"_timestamp", "_runtime"})
    if (items.is_object()) items.erase(name);
  return items;
}

class OutputDirectory {
 public:
  OutputDirectory()
      : path_(fs::temp_directory_path() / ("temper-wandb-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~OutputDirectory() { fs::remove_all(path_); }
  std::string path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path_))
      if (entry.path().extension() == ".wandb") found.push_back(entry.path());
    return found;
  }
  std::vector<Json> rows() const {
    std::vector<Json> rows;
    for (const std::string& file : files())
      for (const std::string& record : read_wandb_records(read_file(file)))
        if (const Json items = history_items(record); !items.empty()) rows.push_back(items);
    return rows;
  }

 private:
  fs::path path_;
};

MetricsRow row_of(int64_t step, const char* name, double value) {
  MetricsRow row(step);
  row.set(name, value);
  return row;
}

}  // namespace

// tests/golden/make_wandb_goldens.py
TEST_CASE("a log is byte for byte that of W&B's own writer") {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  const std::string golden = read_file(std::string(root ? root : ".") + "/tests/golden/run.wandb");
  const std::vector<std::string> records = golden_records();
  CHECK(log_of(records) == golden);
  CHECK(read_wandb_records(golden) == records);
  const std::vector<int64_t> steps = {-1, -1, 0, 1, 5, 6, 7, 8, -1, -1};
  for (size_t i = 0; i < records.size(); ++i) CHECK(wandb_history_step(records[i]) == steps[i]);
}

TEST_CASE("of a log that is cut or damaged the records before that are read") {
  const std::vector<std::string> records = golden_records();
  const std::string file = log_of(records);
  size_t whole = 0, end = wandb_header().size();
  for (size_t size = 0; size < file.size(); size += size < 400 ? 1 : 977) {
    while (whole < records.size() && end + wandb_frames(records[whole], end).size() <= size)
      end += wandb_frames(records[whole++], end).size();
    CHECK(read_wandb_records(file.substr(0, size)).size() == whole);
  }
  for (size_t at = 0; at < file.size(); at += at < 400 ? 1 : 977) {
    std::string damaged = file;
    damaged[at] ^= 0x41;
    const std::vector<std::string> read = read_wandb_records(damaged);
    CHECK(read.size() < records.size());
    CHECK(std::equal(read.begin(), read.end(), records.begin()));
  }
  CHECK(wandb_history_step("\x12\xff\xff\xff\xff\x7f") == -1);
  CHECK(wandb_history_step(std::string(20, '\xff')) == -1);
}

TEST_CASE("an offline run has a row a step and goes on where the run resumes") {
  const OutputDirectory dir;
  {
    const auto sink = sinks().find("wandb")({.output_dir = dir.path(), .config = {{"seed", "7"}}});
    sink->truncate_after(-1);
    CHECK(dir.files().empty());
    sink->log(row_of(1, "loss", 0.5));
    sink->log(row_of(1, "eval/loss", HUGE_VAL));
    sink->log(row_of(2, "loss", std::nan("")));
    sink->log(row_of(3, "loss", 0.25));
  }
  CHECK(dir.rows() ==
        std::vector<Json>{{{"loss", "0.5"}, {"eval/loss", "Infinity"}, {"_step", "1"}},
                          {{"loss", "NaN"}, {"_step", "2"}},
                          {{"loss", "0.25"}, {"_step", "3"}}});
  const std::vector<std::string> first = dir.files();
  {
    const auto sink = sinks().find("wandb")({.output_dir = dir.path()});
    sink->truncate_after(2);
    sink->log(row_of(3, "loss", 0.75));
    sink->finish();
  }
  CHECK(dir.files() == first);
  CHECK(dir.rows() ==
        std::vector<Json>{{{"loss", "0.5"}, {"eval/loss", "Infinity"}, {"_step", "1"}},
                          {{"loss", "NaN"}, {"_step", "2"}},
                          {{"loss", "0.75"}, {"_step", "3"}}});
  const std::string run = read_wandb_records(read_file(first[0]))[1];
  CHECK(run.find("seed") != std::string::npos);
  // The header, the run, three rows, the summary, the exit.
  CHECK(read_wandb_records(read_file(first[0])).size() == 7);

  const auto sink = sinks().find("wandb")({.output_dir = dir.path()});
  sink->truncate_after(-1);
  sink->log(row_of(1, "loss", 1));
  sink->finish();
  CHECK(dir.files().size() == 1);
  CHECK(dir.files() != first);
  CHECK(dir.rows() == std::vector<Json>{{{"loss", "1"}, {"_step", "1"}}});
}

TEST_CASE("a row stays in the file until the one that replaces it is there") {
  const OutputDirectory dir;
  const auto sink = sinks().find("wandb")({.output_dir = dir.path()});
  sink->truncate_after(-1);
  sink->log(row_of(1, "loss", 0.5));
  const std::vector<Json> before = dir.rows();
  // No file may grow: what is written of the longer row ends within it, as a kill would end it.
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ::getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit none{fs::file_size(dir.files()[0]), usual.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &none);
  CHECK_THROWS(sink->log(row_of(1, "eval/loss", 4)));
  ::setrlimit(RLIMIT_FSIZE, &usual);
  ::signal(SIGXFSZ, handler);
  CHECK(dir.rows() == before);
}

TEST_CASE("an offline run that was killed has every row, and an evaluation made again once") {
  const OutputDirectory dir;
  const auto start = [&dir] { return sinks().find("wandb")({.output_dir = dir.path()}); };
  const auto summary = [&dir] {
    std::string found;
    for (const std::string& record : read_wandb_records(read_file(dir.files()[0])))
      if (record.find("\x1a") != std::string::npos && wandb_history_step(record) < 0)
        found += record;
    return found;
  };
  {
    const auto sink = start();
    sink->truncate_after(-1);
    sink->log(row_of(1, "seldom", 8));
    sink->log(row_of(2, "loss", 0.5));
    CHECK(dir.rows().size() == 2);  // before the sink is gone
    sink->log(row_of(2, "eval/loss", 4));
    CHECK(dir.rows().size() == 2);
    sink->log(row_of(3, "loss", 0.25));
  }
  const std::vector<Json> whole = {{{"seldom", "8"}, {"_step", "1"}},
                                   {{"loss", "0.5"}, {"eval/loss", "4"}, {"_step", "2"}}};
  for (int times = 0; times < 2; ++times) {
    const auto sink = start();
    sink->truncate_after(2);
    CHECK(dir.rows() == whole);
    sink->remove_evaluation(2);
    CHECK(dir.rows()[1] == Json{{"loss", "0.5"}, {"_step", "2"}});
    sink->log(row_of(2, "eval/loss", 4));
    CHECK(dir.rows() == whole);
    sink->finish();
    for (const char* name : {"seldom", "loss", "eval/loss"})
      CHECK(summary().find(name) != std::string::npos);
  }
  {
    const auto sink = start();
    sink->truncate_after(-1);
    sink->log(row_of(0, "eval/loss", 4));
  }
  const auto sink = start();
  sink->truncate_after(0);
  sink->remove_evaluation(0);
  CHECK(dir.rows().empty());
  sink->log(row_of(0, "eval/loss", 4));
  sink->log(row_of(1, "loss", 2));
  CHECK(dir.rows() ==
        std::vector<Json>{{{"eval/loss", "4"}, {"_step", "0"}}, {{"loss", "2"}, {"_step", "1"}}});
}
