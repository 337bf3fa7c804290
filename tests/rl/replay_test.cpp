// What rl.replay takes for groups.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/rl/rollout/replay_source.h"
#include "tests/rl/heard.h"

using namespace temper;

namespace {

// The groups' numbers of rows in each batch of a file, and what the run warns of. `sizes`: of the
// file's groups; `first_sample`: of its last one; `branches`: rows of each of an agent's episodes.
std::string replayed_groups(const std::vector<int64_t>& sizes, int64_t group_size, int64_t prompts,
                            int64_t first_sample = 0, int64_t branches = 1) {
  const auto path = std::filesystem::temp_directory_path() / str("temper-replay-", ::getpid());
  {
    std::ofstream file(path);
    for (size_t group = 0; group < sizes.size(); ++group)
      for (int64_t i = 0; i < sizes[group]; ++i)
        file << "{\"group\": " << group
             << ", \"sample\": " << (i + (group + 1 == sizes.size() ? first_sample : 0)) / branches
             << (branches > 1 ? ", \"turns\": 2" : "")
             << ", \"prompt_tokens\": [3], \"completion_tokens\": [4], \"reward\": 1}\n";
  }
  rl::RlConfig config;
  config.rl.replay = path.string();
  config.rl.group_size = group_size;
  config.rl.prompts_per_rollout = prompts;
  std::string found;
  tiny::Heard heard;
  try {
    rl::ReplaySource source(config, 10, heard);
    int64_t batches = 0;
    for (rl::RolloutBatch batch = source.next(0); !batch.groups.empty(); batch = source.next(0)) {
      for (const rl::EpisodeGroup& group : batch.groups) found += str(group.episodes.size(), " ");
      found += "| ";
      ++batches;
    }
    CHECK(source.planned_batches() == batches);
  } catch (const DataError& e) {
    found = e.what();
  }
  for (const auto& [_, said] : heard.warnings) {
    const std::string place = said.substr(said.rfind('/') + 1);
    found += place.substr(place.find(':') + 1);
  }
  std::filesystem::remove(path);
  return found;
}

}  // namespace

TEST_CASE("a replayed file that has lost rows since the checkpoint stops the run") {
  const auto path = std::filesystem::temp_directory_path() / str("temper-replayed-", ::getpid());
  std::ofstream(path) << "{}\n{}\n";
  rl::RlConfig config;
  config.rl.replay = path.string();
  tiny::Heard heard;
  rl::ReplaySource source(config, 10, heard);
  CHECK_NOTHROW(source.restore({{"replay_position", 2}}, "state.json"));
  // No DataError, for which an older checkpoint would be tried.
  CHECK_THROWS_AS(source.restore({{"replay_position", 3}}, "state.json"), ConfigError);
  CHECK_THROWS_AS(source.restore({{"replay_position", -1}}, "state.json"), DataError);
  std::filesystem::remove(path);
}

TEST_CASE("a group that a replayed file or batch ends within is told") {
  CHECK(replayed_groups({4, 4, 4}, 4, 2) == "4 4 | 4 | ");
  CHECK(
      replayed_groups({4, 4, 3}, 4, 3)
          .starts_with("4 4 3 | 9: group 2 ends with 3 rows, expected rl.group_size, 4: these are "
                       "compared among themselves; a rollout batch is the next 12"));
  CHECK(
      replayed_groups({4, 4, 1}, 4, 3).starts_with("4 4 1 | 9: group 2 ends with 1 row, expected"));
  CHECK(
      replayed_groups({3, 4, 1}, 4, 1)
          .starts_with("3 1 | 3 1 | 4: group 1 goes on behind the rollout batch's last row, with 1 "
                       "row in it, expected"));
  // A completion that was dropped (samples 1 to 3 are there), and groups that are all alike.
  CHECK(replayed_groups({4, 4, 3}, 4, 3, 1) == "4 4 3 | ");
  CHECK(replayed_groups({2, 2}, 4, 3) == "2 2 | ");
  CHECK(replayed_groups({3, 2}, 1, 5) == "3 2 | ");
}

TEST_CASE("the branches of an agent's episode are one completion of a replayed file") {
  CHECK(replayed_groups({6, 6, 6, 6}, 2, 2, 0, 3) == "6 6 | 6 6 | ");
  // The last episode of a batch has fewer branches than the others.
  CHECK(replayed_groups({6, 4, 6, 5}, 2, 2, 0, 3) == "6 4 | 6 5 | ");
  CHECK(replayed_groups({6, 6, 3}, 2, 3, 0, 3)
            .starts_with("6 6 3 | 13: group 2 ends with 1 row, expected rl.group_size, 2"));
}
