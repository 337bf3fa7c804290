// What a forward pass needs besides tokens: where its keys and values live, and the keys of its
// random numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "temper/nn/block_inputs.h"
#include "temper/ops/forest.h"
#include "temper/ops/kv_store.h"

namespace temper::nn {

// Dropout's random numbers depend on (seed, step, module, token key, feature): not on how a step is
// split into micro-batches.
struct DropoutKeys {
  uint64_t seed = 0, step = 0;
  std::vector<uint64_t> token;  // [N]: row of the step and position in it

  // Noise on the embeddings of a training pass (NEFTune, Jain et al., arXiv 2310.05914): uniform in
  // ±noise_alpha / sqrt(row_tokens · hidden size), keyed as dropout's random numbers. 0: none.
  double noise_alpha = 0;
  std::vector<int64_t> row_tokens;  // [N]: how many tokens the token's row has
};

// Tokens [begin, end) of a pass, under one adapter (Context::adapter).
struct AdapterRows {
  int adapter = 0;
  int64_t begin = 0, end = 0;
};
// The adapters of ranges, each once.
std::vector<int> adapters_of(const std::vector<AdapterRows>& rows);

class RouterWatch;
class TokenShare;

struct Context {
  std::shared_ptr<const Forest> forest;
  // Where ranks divide the pass's tokens: `forest` is TokenShare::own(), and every [N, ..] here and
  // in a body is of its tokens. Null: the forest is whole.
  std::shared_ptr<const TokenShare> share = nullptr;
  // The pass's structure and positions.
  const std::shared_ptr<const Forest>& whole() const;
  // The adapter that linear layers add: 0 the model's own where it has one, -1 none (the base
  // model), k >= 1 the k-th frozen copy (Linear::add_frozen_copy).
  int adapter = 0;
  // Where sequences of several adapters share a pass (without dropout; mixed_adapters.h): ranges
  // that cover its tokens, in order. Empty: all are under `adapter`.
  std::vector<AdapterRows> adapter_rows = {};
  std::vector<int> adapters() const {
    return adapter_rows.empty() ? std::vector<int>{adapter} : adapters_of(adapter_rows);
  }
  // Tokens of the forest whose hidden states are read, ascending; the others' may be anything
  // finite. Null: all are.
  std::shared_ptr<const std::vector<int64_t>> rows;
  const ops::KvPass* cache = nullptr;  // null: every token's keys are in the batch
  const DropoutKeys* dropout =
      nullptr;  // null: no dropout (evaluation, sampling); outlives the backward pass
  const std::function<void(const at::Tensor& x)>* observe =
      nullptr;  // sees what goes into each block, in order, then what the last one gives
  RouterWatch* routers = nullptr;  // sees what the routers of a mixture of experts choose; outlives
                                   // the backward pass
  bool recompute =
      false;  // blocks run again in the backward pass instead of keeping their activations
  BlockInputs* inputs = nullptr;  // where these blocks' inputs are kept; null: in memory; outlives
                                  // the backward pass
};

}  // namespace temper::nn
