// The memory of a rank, planned from shapes. Formulas, in bytes of the tensors that the program
// makes:
//
//   weights      as they are kept (ops::bytes_of)
//   gradients    4 a trained weight; optimizer: its state tensors (AdamW two of 4)
//                under FSDP all three divided by its ranks (ZeRO stage 3, arXiv 1910.02054,
//                section 5)
//   gathered     units of FSDP: the one that computes and the next one; of gradients three that
//                are made or wait to be summed, and the one that is received
//   activations  what layers keep of their tokens for the backward pass; with recomputation the
//                inputs of blocks (Chen et al., arXiv 1604.06174); scratch: what the backward pass
//                makes and frees; logits: of the head and its gradient: of a pass that is run
//                without numbers (traced_pass.h), at its peak
//                with train.offload: activations the tensors of DiskInputs that are in memory; with
//                optimizer, of its state the pieces that are (train/offload)
//   cache        pages of keys and values; packed: panels of the weights, kept while sampling
//   sampler      where this process samples while it trains (rl.max_staleness): copies of what
//                trains, as it was some updates ago; cache and packed are then there in training
//   snapshot     the copy of trained weights and optimizer state from which a checkpoint is written
//                while training continues
//   program      the program, its libraries, tokenizer and threads: measured
//   allocator    what tensors are given beyond what they ask for (jemalloc's size classes), and
//                what the allocator keeps of freed memory: a share of the rest
//
// On another device than the processor: the same, but nothing is packed, weights are copied from
// their file at once, and `context` is what a process takes of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "temper/check/memory/run_shape.h"
#include "temper/ops/weight.h"

namespace temper::checks {

inline constexpr int64_t kFloat = 4;  // bytes of a float32

using Parts = std::vector<std::pair<std::string, int64_t>>;  // bytes, by name, as they are printed

// How a role keeps a tensor.
ops::WeightFormat format_of(const ModelRole& role, const ShapedTensor& t);

// True where the role's adapters change the product by this weight.
bool is_adapted(const ModelRole& role, const ShapedTensor& t);
// True where an adapter brings a weight of its own in place of this one (modules_to_save).
bool is_saved(const ModelRole& role, const ShapedTensor& t);

// The numbers of a tensor on one of the ranks that compute the same rows.
int64_t divided(const ShapedTensor& t, const Ranks& ranks);

inline int64_t rounded(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

struct MemoryPlan {
  struct Phase {
    std::string name;  // "load", "sample", "sample by teacher", "train", "sample and train"
    Parts parts;
    int64_t rounding = 0;  // bytes that the allocator adds to single tensors
    int64_t bytes() const;
  };
  std::vector<Phase> phases;
  int64_t on_disk = 0;  // bytes that a rank's files of train.offload take
  const Phase& peak() const;
  int64_t peak_bytes() const { return peak().bytes(); }
};

// Plans the memory of run.device. `program_bytes`: host memory of the program before it has a
// model.
MemoryPlan plan_memory(const RunShape& run, const Ranks& ranks, int64_t program_bytes);

// "activations 412 MB, weights 117 MB": the parts of a phase, largest first.
std::string parts_of(const MemoryPlan::Phase& phase);

// The keys that make a run smaller, for messages: "a smaller train.micro_batch_tokens, ...".
std::string what_takes_less(const RunShape& run);

// A rank's share of a model's weights, gradients and optimizer state, in bytes, of a run on so many
// ranks.
struct ModelBytes {
  int64_t weights = 0, gradients = 0, optimizer = 0;
  int64_t trained = 0;    // this rank's weights that train, in bytes of float32
  int64_t two_units = 0;  // whole values of the two largest FSDP units, over their tensor ranks
  // the trained weights of the two units with the most of them, in bytes of float32
  int64_t two_trained = 0;
  int64_t largest_piece = 0;  // of the optimizer's state on a disk (train::DiskState)
};
ModelBytes model_bytes(const ModelRole& role, const train::OptimizerSection& optimizer,
                       const Ranks& ranks);

}  // namespace temper::checks
