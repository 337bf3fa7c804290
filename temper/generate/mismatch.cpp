#include "temper/generate/mismatch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>

#include "temper/base/error.h"
#include "temper/generate/cache.h"

namespace temper::generate {
namespace {

// What went into each block, what came out of the last, and that after the final norm: [layers + 2]
// of [positions, hidden].
using Trace = std::vector<at::Tensor>;

Trace traced(models::CausalLM& model, nn::Context context) {
  Trace trace;
  const std::function<void(const at::Tensor&)> observe = [&](const at::Tensor& x) {
    trace.push_back(x.clone());
  };
  context.observe = &observe;
  trace.push_back(model.forward(context));
  return trace;
}

Trace decoded(models::CausalLM& model, const std::vector<int32_t>& prompt,
              const std::vector<int32_t>& completion) {
  const int64_t total = static_cast<int64_t>(prompt.size() + completion.size());
  const PageCache page(model, 0);
  PageCache cache(model, CacheSize{pages_for(total, page.page_tokens()) + 1, 2});
  PageTable pages(cache);
  pages.reserve(total);
  std::vector<Trace> parts;
  const auto pass = [&](std::span<const int32_t> tokens, int64_t position) {
    auto forest = std::make_shared<Forest>();
    BatchRows rows;
    forest->add_root(tokens, position);
    rows.add(pages, static_cast<int64_t>(tokens.size()));
    const auto cached = rows.pass(*forest);
    parts.push_back(traced(model, {.forest = forest, .cache = cached.get()}));
  };
  pass(prompt, 0);
  for (size_t i = 0; i < completion.size(); ++i)
    pass({&completion[i], 1}, static_cast<int64_t>(prompt.size() + i));
  Trace whole;
  for (size_t layer = 0; layer < parts[0].size(); ++layer) {
    std::vector<at::Tensor> rows;
    for (const Trace& part : parts) rows.push_back(part[layer]);
    whole.push_back(at::cat(rows));
  }
  return whole;
}

}  // namespace

std::string first_difference(models::CausalLM& model, const std::vector<int32_t>& prompt,
                             const std::vector<int32_t>& completion) {
  const at::NoGradGuard no_grad;
  auto forest = std::make_shared<Forest>();
  forest->add_child(forest->add_root(prompt), completion);
  const Trace trained = traced(model, {.forest = forest}),
              sampled = decoded(model, prompt, completion);
  for (size_t layer = 0; layer < trained.size(); ++layer) {
    for (int64_t t = 0; t < trained[layer].size(0); ++t) {
      const at::Tensor a = trained[layer][t].to(at::kCPU).contiguous(),
                       b = sampled[layer][t].to(at::kCPU).contiguous();
      if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) continue;
      const std::string what = layer + 2 < trained.size()
                                   ? temper::str("the input of layer ", layer)
                               : layer + 1 < trained.size() ? "the output of the last layer"
                                                            : "the final hidden state";
      return temper::str(what, " differs at position ", t, " by up to ",
                         (a - b).abs().max().item<float>());
    }
  }
  return "every layer agrees now, so the weights or the kernels changed between sampling and "
         "training";
}

}  // namespace temper::generate
