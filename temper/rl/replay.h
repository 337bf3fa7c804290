// Rollouts from files: what a run wrote, or what another sampler did.
#pragma once

#include <cstdint>
#include <string>

#include "temper/data/row_file.h"
#include "temper/rl/algorithm.h"
#include "temper/rl/rollout.h"

namespace temper::rl {

class Replay {
 public:
  // Batches of prompts_per_rollout x group_size rows, in the file's order; the last may have fewer.
  // With `around`, the file begins again at its end. Throws DataError.
  Replay(const RunConfig& config, const Algorithm& algorithm, int64_t vocabulary);

  // The next batch, with advantages from the rewards; empty at the end.
  RolloutBatch next();
  int64_t batches() const;  // of one pass over the file

  int64_t position() const { return position_; }
  // Throws DataError for a place that the file does not have.
  void set_position(int64_t position);

 private:
  const RunConfig& config_;
  const Algorithm& algorithm_;
  data::RowFile file_;
  int64_t vocabulary_, rows_, position_ = 0;
};

// OUTPUT_DIR/rollouts/step-N.jsonl.
void write_rollouts(const std::string& output_dir, int64_t step, const RolloutBatch& batch);
// Removes the files of steps after this one.
void forget_rollouts_after(const std::string& output_dir, int64_t step);

}  // namespace temper::rl
