// What decides a run's memory and its traffic between ranks, whichever verb it is.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/plan/model_shape.h"
#include "temper/train/config.h"

namespace temper::plan {

struct Ranks {
  int64_t data = 1, fsdp = 1, tensor = 1;
  int64_t count() const { return data * fsdp * tensor; }
  int64_t rows() const { return data * fsdp; }  // ranks with rows of their own
};

// A forward pass of a rank.
struct PassShape {
  int64_t tokens = 0, targets = 0;
  bool first = true;    // of its step: no gradients are there yet
  int64_t longest = 0;  // tokens of its longest unit
};

// A model of the run: the policy, or one that runs along.
struct ModelRole {
  std::string role;  // "policy", "reference", ...
  ModelShape shape;
  models::Storage storage;
  bool trains = true;                // all of its weights
  std::vector<std::string> adapted;  // paths of linear layers with an adapter
  std::vector<std::string> saved;    // weights that the adapter brings whole (modules_to_save)
  int64_t rank = 0;
  bool dora = false, drops = false;  // of the adapter: a magnitude, dropout
  int64_t adapters = 0;              // how many of them: a copy is the reference
  int64_t trained_copies = 0;        // of the adapters, those that train
};

// What a rank samples at once.
struct SamplingShape {
  bool samples = false;
  int64_t sequences = 0, prompts = 0;  // at once, and of how many different prompts
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t max_batch = 256;
  int64_t cache_bytes = 0;  // most that keys and values may take
  ops::CacheDtype cache_dtype = ops::CacheDtype::kFloat32;
};

// What a distillation strategy keeps beside both models' own passes (temper/distill): widths, in
// numbers a token of the pass.
struct ComparedShape {
  bool every_token = false;      // is compared: the last block computes more than the targets' rows
  std::vector<int64_t> teacher;  // kept until the backward pass has ended
  std::vector<int64_t> student;  // kept until the comparison is differentiated, which is before
                                 // all blocks
  std::vector<int64_t> gradients;  // made then, of layers' tensors; each waits for its block
  std::vector<int64_t> scratch;    // while one pair of layers is compared
  int64_t map_heads = 0;           // of both models' attention: their maps exist by tiles
  int64_t teacher_hidden = 0;      // of distributions: the teacher's hidden states of the targets
};

// Bytes that a run writes besides its checkpoints.
struct DiskShape {
  int64_t rollouts = 0, rollout_file = 0;  // all that are kept at once, and one
  int64_t batch_state = 0;                 // of the unfinished rollout batch in a checkpoint
  int64_t merged = 0;                      // of critic/, merged where it shares the policy's base
};

struct RunShape {
  ModelRole policy;
  std::vector<ModelRole> others;
  at::Device device = at::kCPU;  // that computes all models
  train::OptimizerSection optimizer;
  bool recompute = false;
  int64_t number_bytes = 4;        // of an activation
  std::vector<PassShape> largest;  // passes: the largest first one of a step, the largest later one
  int64_t step_tokens = 0;         // through the model, of all ranks
  int64_t passes = 1;              // of a rank in a step
  SamplingShape sampling;
  ComparedShape compared;
  DiskShape disk;
};

}  // namespace temper::plan
