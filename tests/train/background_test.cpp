// Checkpoints that a thread writes while training continues.
#include <fstream>

#include "temper/base/file.h"
#include "temper/base/memory.h"
#include "temper/models/files/tensors.h"
#include "temper/train/run/checkpoint/checkpoint_writer.h"
#include "temper/train/run/checkpoint/snapshot.h"
#include "temper/train/run/memory_limit.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;
using tiny::RowsTask;
using tiny::Run;
namespace fs = std::filesystem;

namespace {

// Bytes of the files below a directory, by their paths there.
std::map<std::string, std::string> files_of(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), directory).string()] =
          read_file(entry.path().string(), 1 << 24);
  return files;
}

// The checkpoint of step 2 whose save is begun then, and written after step 4.
std::map<std::string, std::string> written_later(const std::string& directory,
                                                 const std::string& optimizer,
                                                 std::optional<models::LoraConfig> lora,
                                                 bool copies) {
  train::OptimizerSection section = tiny::constant_rate(1e-2);
  section.name = optimizer;
  train::Roles roles(tiny::policy(lora), section);
  RowsTask task(roles, tiny::alone());
  train::Trainer trainer({}, 0, roles, tiny::alone(), task);
  const train::Checkpoints checkpoints(directory, 3);
  for (int i = 0; i < 2; ++i) REQUIRE(trainer.step());
  const train::Checkpoints::Writing writing =
      checkpoints.begin_save(2, roles.trainables, Json::object(), {}, tiny::alone(), copies);
  CHECK_FALSE(writing.parts);
  if (copies) writing.snapshot->complete();
  for (int i = 0; i < 2; ++i) REQUIRE(trainer.step());
  CHECK_FALSE(fs::exists(directory + "/checkpoints/step-2"));
  writing.finish();
  return files_of(directory + "/checkpoints/step-2");
}

std::map<std::string, std::string> written_at_once(const std::string& directory,
                                                   const std::string& optimizer,
                                                   std::optional<models::LoraConfig> lora) {
  train::OptimizerSection section = tiny::constant_rate(1e-2);
  section.name = optimizer;
  train::Roles roles(tiny::policy(lora), section);
  RowsTask task(roles, tiny::alone());
  train::Trainer trainer({}, 0, roles, tiny::alone(), task);
  for (int i = 0; i < 2; ++i) REQUIRE(trainer.step());
  train::Checkpoints(directory, 3).save(2, roles.trainables, Json::object(), {});
  return files_of(directory + "/checkpoints/step-2");
}

}  // namespace

TEST_CASE("a checkpoint that is written later is that of the step at which it was begun") {
  for (const std::string optimizer : {"adamw", "adamw8bit", "muon"})
    for (const auto& lora : {std::optional<models::LoraConfig>(),
                             std::optional<models::LoraConfig>({.rank = 3, .alpha = 6})}) {
      CAPTURE(optimizer);
      CAPTURE(lora.has_value());
      const Folder folder;
      const auto expected = written_at_once(folder / "once", optimizer, lora);
      CHECK(expected.size() == 3);
      CHECK(written_later(folder / "later", optimizer, lora, true) == expected);
      // What aliases the weights has those of later steps: the test can fail.
      CHECK(written_later(folder / "alias", optimizer, lora, false) != expected);
    }
}

TEST_CASE("a snapshot copies what is made before it is complete, and the rest then, each once") {
  at::Tensor first = at::ones({4}), second = at::ones({5});
  TensorMap live;
  live["first"] = models::to_view(first);
  live["second"] = models::to_view(second);
  live["made"] = {.dtype = DType::kFloat32, .shape = {5}, .num_bytes = 20, .make = [second] {
                    return models::to_view(second + 1);
                  }};
  std::vector<float> parts(4);
  live["shared"] = {.dtype = DType::kFloat32, .shape = {8}, .num_bytes = 32};
  live["shared"].own = [&](const TensorView::Put& put) {
    put(16, reinterpret_cast<const std::byte*>(parts.data()), 16);
  };
  const auto snapshot = std::make_shared<train::Snapshot>();
  TensorMap views = snapshot->of(live);
  const auto value_of = [](const TensorView& view) {
    return models::to_tensor(view, at::kFloat)[0].item<float>();
  };
  const TensorView made_early = views["first"].make();
  snapshot->complete();
  first.fill_(7);
  second.fill_(7);
  parts.assign(4, 7);
  CHECK(value_of(made_early) == 1);
  CHECK(value_of(views["second"].make()) == 1);
  CHECK(value_of(views["made"].make()) == 2);
  views["shared"].own([](size_t place, const std::byte* bytes, size_t count) {
    CHECK(place == 16);
    CHECK(count == 16);
    CHECK(*reinterpret_cast<const float*>(bytes) == 0);
  });
  CHECK_THROWS(views["first"].make());
}

