#include "temper/ops/layers/routing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct RouteOptions {
  RouterSpec spec;
  at::Tensor bias;  // without a gradient; may be undefined
};

struct RouteFunction : Function<RouteFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits,
                               const RouteOptions& options) {
    const Routing routing = backend_of(logits).route(options.spec, logits, options.bias);
    keep(ctx, options.spec);
    ctx->save_for_backward({logits, routing.expert});
    ctx->mark_non_differentiable({routing.expert});
    return {routing.expert, routing.weight};
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    return {backend_of(saved[0]).route_backward(kept<RouterSpec>(ctx), saved[0], saved[1],
                                                douts[1].contiguous()),
            at::Tensor()};
  }
};

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

// `asks` asks for a gradient, of which there is none.
struct CombineFunction : Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& place, const std::shared_ptr<Ranks>& ranks,
                            const at::Tensor& /*asks*/) {
    keep(ctx, ranks);
    ctx->save_for_backward({x, weight, place});
    return combined(x, weight, place, ranks.get());
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    auto [dx, dweight] =
        backend_of(saved[0]).combine_backward(saved[0], saved[1], saved[2], douts[0].contiguous());
    // Each rank has what its experts' rows give, and zeros: no sum of two numbers.
    const auto& ranks = kept<std::shared_ptr<Ranks>>(ctx);
    if (ranks && ctx->needs_input_grad(1)) ranks->all_reduce_sum(dweight);
    return {dx, dweight, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct NoRowsFunction : Function<NoRowsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const std::shared_ptr<Ranks>& ranks) {
    keep(ctx, ranks);
    ctx->saved_data["rows"] = x.size(0);
    return at::empty({0, x.size(1)}, x.options());
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    at::Tensor dx =
        at::zeros({ctx->saved_data["rows"].toInt(), douts[0].size(1)}, douts[0].options());
    kept<std::shared_ptr<Ranks>>(ctx)->in_turn(dx, [] {});
    return {dx, at::Tensor()};
  }
};

struct ProbabilitiesFunction : Function<ProbabilitiesFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits) {
    ctx->save_for_backward({logits});
    return backend_of(logits).router_probabilities(logits);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const at::Tensor logits = ctx->get_saved_variables()[0];
    return {backend_of(logits).router_probabilities_backward(logits, douts[0].contiguous())};
  }
};

struct BalanceLossFunction : Function<BalanceLossFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const at::Tensor& logits,
                            const std::shared_ptr<const BalanceLoss>& loss) {
    keep(ctx, loss);
    ctx->save_for_backward({logits});
    return y.view_as(y);
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const at::Tensor logits = ctx->get_saved_variables()[0];
    const at::Tensor& weight = kept<std::shared_ptr<const BalanceLoss>>(ctx)->weight;
    check(weight.defined() && weight.numel() == logits.size(1),
          "a load-balancing loss without its experts' weights");
    return {douts[0],
            backend_of(logits).router_probabilities_backward(
                logits, weight.to(logits.options()).expand_as(logits).contiguous()),
            at::Tensor()};
  }
};

}  // namespace

Routing route(const RouterSpec& spec, const at::Tensor& logits, const at::Tensor& bias) {
  check(logits.dim() == 2 && logits.is_contiguous() && logits.size(1) == spec.experts &&
            spec.chosen > 0 && spec.chosen <= spec.experts && spec.experts % spec.groups == 0,
        "a router of ", spec.experts, " experts and logits ", logits.sizes());
  if (!at::GradMode::is_enabled()) return backend_of(logits).route(spec, logits, bias);
  const variable_list out = RouteFunction::apply(logits, RouteOptions{spec, bias});
  return {out[0], out[1]};
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
  if (!at::GradMode::is_enabled()) return combined(x, weight, rows.place, ranks.get());
  const at::Tensor asks = at::empty({0}, x.options()).requires_grad_(ranks != nullptr);
  return CombineFunction::apply(x, weight, rows.place, ranks, asks);
}

at::Tensor no_rows(const at::Tensor& x, const std::shared_ptr<Ranks>& ranks) {
  if (!at::GradMode::is_enabled()) return at::empty({0, x.size(1)}, x.options());
  return NoRowsFunction::apply(x, ranks);
}

at::Tensor router_probabilities(const at::Tensor& logits) {
  check(logits.dim() == 2 && logits.is_contiguous(), "a router's logits ", logits.sizes());
  if (!at::GradMode::is_enabled()) return backend_of(logits).router_probabilities(logits);
  return ProbabilitiesFunction::apply(logits);
}

at::Tensor with_balance_loss(const at::Tensor& y, const at::Tensor& logits,
                             std::shared_ptr<const BalanceLoss> loss) {
  check(logits.dim() == 2 && logits.is_contiguous(), "a router's logits ", logits.sizes());
  if (!at::GradMode::is_enabled()) return y;
  return BalanceLossFunction::apply(y, logits, std::move(loss));
}

}  // namespace temper::ops
