// Which rollout batches leave a file, and in which form.
#include "temper/rl/rollout/rollout_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/file.h"
#include "temper/data/read/row_set.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "tests/train/tiny.h"

using namespace temper;
using namespace temper::rl;
using tiny::Folder;

namespace {

std::vector<EpisodeGroup> some_groups(int64_t id) {
  std::vector<EpisodeGroup> groups{{.id = id}};
  for (const int32_t token : {4, 5})
    add_episode(groups[0], {1, 2, 3}, {.sample = token, .reward = 0.5},
                {.tokens = {token, 6},
                 .sampled = {true, true},
                 .logprobs = {-0.5F, -0.25F},
                 .old_logp = {},
                 .ref_logp = {},
                 .value = {},
                 .version = {},
                 .branches = {}});
  return groups;
}

std::set<std::string> names_in(const std::string& directory) {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/rollouts", none))
    names.insert(entry.path().filename().string());
  return names;
}

// The files of a run of six batches of two updates each.
std::set<std::string> after_six(const std::string& retention, bool compress = false) {
  const Folder folder;
  const RolloutFiles files(folder.path.string(), *RolloutRetention::parse(retention), compress);
  for (int64_t batch = 1; batch <= 6; ++batch)
    files.write(batch, 2 * batch - 1, some_groups(batch));
  return names_in(folder.path.string());
}

using Names = std::set<std::string>;

}  // namespace

TEST_CASE("rl.save_rollouts: all, none, every K or last K, and nothing else") {
  CHECK(RolloutRetention::parse("all"));
  CHECK(RolloutRetention::parse("every  10")->count == 10);
  CHECK(RolloutRetention::parse("last 3")->kind == RolloutRetention::Kind::kLast);
  for (const char* text : {"", "every", "every ", "every 0", "every -1", "last 1.5", "10", "some",
                           "every 3 batches", "last", "All", "every 99999999999999999999"})
    CHECK_MESSAGE(!RolloutRetention::parse(text), text);
}

TEST_CASE("rollout files that are kept") {
  CHECK(after_six("all").size() == 6);
  CHECK(after_six("none").empty());
  CHECK(after_six("every 3") == Names{"step-5.jsonl", "step-11.jsonl"});
  CHECK(after_six("every 7").empty());
  CHECK(after_six("last 2") == Names{"step-9.jsonl", "step-11.jsonl"});
  CHECK(after_six("last 2", true) == Names{"step-9.jsonl.zst", "step-11.jsonl.zst"});
  for (const char* text : {"all", "none", "every 3", "every 7", "last 2", "last 9"})
    CHECK(RolloutRetention::parse(text)->files_of(6) ==
          static_cast<int64_t>(after_six(text).size()));
}

TEST_CASE("a resumed run removes the files of later steps, and writes what the whole one has") {
  for (const bool compress : {false, true}) {
    const Folder folder;
    const RolloutFiles files(folder.path.string(), *RolloutRetention::parse("last 2"), compress);
    for (int64_t batch = 1; batch <= 4; ++batch) files.write(batch, batch, some_groups(batch));
    write_file_atomic(folder.path.string() + "/rollouts/step-x.jsonl", "not a step's");
    files.remove_after(3);  // a checkpoint of step 3
    const std::string ending = compress ? ".jsonl.zst" : ".jsonl";
    CHECK(names_in(folder.path.string()) == Names{"step-3" + ending, "step-x.jsonl"});
    for (int64_t batch = 4; batch <= 5; ++batch) files.write(batch, batch, some_groups(batch));
    CHECK(names_in(folder.path.string()) ==
          Names{"step-4" + ending, "step-5" + ending, "step-x.jsonl"});
  }
}

TEST_CASE("a packed rollout file has the rows of a plain one, where rl.replay reads them") {
  const Folder folder;
  for (const bool compress : {false, true})
    RolloutFiles(folder.path.string(), {}, compress)
        .write(compress ? 2 : 1, compress ? 2 : 1, some_groups(9));
  const data::RowSet plain({folder.path.string() + "/rollouts/step-1.jsonl"}),
      packed({folder.path.string() + "/rollouts/step-2.jsonl.zst"});
  REQUIRE(plain.size() == 2);
  REQUIRE(packed.size() == 2);
  for (int64_t row = 0; row < 2; ++row) CHECK(packed.row(row) == plain.row(row));
}
