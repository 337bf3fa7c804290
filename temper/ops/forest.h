// The token forest: the only batch type. A batch is a forest of token segments; a token attends to
// its own segment up to itself and to all tokens of the segment's ancestors. In a packed SFT batch
// every row is a root; in a GRPO group the prompt is a root and the completions are its children; a
// sequence that is being sampled is a root that starts where its cached prefix ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace temper {

// What the features of external rows are made of, which a model with a part for it knows
// (models/vision/encoder.h).
struct ExternalSource {
  virtual ~ExternalSource() = default;
};

// Rows that replace the embeddings of some tokens: an image's features, a soft prompt (elsewhere
// `inputs_embeds`). The first layer reads them unchanged: in every family, neither the embedding
// scale nor NEFTune's noise is applied to them. (In transformers, Granite scales `inputs_embeds`,
// Gemma does not.) Their token ids are placeholders from the vocabulary, which everything else that
// reads token ids (labels, penalties, Gemma 4's per-layer embeddings) still sees.
struct ExternalRows {
  int64_t begin = 0, count = 0;  // for the tokens [begin, begin + count) of a sequence or a forest
  // [R, hidden_size] float32, on any device; may require gradients. Undefined: the model that reads
  // the rows makes them of `source`.
  at::Tensor features;
  int64_t first = 0;  // token begin + i reads features[first + i]
  // Not empty. Identifies the features in the prefix cache, as long as the weights do not change:
  // equal digests share cached keys and values.
  std::string digest;
  // [L, R, hidden_size] float32: what is added to the rows after each of the body's first L blocks
  // (Qwen3-VL's deep features); undefined: nothing.
  at::Tensor deep = {};
  // Not 0: the features are the cells of an image's grid, row by row, and families with rotary
  // positions of three axes place them so (Forest::rotation).
  int64_t grid_rows = 0, grid_columns = 0;
  // The tokens see one another both ways, but for what is before a window, in every layer that does
  // not keep them apart (ops::AttentionSpec::causal): such rows are whole, in one segment and in
  // one pass.
  bool open = false;
  std::shared_ptr<const ExternalSource> source = {};
  int64_t cells() const { return grid_rows * grid_columns; }
};
// Throws RunError unless the rows are ascending, disjoint, within [0, tokens), and have a digest
// and features or a source of them.
void check_rows(std::span<const ExternalRows> rows, int64_t tokens);
// What the grids that end within the first `tokens` tokens leave for later ones: their rotary
// positions are their positions plus this, which is 0 or less.
int64_t rotation_shift(std::span<const ExternalRows> rows, int64_t tokens);
// Where a sequence of these rows may be cut next to `tokens`, so that no open rows are in two
// parts: there, or before such rows, but behind `least`, or else behind them.
int64_t whole_cut(std::span<const ExternalRows> rows, int64_t tokens, int64_t least = 0);
// The part of the rows that belongs to the tokens [begin, begin + count), with `begin` as token 0.
std::vector<ExternalRows> rows_within(std::span<const ExternalRows> rows, int64_t begin,
                                      int64_t count);

struct OpenSpan {
  int64_t first, end;
  bool operator==(const OpenSpan&) const = default;
};

struct Forest {
  std::vector<int32_t> tokens;            // [N], segments in depth-first order
  std::vector<int64_t> position;          // [N], absolute: a child continues where its parent ends
  std::vector<int64_t> segment_start{0};  // [S+1]
  std::vector<int64_t> parent;            // [S], -1: a root
  std::vector<int64_t> subtree_end;       // [S], one past the last segment below
  std::vector<ExternalRows> rows;         // for some of the tokens, ascending
  // [N] where rows of the forest have a grid or a segment starts behind one, else empty: positions
  // on the axes time, row and column (M-RoPE, Wang et al., arXiv 2409.12191). Text has its position
  // on all three; cell (i, j) of a grid that starts at p has (p, p + i, p + j), and what follows
  // goes on at p + max(grid_rows, grid_columns).
  std::vector<std::array<int32_t, 3>> rotation;
  std::vector<int64_t> shift;  // [S], rotation_shift() at the segment's end
  // [N] where rows of the forest are open, else empty: the positions [first, end) of a token's open
  // rows, or its own alone.
  std::vector<OpenSpan> open;

  // A backend's own tables for this forest, computed once and reused by its operations. Accessed by
  // std::atomic_load and std::atomic_store, as passes of several threads may share a forest.
  mutable std::shared_ptr<const void> derived;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_segments() const { return static_cast<int64_t>(parent.size()); }

  // Appends a root whose first token is at `first_position` (above 0: its prefix is in the cache).
  // `segment_rows` are relative to the segment's first token, `first_shift` is rotation_shift() of
  // the prefix. Returns the segment's index.
  int64_t add_root(std::span<const int32_t> segment_tokens, int64_t first_position = 0,
                   std::span<const ExternalRows> segment_rows = {}, int64_t first_shift = 0);

  // Appends a child of `parent_segment`. Throws RunError unless the parent is the segment added
  // last or one of its ancestors, so that the order stays depth-first, and if the segment is empty.
  int64_t add_child(int64_t parent_segment, std::span<const int32_t> segment_tokens,
                    std::span<const ExternalRows> segment_rows = {});

 private:
  int64_t append(int64_t parent_segment, int64_t first_position,
                 std::span<const int32_t> segment_tokens,
                 std::span<const ExternalRows> segment_rows, int64_t first_shift);
  void append_rotation(int64_t first_token, std::span<const ExternalRows> segment_rows,
                       int64_t first_shift);
  void append_open(int64_t first_token, std::span<const ExternalRows> segment_rows);
};

// The forest of these segments, in depth-first order: what add_root() and add_child() make one by
// one, in linear time however deep the trees are. parent[s]: the segment that s continues; -1:
// none. Throws DataError that names a segment without tokens, or whose parent is neither -1 nor the
// segment before it nor an ancestor of that.
std::shared_ptr<Forest> forest_of(std::span<const std::vector<int32_t>> segments,
                                  std::span<const int64_t> parent);

// The trees from the token `begin`, where one starts, up to the token `end`, which may be within
// one. Without external rows.
std::shared_ptr<Forest> trees_of(const Forest& whole, int64_t begin, int64_t end);

}  // namespace temper
