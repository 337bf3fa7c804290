#include "temper/ops/logits/top_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "temper/ops/backend.h"
#include "temper/ops/logits/head_blocks.h"

namespace temper::ops {

TopTokens likeliest_tokens(const TeacherHead& teacher, double temperature, int64_t k) {
  const at::Tensor hidden = teacher.hidden.contiguous();
  const Backend& backend = backend_of(hidden);
  const int64_t m = hidden.size(0), wanted = std::min(k, teacher.weight.out());
  HeadSpec spec = teacher.spec;
  spec.temperature = temperature;
  std::vector<TopTokens> found;  // [tiles] likeliest tokens of the rows of each tile
  each_rows(backend, m, [&](int64_t, int64_t rows) {
    found.push_back({at::empty({rows, 0}, hidden.options().dtype(at::kLong)),
                     at::empty({rows, 0}, hidden.options())});
  });
  each_block(teacher.weight, m, [&](int64_t first, const Weight& part) {
    size_t i = 0;
    each_rows(backend, m, [&](int64_t row, int64_t rows) {
      const at::Tensor x = tile_logits(spec, hidden.narrow(0, row, rows), part);
      backend.join_top(found[i++], x, first, wanted);
    });
  });
  TopTokens top{at::empty({m, wanted}, hidden.options().dtype(at::kLong)),
                at::empty({m, wanted}, hidden.options())};
  size_t i = 0;
  each_rows(backend, m, [&](int64_t row, int64_t rows) {
    top.id.narrow(0, row, rows).copy_(found[i].id);
    top.logit.narrow(0, row, rows).copy_(found[i++].logit);
  });
  return top;
}

TopTokens top_tokens(const TeacherHead& teacher, int64_t k) {
  TopTokens top = likeliest_tokens(teacher, 1, k);
  HeadSpec spec = teacher.spec;
  spec.temperature = 1;
  spec.log_sum_exp = true;
  const std::vector<int64_t> any(static_cast<size_t>(teacher.hidden.size(0)), 0);
  const at::Tensor lse =
      token_logp(spec, teacher.hidden.contiguous(), teacher.weight, any).log_sum_exp;
  top.logit = top.logit - lse.unsqueeze(1);
  return top;
}

}  // namespace temper::ops
