// The directory of a run while others change it: it is removed, taken by another run, or holds what
// another run left.
#include <algorithm>
#include <filesystem>

#include "temper/base/file.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/earlier_run.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;
using tiny::RowsTask;
using tiny::Run;
namespace fs = std::filesystem;

namespace {

// Does something before a step.
struct Before : train::Hook {
  int64_t step;
  std::function<void()> act;
  Before(int64_t at, std::function<void()> what) : step(at), act(std::move(what)) {}
  void before_step(int64_t now) override {
    if (now == step) act();
  }
};

std::vector<std::unique_ptr<train::Hook>> before(int64_t step, std::function<void()> act) {
  std::vector<std::unique_ptr<train::Hook>> hooks;
  hooks.push_back(std::make_unique<Before>(step, std::move(act)));
  return hooks;
}

struct Made {
  std::string console;
  tiny::Weights weights;
};

// A run of so many steps, which ends early where `stop_after` says so.
Made go(const std::string& directory, int64_t steps, int64_t stop_after = 0,
        const std::string& resume = "auto", double rate = 1e-2) {
  Run run(directory, tiny::constant_rate(rate));
  run.config.resume = resume;
  RowsTask task(run.roles, tiny::alone());
  task.steps = steps;
  run.go(task, stop_after);
  return {run.console.str(), run.weights()};
}

// What the run said that lost its directory before step 4.
std::string lose(const std::string& directory, const std::function<void()>& how) {
  Run run(directory, tiny::constant_rate(1e-2));
  RowsTask task(run.roles, tiny::alone());
  try {
    run.go(task, 0, before(4, how));
  } catch (const RunError& e) {
    return e.what();
  }
  return "the run was whole";
}

}  // namespace

TEST_CASE("a run whose directory is removed fails, and what it trained is not lost") {
  const Folder folder;
  const Made whole = go(folder / "whole", 6);
  for (const bool all : {true, false}) {
    CAPTURE(all);
    const std::string directory = folder / (all ? "all" : "content");
    const std::string said = lose(directory, [&] {
      if (all) fs::remove_all(directory);
      // `rm -rf OUTPUT_DIR/*` leaves the files whose names begin with a dot.
      for (const auto& entry : fs::directory_iterator(folder.path))
        if (!all && entry.path() == directory)
          for (const auto& file : fs::directory_iterator(directory))
            if (file.path().filename() != ".lock") fs::remove_all(file.path());
    });
    CAPTURE(said);
    CHECK(said.find(directory + ", or a part of it, was removed") != std::string::npos);
    CHECK(said.find("step 4 is saved in " + directory) != std::string::npos);
    CHECK(fs::exists(directory + "/config.yaml"));
    const Made rest = go(directory, 6);
    CHECK(rest.console.find("resuming from " + directory + "/checkpoints/step-4") !=
          std::string::npos);
    CHECK(rest.weights == whole.weights);
  }
}

TEST_CASE("a run whose directory another run has taken does not write there") {
  const Folder folder;
  const std::string directory = folder / "run";
  const Made whole = go(folder / "whole", 6);
  std::string others;
  const std::string said = lose(directory, [&] {
    fs::remove_all(directory);
    go(directory, 2);
    others = read_file(directory + "/final/model.safetensors");
  });
  CAPTURE(said);
  CHECK(said.find("another run") != std::string::npos);
  CHECK(said.find("output_dir=" + directory + ".rescued-1") != std::string::npos);
  CHECK(read_file(directory + "/final/model.safetensors") == others);
  CHECK_FALSE(fs::exists(directory + "/checkpoints/step-4"));
  CHECK(go(directory + ".rescued-1", 6).weights == whole.weights);
}

