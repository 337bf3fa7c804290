// What tests of rows in place of tokens' embeddings share: rows that are copies of embeddings, so
// that what they give is what their tokens give.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <string>
#include <vector>

#include "temper/models/model.h"
#include "temper/ops/forest.h"

namespace temper::external_rows {

// Golden models: plain, with scaled embeddings, of experts, with state layers, and with embeddings
// of layers that look tokens up again.
inline const std::vector<std::string> kModels{"llama", "gemma",      "mixtral",
                                              "lfm2",  "qwen3_next", "gemma4_text"};

struct Row {
  std::vector<int32_t> tokens;  // with placeholders
  std::vector<ExternalRows> rows;
};

// The row with copies of its tokens' embeddings for [begin, end), behind one row of the features
// that no token reads. A placeholder is another token, but for Gemma 4, which looks it up.
inline Row replaced(models::CausalLM& model, std::vector<int32_t> tokens, int64_t begin,
                    int64_t end, const std::string& digest) {
  const at::NoGradGuard no_grad;
  auto forest = std::make_shared<Forest>();
  forest->add_root(tokens);
  const at::Tensor all = model.body().embedding().forward({.forest = forest});
  const at::Tensor features =
      at::cat({at::full({1, all.size(1)}, 7.0F), all.narrow(0, begin, end - begin)});
  const bool looked_up = std::string(model.body().family()->model_type) == "gemma4_text";
  for (int64_t t = begin; t < end && !looked_up; ++t) tokens[static_cast<size_t>(t)] = 60;
  return {std::move(tokens), {{begin, end - begin, features, 1, digest}}};
}

}  // namespace temper::external_rows