TEST_CASE("runs that save in the background leave what others leave") {
  const Folder folder;
  std::map<std::string, std::string> left[2];
  for (const bool background : {false, true}) {
    const std::string directory = folder / (background ? "background" : "waiting");
    Run run(directory, tiny::constant_rate(1e-2));
    run.config.train.save_every = 1;
    run.config.train.keep_checkpoints = 4;
    run.config.train.save_in_background = background;
    RowsTask task(run.roles, tiny::alone());
    run.go(task);
    left[background] = files_of(directory + "/checkpoints");
    for (auto& [name, bytes] : left[background]) {
      if (!name.ends_with("state.json")) continue;
      Json state = parse_json(bytes, name);
      state.erase("run");  // each has an id of its own
      state.erase("hash");
      bytes = state.dump();
    }
    for (const auto& entry : fs::directory_iterator(directory))
      CHECK_FALSE(entry.path().filename().string().starts_with(".writing"));
  }
  CHECK(left[0].size() == 4 * 3);
  CHECK(left[0] == left[1]);
}

TEST_CASE("a save in the background that fails ends the run, with the path") {
  const Folder folder;
  const std::string directory = folder / "run";
  fs::create_directories(directory);
  std::ofstream(directory + "/checkpoints") << "a file where a directory should be";
  Run run(directory, tiny::constant_rate(1e-2));
  run.config.train.save_every = 2;
  run.config.train.save_in_background = true;
  RowsTask task(run.roles, tiny::alone());
  std::string message;
  try {
    run.go(task);
  } catch (const std::exception& e) {
    message = e.what();
  }
  CHECK(message.find(directory + "/checkpoints") != std::string::npos);
  CHECK_FALSE(fs::exists(directory + "/final"));
}

TEST_CASE("a save waits for the one before, and its error is thrown once") {
  train::CheckpointWriter writer{dist::Mesh(tiny::alone())};
  std::promise<void> opened;
  const std::shared_future<void> open = opened.get_future().share();
  writer.start(1, {{}, [open] { open.wait(); }, false});
  CHECK_FALSE(writer.is_writing_parts());
  CHECK_FALSE(writer.look(true).has_value());
  CHECK_THROWS_AS(writer.start(2, {{}, [] {}, false}), RunError);
  opened.set_value();
  CHECK(writer.wait() == std::optional<int64_t>(1));
  CHECK_FALSE(writer.wait().has_value());
  writer.start(2, {{}, [] { throw RunError("no space left"); }, false});
  CHECK_THROWS_WITH_AS(writer.wait(), "no space left", RunError);
  CHECK_FALSE(writer.wait().has_value());
}

TEST_CASE("a limit of memory is read with its unit") {
  const auto bytes = [](const char* text) { return train::parse_bytes(text, "limit"); };
  CHECK(bytes("12000000000") == 12'000'000'000);
  CHECK(bytes("12GB") == 12'000'000'000);
  CHECK(bytes("1.5 GiB") == 3 * (int64_t{1} << 29));
  for (const char* wrong : {"", "GB", "12gb", "-1GB", "0", "12 G B", "1e30", "nan", "inf"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(bytes(wrong), doctest::Contains("limit: found"), ConfigError);
  }
}

namespace {

constexpr int64_t kPeak = int64_t{96} << 20;

// A limit that a touched block of kPeak bytes exceeds.
std::string limit_below_peak() { return std::to_string(peak_memory_bytes() + kPeak / 2); }

void have_peak() {
  // More than what earlier cases have had and given back.
  at::empty({peak_memory_bytes() - resident_memory_bytes() + kPeak}, at::kByte).fill_(1);
}

struct PeakAfter : train::Hook {
  explicit PeakAfter(int64_t step) : last(step) {}
  void after_step(const MetricsRow& row) override {
    if (row.step() == last) have_peak();
  }
  int64_t last;
};

}  // namespace

TEST_CASE("a peak within a step that exceeds the limit of memory ends the run before its update") {
  const Folder folder;
  const std::string directory = folder / "run";
  Run run(directory, tiny::constant_rate(1e-2));
  run.config.train.memory_limit = limit_below_peak();
  RowsTask task(run.roles, tiny::alone());
  task.extra = [](train::Loss&, const train::ForwardPass& pass) {
    if (pass.dropout.step == 3) have_peak();
  };
  CHECK_THROWS_WITH_AS(run.go(task), doctest::Contains("step 3: a rank's resident memory"),
                       train::MemoryExceeded);
  CHECK(fs::exists(directory + "/checkpoints/step-2/state.json"));
  CHECK_FALSE(fs::exists(directory + "/checkpoints/step-3"));
  CHECK_FALSE(fs::exists(directory + "/final"));
}

TEST_CASE("a limit of memory holds for the last step as well, which is saved") {
  const Folder folder;
  const std::string directory = folder / "run";
  Run run(directory, tiny::constant_rate(1e-2));
  run.config.train.memory_limit = limit_below_peak();
  RowsTask task(run.roles, tiny::alone());
  std::vector<std::unique_ptr<train::Hook>> hooks;
  hooks.push_back(std::make_unique<PeakAfter>(task.steps));
  CHECK_THROWS_WITH_AS(run.go(task, 0, std::move(hooks)), doctest::Contains("train.memory_limit"),
                       train::MemoryExceeded);
  CHECK(fs::exists(directory + "/checkpoints/step-" + std::to_string(task.steps) + "/state.json"));
  CHECK_FALSE(fs::exists(directory + "/final"));
}