TEST_CASE("another run's checkpoint is not gone on from unless it is named") {
  const Folder folder;
  const std::string a = folder / "a", b = folder / "b";
  go(a, 6, 3);
  go(b, 6, 4, "auto", 3e-2);
  fs::copy(b + "/checkpoints/step-4", a + "/checkpoints/step-4", fs::copy_options::recursive);
  const auto foreign =
      doctest::Contains((a + "/checkpoints/step-4 belongs to another run").c_str());
  CHECK_THROWS_WITH_AS(go(a, 6), foreign, ConfigError);
  CHECK(fs::exists(a + "/checkpoints/step-4"));
  CHECK(go(a, 6, 0, a + "/checkpoints/step-4").console.find("resuming") != std::string::npos);
  // A whole directory that was moved or copied is the same run, with its hidden files or without.
  fs::copy(b, folder / "c", fs::copy_options::recursive);
  fs::copy(b, folder / "d", fs::copy_options::recursive);
  fs::remove(folder / "d/.lock");
  for (const char* copy : {"c", "d"}) {
    CHECK(go(folder / copy, 6, 5).console.find("step-4") != std::string::npos);
    CHECK(go(folder / copy, 6).console.find("step-5") != std::string::npos);
  }
  // The id is kept over resumes, and is no part of the model.
  const std::string id = train::Checkpoints::run_of(b + "/checkpoints/step-4");
  CHECK(id.size() == 16);
  CHECK(train::Checkpoints::run_of(folder / "c/checkpoints/step-6") == id);
  CHECK(train::Checkpoints::run_of(a + "/checkpoints/step-3") != id);
}

TEST_CASE("a run that starts over moves aside what an earlier one left") {
  const Folder folder;
  const std::string run = folder / "run";
  go(run, 2);
  const std::string model = read_file(run + "/final/model.safetensors"),
                    rows = read_file(run + "/metrics.jsonl");
  const Made over = go(run, 3, 0, "never", 3e-2);
  CHECK(over.console.find(run + ": what an earlier run left is now in " + run + ".old-1") !=
        std::string::npos);
  CHECK(read_file(run + ".old-1/final/model.safetensors") == model);
  CHECK(read_file(run + ".old-1/metrics.jsonl") == rows);
  CHECK(fs::exists(run + ".old-1/checkpoints/step-2/state.json"));
  CHECK(read_file(run + "/final/model.safetensors") != model);
  // Models whose checkpoints were removed, and the run begun again.
  fs::remove_all(run + "/checkpoints");
  CHECK(go(run, 3).console.find(run + ".old-2") != std::string::npos);
  CHECK(fs::exists(run + ".old-2/final/model.safetensors"));
  // What was killed before its first checkpoint trained nothing.
  fs::remove_all(run + "/checkpoints");
  fs::remove_all(run + "/final");
  go(run, 3);
  CHECK_FALSE(fs::exists(run + ".old-3"));
  CHECK(go(run + "/", 3, 0, "never").console.find(run + ".old-3") != std::string::npos);
  CHECK(go(folder / "new", 3, 0, "never").console.find(".old") == std::string::npos);
}

TEST_CASE("what no run left is neither moved nor replaced") {
  const Folder folder;
  const std::string mine = folder / "mine";
  fs::create_directories(mine + "/best");
  fs::create_directories(mine + "/wandb");
  write_file_atomic(mine + "/best/notes", "x");
  write_file_atomic(mine + "/report.json", "{}");
  CHECK(go(mine, 2).console.find(".old") == std::string::npos);
  CHECK_FALSE(fs::exists(mine + ".old-1"));
  CHECK(read_file(mine + "/best/notes") == "x");
  CHECK(fs::exists(mine + "/wandb"));
  // The run would replace it at its end.
  const std::string other = folder / "other";
  fs::create_directories(other + "/final");
  CHECK_THROWS_WITH_AS(go(other, 2),
                       doctest::Contains((other + "/final, which no run left there").c_str()),
                       ConfigError);
  CHECK(fs::is_empty(other + "/final"));
  // A copy without hidden files and checkpoints still says whose it is.
  const std::string copy = folder / "copy";
  fs::copy(mine, copy, fs::copy_options::recursive);
  fs::remove_all(copy + "/checkpoints");
  fs::remove(copy + "/.lock");
  CHECK(go(copy, 2).console.find(copy + ".old-1") != std::string::npos);
}

