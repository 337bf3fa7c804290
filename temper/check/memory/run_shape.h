// The sizes that decide a run's memory and its traffic between ranks, for every verb.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/check/memory/model_shape.h"
#include "temper/train/config.h"

namespace temper::checks {

using Ranks = dist::AxisSizes;

// A forward pass of a rank.
struct PassShape {
  int64_t tokens = 0, targets = 0;
  bool first = true;    // the step's first pass: no gradients are there yet
  int64_t longest = 0;  // tokens of its longest unit
};

// A model of the run: the policy, or one beside it.
struct ModelRole {
  std::string role;  // "policy", "reference", ...
  ModelShape shape;
  models::Storage storage;
  bool trains = true;                // all of its weights train
  std::vector<std::string> adapted;  // paths of linear layers with an adapter
  std::vector<std::string> saved;    // weights that the adapter brings whole (modules_to_save)
  int64_t rank = 0;
  bool dora = false, drops = false;  // the adapter has a magnitude; it has dropout
  int64_t adapters = 0;              // adapters in memory: a copy is the reference
  int64_t trained_copies = 0;        // adapters that train
  // One beside the policy that completes rows of SamplingShape as well, at another time.
  bool samples = false;
};

// The completions that a rank samples at once.
struct SamplingShape {
  bool samples = false;
  int64_t sequences = 0, prompts = 0;  // sequences at once, and their different prompts
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t max_batch = 256;
  int64_t cache_bytes = 0;  // most bytes of keys and values
  ops::CacheDtype cache_dtype = ops::CacheDtype::kFloat32;
};

// Tensors that a distillation strategy keeps beside both models' own passes (temper/distill):
// widths, in numbers for each token of the pass.
struct ComparedShape {
  // every token is compared: the last block computes more than the targets' rows
  bool every_token = false;
  std::vector<int64_t> teacher;  // teacher's tensors, kept until the backward pass has ended
  // student's tensors, kept until the comparison is differentiated, which is before all blocks
  std::vector<int64_t> student;
  // gradients of layers' tensors, made by the comparison; each waits for its block
  std::vector<int64_t> gradients;
  std::vector<int64_t> scratch;  // tensors needed while one pair of layers is compared
  int64_t map_heads = 0;         // attention heads of both models: their maps exist by tiles
  // width of the teacher's hidden states of the targets, where distributions are compared
  int64_t teacher_hidden = 0;
};

// Bytes that a run writes besides its checkpoints.
struct DiskShape {
  int64_t rollouts = 0, rollout_file = 0;  // rollout files kept at once, and one file
  int64_t batch_state = 0;                 // the unfinished rollout batch in a checkpoint
  int64_t merged = 0;                      // critic/, merged where it shares the policy's base
};

struct RunShape {
  ModelRole policy;
  std::vector<ModelRole> others;
  at::Device device = at::kCPU;  // computes all models
  train::OptimizerSection optimizer;
  bool recompute = false;
  int64_t number_bytes = 4;        // bytes of an activation
  std::vector<PassShape> largest;  // passes: the largest first one of a step, the largest later one
  int64_t step_tokens = 0;         // tokens through the model in a step, all ranks
  int64_t passes = 1;              // passes of a rank in a step
  SamplingShape sampling;
  ComparedShape compared;
  DiskShape disk;
  bool snapshot = false;  // a copy of what trains is in memory while a thread writes a checkpoint
};

}  // namespace temper::checks
