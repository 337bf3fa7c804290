// Rows of an embedding or a head that train while the others are frozen, with PEFT's names: the
// tokens of its trainable_token_indices.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/nn/module.h"

namespace temper::nn {

// A module of `owner` whose parameter, [ids, width] in float32, holds these rows of the table
// [vocabulary, width]. Each update writes them into the table, from which everything computes.
class TokenRows : public Module {
 public:
  // ids: ascending, each a row of the table, which is whole on this rank, is not quantized, does
  // not train, and outlives this. The rows begin as the table's, and train.
  TokenRows(Module& owner, Parameter& table, std::vector<int64_t> ids);
  ~TokenRows() override;

  const std::vector<int64_t> ids;

 private:
  void write();

  Module& owner_;
  Parameter& table_;

 public:
  Parameter weight;
};

}  // namespace temper::nn
