// Keys and values of sampled sequences in every layer of a model, in numbered pages: a page holds
// page_tokens() consecutive positions of one sequence, aligned to absolute position
// (PagedAttention, Kwon et al., arXiv 2309.06180). Which page belongs to whom is the caller's to
// know.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "temper/ops/layers/attention.h"
#include "temper/ops/state_store.h"

namespace temper::ops {

struct CachePage {
  int64_t tokens = 0;  // positions
  int64_t bytes = 0;   // in one layer
};

// One sequence of a batch: rows [first_row, first_row + rows) are its next positions, after those
// that are cached. `pages` are the sequence's pages in order of position, including those that the
// rows are written to.
struct CachedSequence {
  std::span<const int64_t> pages;
  int64_t first_row = 0, rows = 0;
};

// One forward pass over cached sequences.
class KvPass {
 public:
  virtual ~KvPass() = default;
  // As ops::attention, for sampling: writes each row's key and value into its page, then attends to
  // all positions of its sequence up to its own. q [rows of the batch, num_heads * head_dim], k and
  // v [rows, num_kv_heads * head_dim], before norm and rotary embedding -> [rows, num_heads *
  // head_dim]. v is undefined where values are in keys. Not differentiable.
  virtual at::Tensor attend(int64_t layer, const AttentionSpec& spec, const RotaryTable& rotary,
                            const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) const = 0;

  // What the pass's sequences carry of the `part`-th operation of a layer with a state.
  CarriedStates states(int64_t layer, int64_t part) const;
  // The pass reads and writes these slots, one for each sequence. The store outlives the pass.
  void carry(const StateStore& store, std::vector<StateSlots> slots);

 private:
  const StateStore* store_ = nullptr;
  std::vector<StateSlots> slots_;
};

// Not thread-safe, except for page_tokens() and page_bytes().
class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual int64_t page_tokens() const = 0;
  virtual int64_t page_bytes() const = 0;  // of one page in all layers
  // Makes room for pages [0, count), and perhaps for later ones, up to `most` in all: as many as
  // the caller will ever ask for. Pages that exist keep what they hold. Until it is full a store
  // grows by multiples of kPagesOfChunk.
  static constexpr int64_t kPagesOfChunk = 64;
  virtual void grow(int64_t count, int64_t most) = 0;
  // Gives all memory back.
  virtual void clear() = 0;
  // Page `to` becomes a copy of page `from`, in all layers.
  virtual void copy_page(int64_t from, int64_t to) = 0;
  // A pass over the tokens of a forest, whose positions and open spans it refers to. The sequences'
  // pages and the store's size must not change while it lives.
  virtual std::unique_ptr<KvPass> pass(std::span<const CachedSequence> sequences,
                                       const Forest& forest) const = 0;
};

// The pages of stores that backend_of(device) makes of such layers (Backend::make_store).
CachePage cache_page(std::span<const AttentionSpec> layers, at::Device device);
// Of stores on the CPU.
int64_t page_tokens();

}  // namespace temper::ops
