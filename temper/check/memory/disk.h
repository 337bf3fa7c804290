// The disk that a run takes in its output_dir, by part:
//
//   checkpoints  the last train.keep_checkpoints: what trains, in float32, and the optimizer's
//                state
//   final        final/ (and critic/, best/): all weights in float32, or the adapter; the
//                tokenizer's files
//   rollouts     rollouts/, with completions of rollout.max_new_tokens
//   metrics      metrics.jsonl and report.html
#pragma once

#include <cstdint>

#include "temper/check/memory/memory.h"
#include "temper/check/memory/run_shape.h"

namespace temper::checks {

struct DiskPlan {
  Parts left;              // what the finished run leaves, in bytes by part
  int64_t peak = 0;        // most bytes at any time: a new file is written before an old one goes
  int64_t checkpoint = 0;  // bytes of one checkpoint
  int64_t left_bytes() const;  // sum of `left`
};

// The plan of a run of so many steps.
DiskPlan plan_disk(const RunShape& run, const train::RunConfig& config, int64_t steps);

}  // namespace temper::checks
