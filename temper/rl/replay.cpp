#include "temper/rl/replay.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/rl/group.h"

namespace temper::rl {
namespace fs = std::filesystem;

Replay::Replay(const RunConfig& config, const Algorithm& algorithm, int64_t vocabulary)
    : config_(config),
      algorithm_(algorithm),
      file_(*config.rl.replay),
      vocabulary_(vocabulary),
      rows_(config.rl.prompts_per_rollout * config.rl.group_size) {
  check<DataError>(file_.size() > 0, *config.rl.replay, ": no rollouts");
}

void Replay::set_position(int64_t position) {
  check<DataError>(position >= 0 && position <= file_.size(), *config_.rl.replay,
                   ": the checkpoint goes on at row ", position, ", and the file has ",
                   file_.size());
  position_ = position;
}

int64_t Replay::batches() const { return (file_.size() + rows_ - 1) / rows_; }

RolloutBatch Replay::next() {
  RolloutBatch batch;
  if (position_ >= file_.size()) {
    if (!config_.train.max_steps) return batch;
    position_ = 0;
  }
  const int64_t first = position_;
  for (int64_t i = 0; i < rows_ && position_ < file_.size(); ++i, ++position_) {
    batch.rollouts.push_back(
        parse_rollout(file_.row(position_), vocabulary_, file_.where(position_)));
    const Rollout& r = batch.rollouts.back();
    const bool uncorrected =
        config_.rl.on_mismatch == RlSection::OnMismatch::kCorrect && r.logprobs.empty();
    check<DataError>(!uncorrected, file_.where(position_),
                     ": no `logprobs`, which rl.on_mismatch: correct compares with");
  }
  const std::vector<size_t> bounds = batch.bounds();
  std::set<int64_t> groups;
  for (size_t g = 0; g + 1 < bounds.size(); ++g) {
    check<DataError>(groups.insert(batch.rollouts[bounds[g]].group).second, file_.where(first),
                     " and after: group ", batch.rollouts[bounds[g]].group,
                     "'s rows do not stand together");
    shape_and_compare(config_, algorithm_,
                      std::span(batch.rollouts).subspan(bounds[g], bounds[g + 1] - bounds[g]));
  }
  return batch;
}

void write_rollouts(const std::string& output_dir, int64_t step, const RolloutBatch& batch) {
  fs::create_directories(output_dir + "/rollouts");
  std::string lines;
  for (const Rollout& r : batch.rollouts) lines += to_line(r) + "\n";
  write_file_atomic(temper::str(output_dir, "/rollouts/step-", step, ".jsonl"), lines);
}

void forget_rollouts_after(const std::string& output_dir, int64_t step) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(output_dir + "/rollouts", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") || !name.ends_with(".jsonl")) continue;
    const std::string number = name.substr(5, name.size() - 11);
    if (number.empty() || number.size() > 18 ||
        number.find_first_not_of("0123456789") != std::string::npos)
      continue;
    if (std::stoll(number) > step) fs::remove(entry.path(), ignored);
  }
}

}  // namespace temper::rl
