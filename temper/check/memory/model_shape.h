// What a model is made of, told by its config.json alone: the tensors that ranks divide, and how
// many numbers a token leaves behind in a forward pass. No weight is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/family.h"
#include "temper/models/model.h"

namespace temper::checks {

struct ShapedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<int64_t> split = {};  // the dimension that ranks of a tensor group divide
  nn::Role role = nn::Role::kNone;    // of what it is a parameter of,
  nn::Role around = nn::Role::kNone;  // and of what that is a part of
  int64_t unit = -1;                  // that FSDP gathers it with; -1: it stays whole
  bool in_block = false;              // a linear layer of a block: Storage::blocks
  bool matrix = false;                // a linear layer's, an embedding's or a head's
  bool trains = true;  // where the model does: train.freeze leaves others as they are
  int64_t size() const;
  bool is(nn::Role of) const { return role == of; }
  bool has_columns() const { return split == 0; }  // divided by its layer's outputs,
  bool has_rows() const { return split == 1; }     // or its inputs
};

struct CachedHeads {
  int64_t number, dim;  // heads of keys and of values, and their size
};

struct ModelShape {
  std::vector<ShapedTensor> tensors;
  int64_t units = 0;  // embedding, blocks, a head that is not tied
  int64_t layers = 0, hidden = 0, vocabulary = 0, max_positions = 0;
  // Of the block with the most parameters, which is unit `widest_block`: what a block takes is
  // planned as for it.
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t widest_block = -1;
  std::vector<CachedHeads> cached;  // by layer that a sampler caches keys of
  // Of layers that carry a state (ops/layers/recurrent.h): numbers of a sequence's states in all
  // layers; of the widest block, where it has such a layer, the channels of its convolution, what
  // its last layer reads, and the state of a head of its delta rule.
  int64_t states = 0, convolved = 0, mixed = 0, head_state = 0;
  int64_t experts = 0, experts_per_token = 0;  // of a mixture of experts
  double soft_cap = 0;                         // of attention's scores
  bool latent = false;                         // nn::LatentAttention
  bool tied = false;
  bool norm_before = false;  // attention, and what stands in its place, reads a norm

  bool is_in_widest_block(const ShapedTensor& t) const { return t.unit == widest_block; }
  int64_t parameters() const;
  // Products of a token with weights, in multiply-adds: every matrix but the embedding's look-up,
  // and of experts those that a token goes to.
  int64_t multiplications() const { return dense_multiplications() + expert_multiplications(); }
  // Of those: what every token goes through, and what its experts do.
  int64_t dense_multiplications() const, expert_multiplications() const;
  int64_t sparse_layers() const;  // layers with experts
  // Widths of the widest block: outputs of its column-parallel layers (queries, keys, values, gate,
  // up), inputs of its row-parallel ones, and the widest input, that of the gated layer.
  int64_t column_outputs() const, row_inputs() const, widest_input() const;
  // Tensors of the hidden width that a block keeps for its backward pass: what each norm of that
  // width reads, and what attention and MLP read where no norm comes before them.
  int64_t kept_inputs() const;
  // Width of what norms of queries and keys over all heads read; 0 where each head has its own.
  int64_t whole_qk_norms() const;
};

// Throws ConfigError for a config that no family of the program takes.
ModelShape shape_of(const models::HfConfig& config, bool scalar_head = false);

}  // namespace temper::checks
