#include "temper/ops/layers/routing.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {

at::Tensor combined(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& place,
                    Ranks* ranks) {
  at::Tensor y = at::empty({weight.size(0), x.size(1)}, x.options());
  if (!ranks) {
    backend_of(x).combine(x, weight, place, y, false);
    return y;
  }
  y.zero_();
  ranks->in_turn(y, [&] { backend_of(x).combine(x, weight, place, y, true); });
  return y;
}

}  // namespace

Routing route(const RouterSpec& spec, const at::Tensor& logits, const at::Tensor& bias) {
  check(logits.dim() == 2 && logits.is_contiguous() && logits.size(1) == spec.experts &&
            spec.chosen > 0 && spec.chosen <= spec.experts && spec.experts % spec.groups == 0,
        "a router of ", spec.experts, " experts and logits ", logits.sizes());
  Recording call({logits});
  const Routing routing = backend_of(logits).route(spec, logits, bias);
  call.reads({logits, routing.expert});
  return {routing.expert,
          call.output(routing.weight, [=, expert = routing.expert](const Gradients& d) -> Tensors {
            return {backend_of(logits).route_backward(spec, logits, expert, d[0])};
          })};
}

// A counting sort, which keeps the tokens' order.
ExpertRows rows_by_expert(const at::Tensor& expert, int64_t experts) {
  const at::Tensor on_host = expert.to(at::kCPU).contiguous();
  const int64_t rows = on_host.numel(), chosen = expert.size(1);
  const int64_t* of = on_host.const_data_ptr<int64_t>();
  std::vector<int64_t> next(static_cast<size_t>(experts) + 1);
  for (int64_t i = 0; i < rows; ++i) ++next[static_cast<size_t>(of[i]) + 1];
  ExpertRows out;
  out.offsets.push_back(0);
  for (size_t e = 0; e < static_cast<size_t>(experts); ++e) {
    if (next[e + 1] > 0) {
      out.experts.push_back(static_cast<int64_t>(e));
      out.offsets.push_back(out.offsets.back() + next[e + 1]);
    }
    next[e + 1] += next[e];
  }
  out.token.resize(static_cast<size_t>(rows));
  at::Tensor place = at::empty(expert.sizes(), at::kLong);
  int64_t* to = place.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows; ++i) {
    to[i] = next[static_cast<size_t>(of[i])]++;
    out.token[static_cast<size_t>(to[i])] = i / chosen;
  }
  out.place = place.to(expert.device());
  return out;
}

ExpertRows rows_of_experts(const ExpertRows& rows, int64_t first, int64_t count) {
  const auto from = std::lower_bound(rows.experts.begin(), rows.experts.end(), first),
             to = std::lower_bound(from, rows.experts.end(), first + count);
  const auto begin = from - rows.experts.begin(), end = to - rows.experts.begin();
  const int64_t before = rows.offsets[static_cast<size_t>(begin)],
                after = rows.offsets[static_cast<size_t>(end)];
  ExpertRows out;
  out.experts.assign(from, to);
  for (auto g = begin; g <= end; ++g)
    out.offsets.push_back(rows.offsets[static_cast<size_t>(g)] - before);
  out.token.assign(rows.token.begin() + before, rows.token.begin() + after);
  const at::Tensor place = rows.place.to(at::kCPU).clone();
  int64_t* of = place.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < place.numel(); ++i)
    of[i] = of[i] >= before && of[i] < after ? of[i] - before : -1;
  out.place = place.to(rows.place.device());
  return out;
}

at::Tensor combine(const at::Tensor& x, const at::Tensor& weight, const ExpertRows& rows,
                   const std::shared_ptr<Ranks>& ranks) {
  check(weight.is_contiguous() && weight.sizes() == rows.place.sizes() && x.is_contiguous() &&
            x.size(0) == (ranks ? std::ssize(rows.token) : weight.numel()),
        "experts' rows ", x.sizes(), " and weights ", weight.sizes());
  // Asks for a gradient, of which there is none.
  const at::Tensor asks = ranks ? at::empty({0}, x.options()).requires_grad_() : at::Tensor(),
                   place = rows.place;
  Recording call({x, weight, asks});
  call.reads({x, weight, place});
  return call.output(combined(x, weight, place, ranks.get()), [=](const Gradients& d) -> Tensors {
    auto [dx, dweight] = backend_of(x).combine_backward(x, weight, place, d[0]);
    // Each rank has what its experts' rows give, and zeros: no sum of two
    // numbers.
    if (ranks && d.wanted(1)) ranks->all_reduce_sum(dweight);
    return {dx, dweight};
  });
}

at::Tensor no_rows(const at::Tensor& x, const std::shared_ptr<Ranks>& ranks) {
  Recording call({x});
  return call.output(at::empty({0, x.size(1)}, x.options()),
                     [ranks, count = x.size(0)](const Gradients& d) -> Tensors {
                       at::Tensor dx = at::zeros({count, d[0].size(1)}, d[0].options());
                       ranks->in_turn(dx, [] {});
                       return {dx};
                     });
}

at::Tensor router_probabilities(const at::Tensor& logits) {
  check(logits.dim() == 2 && logits.is_contiguous(), "a router's logits ", logits.sizes());
  Recording call({logits});
  call.reads({logits});
  return call.output(backend_of(logits).router_probabilities(logits),
                     [=](const Gradients& d) -> Tensors {
                       return {backend_of(logits).router_probabilities_backward(logits, d[0])};
                     });
}

at::Tensor with_balance_loss(const at::Tensor& y, const at::Tensor& logits,
                             std::shared_ptr<const BalanceLoss> loss) {
  check(logits.dim() == 2 && logits.is_contiguous(), "a router's logits ", logits.sizes());
  Recording call({y, logits});
  call.reads({logits});
  return call.output(y, [logits, loss = std::move(loss)](const Gradients& d) -> Tensors {
    const at::Tensor& weight = loss->weight;
    check(weight.defined() && weight.numel() == logits.size(1),
          "a load-balancing loss without its experts' weights");
    return {d[0], backend_of(logits).router_probabilities_backward(
                      logits, weight.to(logits.options()).expand_as(logits).contiguous())};
  });
}

}  // namespace temper::ops
