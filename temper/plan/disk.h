// The disk that a run takes in its output_dir, by part:
//
//   checkpoints  the last train.keep_checkpoints: what trains, in float32, and the optimizer's
//   state final        final/ (and critic/, best/): all weights in float32, or the adapter;
//   tokenizer files rollouts     rollouts/, with completions of rollout.max_new_tokens metrics
//   metrics.jsonl and report.html
#pragma once

#include <cstdint>

#include "temper/plan/memory.h"
#include "temper/plan/run_shape.h"

namespace temper::plan {

struct DiskPlan {
  Parts left;              // what the finished run leaves
  int64_t peak = 0;        // most at any time: what is written stands beside what it replaces
  int64_t checkpoint = 0;  // of one
  int64_t left_bytes() const;
};

DiskPlan plan_disk(const RunShape& run, const train::RunConfig& config, int64_t steps);

}  // namespace temper::plan
