#include "temper/ops/logits/choice.h"

#include <ATen/ATen.h>

#include <array>
#include <limits>

#include "temper/base/error.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace aten_impl {
namespace {

enum ChoiceKind { kGreedy, kOfAll, kFiltered, kChoiceKinds };
ChoiceKind kind_of(const ChoiceRule& rule) {
  return rule.greedy ? kGreedy : rule.filters() ? kFiltered : kOfAll;
}

// Rules of several rows on the device, [n, 1] float64.
struct RuleColumns {
  at::Tensor row;  // [n] int64
  at::Tensor quantile, top_k, top_p, min_p;
};

// The rows of one kind, in one copy.
RuleColumns columns_of(const std::vector<ChoiceRule>& rules, ChoiceKind kind, at::Device device) {
  std::array<std::vector<double>, 5> columns;
  for (size_t row = 0; row < rules.size(); ++row) {
    const ChoiceRule& r = rules[row];
    if (kind_of(r) != kind) continue;
    const double most =
        r.top_k > 0 ? static_cast<double>(r.top_k) : std::numeric_limits<double>::infinity();
    const double values[] = {static_cast<double>(row), r.quantile, most, r.top_p, r.min_p};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].push_back(values[i]);
  }
  const auto count = static_cast<int64_t>(columns[0].size());
  if (count == 0) return {at::empty({0}, at::kLong), {}, {}, {}, {}};
  std::vector<double> all;
  for (const auto& column : columns) all.insert(all.end(), column.begin(), column.end());
  const at::Tensor x = at::tensor(all, at::kDouble).to(device).view({5, count, 1});
  return {x[0].flatten().to(at::kLong), x[1], x[2], x[3], x[4]};
}

// In each row of ascending sums: the index of the first above `at`, but not beyond the last that
// has a mass.
at::Tensor first_above(const at::Tensor& sums, const at::Tensor& at, const at::Tensor& mass) {
  const at::Tensor place = at::arange(mass.size(1), mass.options().dtype(at::kLong));
  const at::Tensor last = place.masked_fill(mass.le(0), 0).amax(1, /*keepdim=*/true);
  return at::minimum(sums.le(at).sum(1, /*keepdim=*/true), last);
}

// The block of columns in which the quantile lies, by the sums that log-sum-exp is made of; then
// the column in it.
at::Tensor choose_of_all(const Logits& x, const at::Tensor& quantile) {
  const at::Tensor block_max = x.block_max.to(at::kDouble),
                   scale = (block_max - block_max.amax(1, /*keepdim=*/true)).exp_(),
                   mass = x.block_sum.to(at::kDouble).mul_(scale), sums = mass.cumsum(1);
  const int64_t blocks = mass.size(1), vocabulary = x.logits.size(1);
  const at::Tensor target = quantile * sums.narrow(1, blocks - 1, 1),
                   block = first_above(sums, target, mass);
  const at::Tensor before = sums.gather(1, (block - 1).clamp_min_(0)).masked_fill(block.eq(0), 0);
  const at::Tensor left = (target - before).div_(scale.gather(1, block));
  const at::Tensor column = block * kLogitsBlock + at::arange(kLogitsBlock, block.options());
  const at::Tensor weight =
      (x.logits.gather(1, column.clamp_max(vocabulary - 1)) - x.block_max.gather(1, block))
          .exp_()
          .to(at::kDouble)
          .masked_fill_(column.ge(vocabulary), 0);
  const at::Tensor chosen = column.gather(1, first_above(weight.cumsum(1), left, weight));
  return chosen.clamp_max(vocabulary - 1);
}

// All are sorted, and the filters leave the first so many.
at::Tensor choose_filtered(const at::Tensor& logits, const RuleColumns& rules) {
  const auto [sorted, id] = at::sort(logits, /*stable=*/true, /*dim=*/1, /*descending=*/true);
  const int64_t vocabulary = logits.size(1);
  const at::Tensor place = at::arange(vocabulary, rules.top_k.options()).unsqueeze(0);
  at::Tensor weight = (sorted - sorted.narrow(1, 0, 1)).exp_().to(at::kDouble);
  weight.masked_fill_(place.ge(rules.top_k), 0);
  const at::Tensor sums = weight.cumsum(1);
  // The sum before each token; the first token is always left.
  const at::Tensor before =
      at::cat({at::zeros_like(sums.narrow(1, 0, 1)), sums.narrow(1, 0, vocabulary - 1)}, 1);
  const at::Tensor enough = before.ge(rules.top_p * sums.narrow(1, vocabulary - 1, 1))
                                .bitwise_and_(rules.top_p.lt(1))
                                .bitwise_and_(place.gt(0));
  weight.masked_fill_(enough.bitwise_or(weight.lt(rules.min_p)), 0);
  const at::Tensor left = weight.cumsum(1);
  const at::Tensor target = rules.quantile * left.narrow(1, vocabulary - 1, 1);
  return id.gather(1, first_above(left, target, weight));
}

at::Tensor rows_of(const at::Tensor& x, const at::Tensor& row, bool all) {
  return all ? x : x.index_select(0, row);
}

}  // namespace
}  // namespace aten_impl

at::Tensor choose(const Logits& x, const std::vector<ChoiceRule>& rules) {
  check(x.logits.size(0) == static_cast<int64_t>(rules.size()), "choose: ", x.logits.sizes(), ", ",
        rules.size(), " rules");
  const aten_impl::BelowAutograd below;
  at::Tensor token;
  for (int i = 0; i < aten_impl::kChoiceKinds; ++i) {
    const auto kind = static_cast<aten_impl::ChoiceKind>(i);
    const aten_impl::RuleColumns rows = aten_impl::columns_of(rules, kind, x.logits.device());
    const int64_t count = rows.row.size(0);
    if (count == 0) continue;
    const bool all = count == x.logits.size(0);
    const auto own = [&](const at::Tensor& of) { return aten_impl::rows_of(of, rows.row, all); };
    at::Tensor chosen;
    if (kind == aten_impl::kGreedy) chosen = own(x.logits).argmax(1, /*keepdim=*/true);
    if (kind == aten_impl::kOfAll)
      chosen = aten_impl::choose_of_all(
          {own(x.logits), own(x.log_sum_exp), own(x.block_max), own(x.block_sum)}, rows.quantile);
    if (kind == aten_impl::kFiltered) chosen = aten_impl::choose_filtered(own(x.logits), rows);
    if (all) {
      token = chosen;
      break;
    }
    if (!token.defined()) token = at::empty({x.logits.size(0), 1}, chosen.options());
    token.index_copy_(0, rows.row, chosen);
  }
  const at::Tensor log_sum = x.log_sum_exp.unsqueeze(1), logp = x.logits.gather(1, token) - log_sum;
  return at::cat({token.to(at::kDouble), logp.to(at::kDouble), log_sum.to(at::kDouble)}, 1);
}

}  // namespace temper::ops
