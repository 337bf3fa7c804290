// Attention of some of a forest's queries: ranges that cover the forest give what it gives whole.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "temper/base/error.h"
#include "temper/ops/layers/attention.h"
#include "tests/ops/attention_runs.h"

namespace temper::ops::backends {
namespace {

// Gradients of a range's output, and of the output of all with a gradient of zeros elsewhere.
struct Differentiated {
  at::Tensor out;
  Tensors gradients;  // of q, k, v, the norms and the sinks
};
Differentiated differentiated(const Heads& heads, const std::shared_ptr<const Forest>& forest,
                              int64_t first, int64_t count, const at::Tensor& dout) {
  const auto leaf = [](const at::Tensor& x) { return x.detach().clone().requires_grad_(true); };
  AttentionSpec spec = heads.spec;
  const at::Tensor q = leaf(heads.q.narrow(0, first, count)), k = leaf(heads.k), v = leaf(heads.v);
  torch::autograd::variable_list inputs{q, k, v};
  for (at::Tensor* x : {&spec.q_norm, &spec.k_norm, &spec.sinks})
    if (x->defined()) inputs.push_back(*x = leaf(*x));
  const at::Tensor out =
      attention(spec, rotary(200, spec.head_dim, q.scalar_type()), forest, q, k, v, first);
  return {out.detach(), torch::autograd::grad({out}, inputs, {dout})};
}

// Cuts of a forest of n tokens, among them single ones.
std::vector<std::vector<int64_t>> cuts(int64_t n) {
  return {{0, n / 2, n}, {0, 1, n / 3, n / 3 + 1, n - 1, n}};
}

const std::vector<Segments>& forests() {
  static const std::vector<Segments> all{kForests[1],
                                         kForests[2],
                                         kForests[3],
                                         kForests[5],
                                         {{-1, 70}, {0, 90}, {0, 5}}};  // above a chunk of queries
  return all;
}

std::vector<AttentionSpec> specs() {
  return {shape(4, 2, 8), shape(3, 3, 12, 3.0), shape(4, 1, 8, 0, 11),
          with_sinks(shape(6, 2, 16, 0, 0, CacheDtype::kBFloat16))};
}

void check_ranges(const Backend& backend, at::ScalarType type) {
  for (size_t f = 0; f < forests().size(); ++f)
    for (const AttentionSpec& spec : specs()) {
      CAPTURE(f);
      CAPTURE(spec.num_heads);
      auto forest = std::make_shared<const Forest>(forest_of(forests()[f]));
      const int64_t n = forest->num_tokens();
      const Heads heads = heads_of(spec, true, n, type);
      const Differentiated whole = differentiated(heads, forest, 0, n, heads.dout);
      const bool exact = backend.batch_invariant();
      for (const std::vector<int64_t>& cut : cuts(n)) {
        Tensors out, dq, sums;
        for (size_t i = 0; i + 1 < cut.size(); ++i) {
          const int64_t first = cut[i], count = cut[i + 1] - first;
          const at::Tensor dout = heads.dout.narrow(0, first, count);
          const Differentiated part = differentiated(heads, forest, first, count, dout);
          out.push_back(part.out);
          dq.push_back(part.gradients[0]);
          if (sums.empty())
            sums.assign(part.gradients.begin() + 1, part.gradients.end());
          else
            for (size_t g = 0; g < sums.size(); ++g) sums[g] = sums[g] + part.gradients[g + 1];
          if (!exact) continue;
          at::Tensor masked = at::zeros_like(heads.dout);
          masked.narrow(0, first, count).copy_(dout);
          const Differentiated same = differentiated(heads, forest, 0, n, masked);
          for (const size_t g : {1, 2}) CHECK(at::equal(part.gradients[g], same.gradients[g]));
        }
        if (exact) {
          CHECK(at::equal(at::cat(out), whole.out));
          CHECK(at::equal(at::cat(dq), whole.gradients[0]));
        }
        check_close(at::cat(out), whole.out, "out");
        check_close(at::cat(dq), whole.gradients[0], "dq");
        for (size_t g = 0; g < sums.size(); ++g) {
          CAPTURE(g);
          check_close(sums[g], whole.gradients[g + 1], "sum of ranges");
        }
      }
    }
}

}  // namespace

TEST_CASE("attention in ranges of queries: the rows of the whole, and gradients that add up") {
  for (const Backend* backend : {&native_backend(), &aten_backend()})
    each_type([&](at::ScalarType type) {
      CAPTURE(backend->name());
      const Backend& before = cpu_backend();
      choose_cpu_backend(*backend);
      check_ranges(*backend, type);
      choose_cpu_backend(before);
    });
}

TEST_CASE("attention in ranges: queries beyond the forest and missing keys are refused") {
  auto forest = std::make_shared<const Forest>(forest_of({{-1, 9}}));
  const Heads h = heads_of(shape(2, 1, 8), false, 9, at::kFloat);
  const RotaryTable table = rotary(9, 8, at::kFloat);
  CHECK_THROWS_AS(attention(h.spec, table, forest, h.q, h.k, h.v, 1), RunError);
  CHECK_THROWS_AS(attention(h.spec, table, forest, h.q, h.k.narrow(0, 0, 8), h.v, 0), RunError);
}

}  // namespace temper::ops::backends
