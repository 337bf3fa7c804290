// The aten backend's sweeps over the vocabulary against the native backend's.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <limits>

#include "temper/ops/backend.h"
#include "tests/ops/backends.h"

namespace temper::ops::backends {
namespace {

int64_t blocks(int64_t columns) { return (columns + kLogitsBlock - 1) / kLogitsBlock; }

// Calls body(rows, columns, type) for sizes with and without a block that is not whole.
template <class Body>
void each_size(Body body) {
  each_type([&](at::ScalarType type) {
    for (const int64_t rows : {0, 1, 9})
      for (const int64_t columns : {7, 512, 1536, 1300}) {
        CAPTURE(rows);
        CAPTURE(columns);
        body(rows, columns, type);
      }
  });
}

}  // namespace

TEST_CASE("aten: the softmax's parts, sums and gradients") {
  each_size([](int64_t rows, int64_t columns, at::ScalarType type) {
    const at::Tensor logits = random({rows, columns}, 1, type, 20), g = random({rows}, 2, type),
                     h = random({rows}, 3, type),
                     target = random_ids({rows}, 4, 2 * columns);  // some are not in the tile
    HeadSpec spec;
    spec.scale = 0.8;
    spec.soft_cap = 15;
    spec.temperature = 0.7;
    compare("softmax", [&](const Backend& backend) {
      at::Tensor x = logits.clone();
      backend.finish_logits(spec, x);
      // A view of the parts of a larger vocabulary.
      const at::Tensor all = at::zeros({rows, blocks(columns) + 3, 3}, type),
                       parts = all.narrow(1, 1, blocks(columns));
      backend.softmax_parts(x, parts);
      const SoftmaxSums sums = backend.join_softmax_parts(parts.contiguous());
      at::Tensor dx = x.clone(), plain = x.clone();
      backend.softmax_gradient(dx, columns / 2, target, sums, g, h);
      backend.softmax_gradient(plain, columns / 2, target, sums, g, {});
      return Tensors{x, all, sums.log_sum_exp, sums.entropy, dx, plain};
    });
  });
}

TEST_CASE("aten: logits that overflow or are no numbers give no finite log-sum-exp") {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    at::Tensor x = random({2, 700}, 1, at::kFloat);
    x[0][600] = bad;
    const at::Tensor parts = at::empty({2, 2, 3});
    aten_backend().softmax_parts(x, parts);
    const at::Tensor lse = aten_backend().join_softmax_parts(parts).log_sum_exp;
    CHECK(!lse[0].isfinite().item<bool>());
    CHECK(lse[1].isfinite().item<bool>());
  }
}

TEST_CASE("aten: single entries of a tile are read and added to") {
  each_size([](int64_t rows, int64_t columns, at::ScalarType type) {
    const at::Tensor logits = random({rows, columns}, 1, type), value = random({rows, 3}, 2, type),
                     id = random_ids({rows, 3}, 3, 3 * columns);
    compare("entries", [&](const Backend& backend) {
      at::Tensor x = logits.clone(), to = value.clone();
      backend.take_entries(x, columns, id, to);
      backend.add_to_entries(x, columns, id, value);
      return Tensors{x, to};
    });
  });
}

TEST_CASE("aten: the likeliest tokens of tiles, of equals the lower id") {
  each_type([](at::ScalarType type) {
    const at::Tensor x = random_ids({8, 900}, 1, 40).to(type);  // full of equals
    for (const int64_t k : {1, 17, 1000}) {
      TopTokens tops[2];
      for (int i = 0; i < 2; ++i) {
        const Backend& backend = i == 0 ? native_backend() : aten_backend();
        tops[i] = {at::empty({8, 0}, at::kLong), at::empty({8, 0}, type)};
        for (const int64_t first : {0, 300, 600})
          backend.join_top(tops[i], x.narrow(1, first, 300).contiguous(), first, k);
      }
      CHECK(at::equal(tops[0].id, tops[1].id));
      CHECK(at::equal(tops[0].logit, tops[1].logit));
    }
  });
}

TEST_CASE("aten: divergences of rows and their gradients") {
  each_size([](int64_t rows, int64_t columns, at::ScalarType type) {
    const at::Tensor student = random({rows, columns}, 1, type, 6),
                     teacher = random({rows, columns}, 2, type, 6), g = random({rows}, 3, type);
    for (const DivergenceKind kind :
         {DivergenceKind::kForwardKl, DivergenceKind::kReverseKl, DivergenceKind::kJsd})
      compare("divergence", [&](const Backend& backend) {
        DivergenceSpec spec;
        spec.kind = kind;
        spec.jsd_beta = 0.3;
        const at::Tensor parts = at::zeros({rows, blocks(columns), 6}, type);
        backend.divergence_parts(student, teacher, parts);
        DivergenceSums sums = backend.join_divergence_parts(parts, kind);
        Tensors out{parts, sums.lse_student, sums.lse_teacher};
        if (kind == DivergenceKind::kJsd) {
          const at::Tensor mixed = at::zeros({rows, blocks(columns), 2}, type);
          backend.mixture_parts(student, teacher, sums, spec.jsd_beta, mixed);
          backend.join_mixture_parts(mixed, spec.jsd_beta, sums);
          out.insert(out.end(), {mixed, sums.mixture});
        }
        out.push_back(sums.value);
        out.push_back(backend.divergence_gradient(spec, student, teacher, sums, g));
        return out;
      });
  });
}

TEST_CASE("aten: the mixture of probabilities that are 0 is a number") {
  at::Tensor student = at::zeros({1, 8}), teacher = at::zeros({1, 8});
  student[0][0] = teacher[0][0] = 500;
  const at::Tensor parts = at::empty({1, 1, 6}), mixed = at::empty({1, 1, 2});
  aten_backend().divergence_parts(student, teacher, parts);
  DivergenceSums sums = aten_backend().join_divergence_parts(parts, DivergenceKind::kJsd);
  aten_backend().mixture_parts(student, teacher, sums, 0.5, mixed);
  aten_backend().join_mixture_parts(mixed, 0.5, sums);
  CHECK(sums.value.item<double>() == 0);
}

}  // namespace temper::ops::backends
