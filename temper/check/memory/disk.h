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
#include <limits>

#include "temper/check/memory/memory.h"
#include "temper/check/memory/run_shape.h"
#include "temper/data/loader.h"
#include "temper/rl/config.h"
#include "temper/train/roles/policy.h"

namespace temper::checks {

// Sums and products of counts that are not negative; what is beyond int64_t is its largest number.
inline int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

inline int64_t saturated_product(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

// a / b, upwards; b is above 0.
inline int64_t quotient_up(int64_t a, int64_t b) { return a / b + (a % b > 0); }

struct DiskPlan {
  Parts left;              // what the finished run leaves, in bytes by part
  int64_t peak = 0;        // most bytes at any time: a new file is written before an old one goes
  int64_t checkpoint = 0;  // bytes of one checkpoint
  int64_t left_bytes() const;  // sum of `left`
};

// The plan of a run of so many steps.
DiskPlan plan_disk(const RunShape& run, const train::RunConfig& config, int64_t steps);

// The disk space of the rollout files after so many updates, measured on lines made up of the run's
// own prompts, whose completions have rollout.max_new_tokens tokens: an upper bound where
// completions are shorter.
DiskShape rollout_disk(const rl::RlConfig& config, const train::Policy& policy,
                       const data::RowOrder& order, int64_t updates);

}  // namespace temper::checks
