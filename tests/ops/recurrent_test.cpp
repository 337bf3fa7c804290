// Layers that carry a state: against their definitions, token by token in plain loops; the native
// backend to the bit whatever shares the batch, and the aten backend within rounding.
#include "temper/ops/layers/recurrent.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "tests/ops/backends.h"

namespace temper::ops::backends {
namespace {

// Branches of branches, one longer than what a backward pass keeps at once, and a root on its own.
std::shared_ptr<Forest> branching_forest() {
  auto forest = std::make_shared<Forest>();
  const auto blank = [](size_t n) { return std::vector<int32_t>(n); };
  const int64_t root = forest->add_root(blank(3));
  const int64_t child = forest->add_child(root, blank(37));
  forest->add_child(child, blank(2));
  forest->add_child(child, blank(70));
  forest->add_child(root, blank(1));
  forest->add_root(blank(5));
  return forest;
}

std::vector<int64_t> path_to(const Forest& f, int64_t segment) {
  std::vector<int64_t> path;
  for (int64_t s = segment; s >= 0; s = f.parent[static_cast<size_t>(s)])
    for (int64_t n = f.segment_start[static_cast<size_t>(s) + 1];
         n-- > f.segment_start[static_cast<size_t>(s)];)
      path.push_back(n);
  std::reverse(path.begin(), path.end());
  return path;
}

std::shared_ptr<Forest> one_root(size_t tokens, int64_t position = 0) {
  auto forest = std::make_shared<Forest>();
  forest->add_root(std::vector<int32_t>(tokens), position);
  return forest;
}

// An operation over rows of several tensors: of all of them, in some forest, with states.
struct Operation {
  std::vector<int64_t> widths;  // of the rows
  int64_t state;                // numbers
  std::function<at::Tensor(const Backend&, const Forest&, const Tensors&, const CarriedStates&)>
      run;
};

Operation convolution(at::ScalarType type, bool silu) {
  const ConvolutionWeights w{random({21, 1, 4}, 1, type), random({21}, 2, type)};
  return {{21},
          3 * 21,
          [=](const Backend& backend, const Forest& forest, const Tensors& rows,
              const CarriedStates& carried) {
            return backend.short_convolution(w, silu, forest, rows[0], carried);
          }};
}

constexpr DeltaRuleSpec kRule{.key_heads = 2, .value_heads = 6, .key_dim = 9, .value_dim = 21};

Operation delta_rule(at::ScalarType type) {
  const at::Tensor a_log = random({6}, 3, type), dt_bias = random({6}, 4, type);
  return {{kRule.qkv_width(), 6, 6},
          6 * 9 * 21,
          [=](const Backend& backend, const Forest& forest, const Tensors& rows,
              const CarriedStates& carried) {
            return backend.gated_delta_rule(kRule, forest,
                                            {rows[0], rows[1], rows[2], a_log, dt_bias}, carried);
          }};
}

Tensors random_rows(const Operation& op, int64_t n, at::ScalarType type) {
  Tensors rows;
  for (size_t i = 0; i < op.widths.size(); ++i)
    rows.push_back(random({n, op.widths[i]}, 10 + static_cast<uint32_t>(i), type, 2));
  return rows;
}
Tensors select(const Tensors& rows, const std::vector<int64_t>& ids) {
  Tensors out;
  for (const at::Tensor& x : rows) out.push_back(x.index_select(0, at::tensor(ids)));
  return out;
}

// The gated delta rule in plain loops over one path.
at::Tensor plain_delta_rule(const Tensors& rows) {
  const at::Tensor a_log = random({6}, 3, at::kDouble), dt_bias = random({6}, 4, at::kDouble);
  const int64_t n = rows[0].size(0);
  at::Tensor out = at::zeros({n, 6, 21}, at::kDouble), state = at::zeros({6, 9, 21}, at::kDouble);
  for (int64_t t = 0; t < n; ++t)
    for (int64_t h = 0; h < 6; ++h) {
      const auto unit = [&](int64_t begin) {
        const at::Tensor x = rows[0][t].narrow(0, begin + h / 3 * 9, 9);
        return x / (x.square().sum() + 1e-6).sqrt();
      };
      const at::Tensor q = unit(0) / 3.0, k = unit(18), v = rows[0][t].narrow(0, 36 + h * 21, 21);
      const at::Tensor g = -a_log[h].exp() * at::softplus(rows[1][t][h] + dt_bias[h]);
      at::Tensor s = state[h] * g.exp();
      s = s + at::outer(k, rows[2][t][h].sigmoid() * (v - s.t().mv(k)));
      state[h].copy_(s);
      out[t][h].copy_(s.t().mv(q));
    }
  return out.view({n, -1});
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == y.nbytes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::vector<Operation> operations(at::ScalarType type) {
  return {convolution(type, true), convolution(type, false), delta_rule(type)};
}

}  // namespace

TEST_CASE("a short convolution and the gated delta rule compute what they say") {
  const auto forest = branching_forest();
  const Operation delta = delta_rule(at::kDouble), plain = convolution(at::kDouble, false);
  const Tensors rows = random_rows(delta, forest->num_tokens(), at::kDouble),
                inputs = random_rows(plain, forest->num_tokens(), at::kDouble);
  const at::Tensor out = delta.run(native_backend(), *forest, rows, {}),
                   convolved = plain.run(native_backend(), *forest, inputs, {});
  const at::Tensor weight = random({21, 1, 4}, 1, at::kDouble), bias = random({21}, 2, at::kDouble);
  for (int64_t segment = 0; segment < forest->num_segments(); ++segment) {
    const std::vector<int64_t> path = path_to(*forest, segment);
    const at::Tensor ids = at::tensor(path);
    check_close(out.index_select(0, ids), plain_delta_rule(select(rows, path)), "delta rule");
    const at::Tensor x = inputs[0].index_select(0, ids).t().unsqueeze(0);
    const at::Tensor expected =
        at::conv1d(x, weight, bias, 1, 3, 1, 21).squeeze(0).narrow(1, 0, ids.size(0)).t();
    check_close(convolved.index_select(0, ids), expected, "convolution");
  }
}

TEST_CASE("states: a branch is its path alone, in any chunks, to the bit") {
  for (const Operation& op : operations(at::kFloat)) {
    const auto forest = branching_forest();
    const Tensors rows = random_rows(op, forest->num_tokens(), at::kFloat);
    kernels::for_each_target([&] {
      const at::Tensor out = op.run(native_backend(), *forest, rows, {});
      for (int64_t segment = 0; segment < forest->num_segments(); ++segment) {
        const std::vector<int64_t> path = path_to(*forest, segment);
        const Tensors mine = select(rows, path);
        const at::Tensor expected = out.index_select(0, at::tensor(path));
        const auto n = static_cast<int64_t>(path.size());
        CHECK(same_bits(op.run(native_backend(), *one_root(path.size()), mine, {}), expected));
        // In two passes, beside another sequence; the second begins from what the first one kept.
        for (const int64_t cut : {int64_t{1}, n / 2, n - 1}) {
          if (cut < 1 || cut >= n) continue;
          const at::Tensor state = at::empty({op.state}, at::kFloat);
          const auto rows_of = [&](int64_t begin, int64_t end) {
            Tensors part;
            for (size_t i = 0; i < mine.size(); ++i)
              part.push_back(at::cat({rows[i].narrow(0, 0, 1), mine[i].slice(0, begin, end)}));
            return part;
          };
          const auto batch_of = [&](int64_t begin, int64_t end) {
            auto batch = one_root(1);
            batch->add_root(std::vector<int32_t>(static_cast<size_t>(end - begin)), begin);
            return batch;
          };
          const at::Tensor first = op.run(native_backend(), *batch_of(0, cut), rows_of(0, cut),
                                          {{}, {{}, {{cut, state}}}});
          const at::Tensor second = op.run(native_backend(), *batch_of(cut, n), rows_of(cut, n),
                                           {{}, {state, {{n - cut, state}}}});
          CHECK(same_bits(at::cat({first.slice(0, 1), second.slice(0, 1)}), expected));
        }
      }
    });
  }
}

TEST_CASE("states: one that is kept in the middle of a pass is that of the pass that ends there") {
  for (const Operation& op : operations(at::kFloat)) {
    const Tensors rows = random_rows(op, 9, at::kFloat);
    const auto state = [&] { return at::empty({op.state}, at::kFloat); };
    const at::Tensor middle = state(), end = state(), alone = state();
    op.run(native_backend(), *one_root(9), rows, {{{}, {{1, middle}, {8, end}}}});
    Tensors two;
    for (const at::Tensor& x : rows) two.push_back(x.narrow(0, 0, 2));
    op.run(native_backend(), *one_root(2), two, {{{}, {{1, alone}}}});
    CHECK(same_bits(middle, alone));
    CHECK(!same_bits(end, alone));
  }
}

TEST_CASE("aten: layers with a state, their gradients and what they carry") {
  each_type([](at::ScalarType type) {
    const auto forest = branching_forest();
    const int64_t n = forest->num_tokens();
    for (const bool silu : {false, true}) {
      const ConvolutionWeights w{random({21, 1, 4}, 1, type), random({21}, 2, type)};
      const at::Tensor x = random({n, 21}, 5, type), dy = random({n, 21}, 6, type);
      compare("convolution", [&](const Backend& backend) {
        const auto [dx, d] = backend.short_convolution_backward(w, silu, *forest, x, dy);
        return Tensors{backend.short_convolution(w, silu, *forest, x, {}), dx, d.weight, d.bias};
      });
    }
    const Operation op = delta_rule(type);
    const Tensors rows = random_rows(op, n, type);
    const DeltaRuleInputs in{rows[0], rows[1], rows[2], random({6}, 3, type), random({6}, 4, type)};
    const at::Tensor dout = random({n, 6 * 21}, 7, type);
    const auto backward = [&](const Backend& backend) {
      return backend.gated_delta_rule_backward(kRule, *forest, in, dout);
    };
    compare("delta rule", [&](const Backend& backend) {
      const DeltaRuleInputs d = backward(backend);
      return Tensors{backend.gated_delta_rule(kRule, *forest, in, {}), d.qkv, d.a, d.b};
    });
    // Sums over rows whose terms cancel: their errors are those of the terms.
    const double terms = backward(native_backend()).a.abs().sum(0).max().item<double>();
    compare(
        "delta rule, sums",
        [&](const Backend& backend) {
          const DeltaRuleInputs d = backward(backend);
          return Tensors{d.a_log, d.dt_bias};
        },
        terms);
  });
  for (const Operation& op : operations(at::kFloat))
    compare("carried", [&](const Backend& backend) {
      const at::Tensor state = random({op.state}, 8, at::kFloat), kept = at::empty_like(state);
      const Tensors rows = random_rows(op, 70, at::kFloat);
      const at::Tensor out =
          op.run(backend, *one_root(70, 4), rows, {{state, {{1, kept}, {69, state}}}});
      return Tensors{out, state, kept};
    });
}

}  // namespace temper::ops::backends
