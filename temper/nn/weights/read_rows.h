// The rows of a last block's result that are read. Only attention needs every row of its input;
// what follows it treats each row alone, so a last block leaves out the rows of which nobody asks
// anything: prompts in training, all but the last token of a text under a scalar head.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/nn/context.h"

namespace temper::nn {

// `rows` as Context::rows: ascending, each once; null where they are nearly all of `num_tokens`, so
// that leaving the others out would not pay.
std::shared_ptr<const std::vector<int64_t>> rows_to_read(std::vector<int64_t> rows,
                                                         int64_t num_tokens);

class ReadRows {
 public:
  explicit ReadRows(const Context& context);
  ReadRows(const ReadRows&) = delete;
  ReadRows& operator=(const ReadRows&) = delete;

  // For layers that get selected rows.
  const Context& context() const { return context_; }
  // x's rows that are read: [N, W] to [R, W]. Differentiable, as is restore().
  at::Tensor select(const at::Tensor& x) const;
  // Puts them back among zeros: [R, W] to [num_tokens, W].
  at::Tensor restore(const at::Tensor& x, int64_t num_tokens) const;

 private:
  DropoutKeys dropout_;  // of the rows
  Context context_;
};

}  // namespace temper::nn
