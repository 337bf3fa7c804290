// One forward pass of a training step: a packed forest of token segments, the tokens in it whose
// log-probabilities the loss reads, and those that a scalar head reads. Suffix _M: the former, one
// after the other; suffix _K: the latter.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "temper/base/error.h"
#include "temper/dist/group.h"
#include "temper/image/image_span.h"
#include "temper/models/model.h"
#include "temper/nn/router.h"
#include "temper/nn/weights/read_rows.h"
#include "temper/ops/logits/token_logp.h"

namespace temper::train {

// Segments that must be computed in the same pass, as one tree or several: a row, a preference
// pair, a prompt with completions of its group.
struct PackUnit {
  struct Segment {
    int64_t parent = -1;              // index of an earlier segment of the unit; -1: a root
    std::span<const int32_t> tokens;  // not empty
    // By token, the token that the loss asks for there, or a negative number. Empty: none. The
    // first label of a root has nothing before it and is passed over.
    std::span<const int32_t> labels;
    int64_t tag = 0;                          // the caller's own name for the segment
    bool scored = false;                      // a scalar head reads its last token
    std::span<const ExternalRows> rows = {};  // in place of tokens' embeddings
    std::span<const ImageSpan> images = {};   // whose external rows come instead, where there are
  };
  std::vector<Segment> segments;  // in depth-first order
  int64_t num_tokens() const;
  int64_t num_images() const, num_image_tokens() const;  // those that begin in it; placeholders
};

struct OwnPass;

struct ForwardPass {
  // The targets [begin, end) are those of one segment, in order; `tag` is the segment's.
  struct Span {
    int64_t tag, begin, end;
  };

  std::shared_ptr<Forest> forest = std::make_shared<Forest>();
  std::vector<int64_t> row_M;  // the token of the forest that predicts the target: the one before
  std::vector<int64_t> target_M;  // ids
  std::vector<Span> spans;        // of the segments that have targets
  // The tokens that the targets were sampled among; null: the whole vocabulary.
  std::shared_ptr<const ops::KeptTokens> kept = nullptr;
  std::vector<int64_t> scored_row_K, scored_tag_K;  // tokens of the forest, their segments' tags
  nn::DropoutKeys dropout;             // seed, step and noise_alpha are set by the trainer
  nn::RouterWatch* routers = nullptr;  // what watches its experts' routers, set by the trainer
  // Where blocks that are computed again keep their inputs, set by the trainer; null: in memory.
  nn::BlockInputs* inputs = nullptr;
  // Run to keep step with other ranks only: what it gives counts nowhere.
  bool shadow = false;
  // Of a pass that several adapters share: whose the forest's tokens are, and whose the targets.
  // Empty: all are those of PassOptions::adapter.
  std::vector<nn::AdapterRows> adapters, target_adapters;
  mutable std::shared_ptr<OwnPass> own;  // set where ranks divide the tokens (passes/rank_pass.h)

  int64_t num_targets() const { return static_cast<int64_t>(target_M.size()); }
  bool trains() const { return !target_M.empty() || !scored_row_K.empty(); }
  // The numbers, as add() was given them, of the units that these tokens of the forest belong to.
  std::vector<int64_t> units_of(std::span<const int64_t> tokens) const;
  // The tokens that targets and scalars read, as nn::Context::rows.
  std::shared_ptr<const std::vector<int64_t>> rows() const;
  void add(const PackUnit& unit, uint64_t unit_of_step);
  // The same under an adapter (nn::Context::adapter). The backward pass of a loss adds to each
  // adapter the gradients that it would get from a pass of its own units alone, bit for bit; the
  // frozen base is gone through once for all. Throws RunError for units of an adapter that do not
  // follow each other, or where some have none.
  void add(const PackUnit& unit, uint64_t unit_of_step, int adapter);
  // A row with targets by place: target[i] is asked for after the row's token position[i], which
  // may be named more than once. Without dropout.
  void add_row(std::span<const int32_t> tokens, std::span<const int64_t> position,
               std::span<const int64_t> target, int adapter,
               std::span<const ImageSpan> images = {});
  // The pass's targets out of values kept by segment: `of(tag)` gives those of one segment's
  // targets, in order.
  template <class Of>
  at::Tensor gather(const Of& of) const;

 private:
  void belong_to(int adapter, int64_t tokens, int64_t targets);
};

struct PassOptions {
  double temperature = 1;    // logits are divided by it
  bool entropy = false;      // of each target's distribution, too
  bool log_sum_exp = false;  // of each target's logits, too
  bool recompute = false;    // blocks are computed again in the backward pass
  bool dropout = false;      // of adapters, and noise on embeddings
  int adapter = 0;           // nn::Context::adapter
  bool watched = false;      // by the pass's routers: the policy's own pass
};

// What a model's forward takes for the pass, which outlives the backward pass.
nn::Context context_of(const ForwardPass& pass, const PassOptions& options);
// What its head takes for the pass.
models::LogpOptions logp_options(const ForwardPass& pass, const PassOptions& options);

// The model's log-probabilities of the pass's targets [M], and what else is asked for, in the
// host's memory. Throws RunError for several adapters that cannot share a pass
// (nn::mixes_adapters).
ops::TokenLogp token_logp(models::CausalLM& model, const ForwardPass& pass,
                          const PassOptions& options);

// The scalar head's numbers at the pass's scored tokens [K]; of the options, those of the body.
at::Tensor scalars(models::ScalarModel& model, const ForwardPass& pass, const PassOptions& options);

// The passes of one rank: units are shared out among `ranks` so that each has about as many tokens,
// and packed into passes of at most max_tokens (a larger unit has a pass of its own); 0: one unit a
// pass. Deterministic.
std::vector<ForwardPass> plan_passes(std::span<const PackUnit> units, int64_t max_tokens,
                                     int rank = 0, int ranks = 1);

// Plans the passes of this rank of a group. Where the group's ranks gather each other's weights
// (in_step), all of them make as many passes: units that train nothing are left out, unless
// `every_token` counts, and a rank with fewer passes gets shadows of the shortest unit.
std::vector<ForwardPass> plan_passes(std::span<const PackUnit> units, int64_t max_tokens,
                                     const dist::Group& rows, bool every_token = false);

template <class Of>
at::Tensor ForwardPass::gather(const Of& of) const {
  at::Tensor out_M = at::empty({num_targets()}, at::kFloat);
  float* out = out_M.mutable_data_ptr<float>();
  for (const Span& span : spans) {
    const std::span<const float> values = of(span.tag);
    check(static_cast<int64_t>(values.size()) == span.end - span.begin, "segment ", span.tag,
          " has ", values.size(), " values for ", span.end - span.begin, " targets");
    std::copy(values.begin(), values.end(), out + span.begin);
  }
  return out_M;
}

}  // namespace temper::train