TEST_CASE("an earlier run is moved into its own directory where it cannot be moved out") {
  const Folder folder;
  const std::string run = folder / std::string(252, 'r');  // with .old-1 too long for a name
  go(run, 2);
  const std::string model = read_file(run + "/final/model.safetensors");
  const Made over = go(run, 2, 0, "never", 3e-2);
  CHECK(over.console.find("is now in " + run + "/old-1") != std::string::npos);
  CHECK(read_file(run + "/old-1/final/model.safetensors") == model);
  CHECK(read_file(run + "/final/model.safetensors") != model);
  CHECK(go(run, 2, 0, "never").console.find(run + "/old-2") != std::string::npos);
}

TEST_CASE("a run that goes on from a checkpoint elsewhere replaces no earlier run") {
  const Folder folder;
  const std::string a = folder / "a", b = folder / "b";
  go(a, 6);
  go(b, 6, 2, "auto", 3e-2);
  const std::string model = read_file(a + "/final/model.safetensors"),
                    rows = read_file(a + "/metrics.jsonl"),
                    id = train::Checkpoints::run_of(a + "/checkpoints/step-6");
  CHECK(go(a, 4, 0, b + "/checkpoints/step-2").console.find("is now in " + a + ".old-1") !=
        std::string::npos);
  CHECK(read_file(a + ".old-1/final/model.safetensors") == model);
  CHECK(read_file(a + ".old-1/metrics.jsonl") == rows);
  CHECK(fs::exists(a + ".old-1/checkpoints/step-6/state.json"));
  CHECK_FALSE(fs::exists(a + "/checkpoints/step-6"));
  CHECK(train::Checkpoints::run_of(a + "/checkpoints/step-4") != id);
  // One of its own is gone back to in place; one that is not there moves nothing.
  CHECK(go(a, 4, 0, a + "/checkpoints/step-4/").console.find(".old") == std::string::npos);
  CHECK_THROWS_AS(go(a, 4, 0, folder / "none"), ConfigError);
  CHECK_FALSE(fs::exists(a + ".old-2"));
}

TEST_CASE("a lock that alone is removed is made again, and the run is whole") {
  const Folder folder;
  const std::string run = folder / "run";
  CHECK(lose(run, [&] { fs::remove(run + "/.lock"); }) == "the run was whole");
  CHECK(fs::file_size(run + "/.lock") > 0);
  CHECK(fs::exists(run + "/final/model.safetensors"));
  CHECK(go(run, 6).console.find("this run is complete") != std::string::npos);
}

TEST_CASE("files that a pattern names are not moved") {
  const Folder folder;
  const std::string run = folder / "run";
  go(run, 2);
  fs::create_directories(run + "/rollouts");
  write_file_atomic(run + "/rollouts/step-1.jsonl", "{}\n");
  Run again(run, tiny::constant_rate(1e-2));
  again.config.resume = "never";
  const auto moves_rollouts = [&] {
    const std::vector<fs::path> files = train::earlier_files(again.config);
    return std::find(files.begin(), files.end(), fs::path(run) / "rollouts") != files.end();
  };
  CHECK(moves_rollouts());
  again.config.data.train = {{.path = run + "/rollouts/*.jsonl"}};
  CHECK_FALSE(moves_rollouts());
}

TEST_CASE("a checkpoint's rows for new tokens are not other tokens'") {
  const Folder folder;
  const auto error = [&](const std::vector<std::string>& tokens, int64_t stop) -> std::string {
    Run run(folder / "run", tiny::constant_rate(1e-2));
    run.config.model.new_tokens = tokens;
    RowsTask task(run.roles, tiny::alone());
    try {
      run.go(task, stop);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error({"<a>", "<b>"}, 2) == "no error");
  for (const auto& [tokens, said] : {std::pair<std::vector<std::string>, std::string>{
                                         {"<a>", "<c>"}, "token 2 is `<c>`, expected `<b>`"},
                                     {{"<a>"}, "token 2 is none, expected `<b>`"},
                                     {{"<a>", "<b>", "<c>"}, "token 3 is `<c>`, expected none"}}) {
    CAPTURE(said);
    const std::string found = error(tokens, 0);
    CHECK(found.find("model.new_tokens: ") != found.npos);
    CHECK(found.find(said) != found.npos);
  }
  CHECK(error({"<a>", "<b>"}, 0) == "no error");
}
