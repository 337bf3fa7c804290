// Sweeps over the vocabulary: logits, their softmax and single entries of them.

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// Columns of a tile that ids [rows, k] name: which are in it, and where (0 where not).
struct TileColumns {
  at::Tensor inside, column;
};
TileColumns columns_of_tile(const at::Tensor& x, int64_t first, const at::Tensor& id) {
  const at::Tensor column = id - first;
  const at::Tensor inside = column.ge(0).bitwise_and_(column.lt(x.size(1)));
  return {inside, column.masked_fill(inside.bitwise_not(), 0)};
}

// The columns [rows, k] of the k largest of each row, of equals those of the lower id first.
at::Tensor likeliest(const at::Tensor& logit, const at::Tensor& id, int64_t k) {
  if (logit.scalar_type() != at::kFloat)  // lower ids stand before higher ones
    return std::get<1>(at::sort(logit, /*stable=*/true, /*dim=*/1, /*descending=*/true))
        .narrow(1, 0, k);
  // Selecting k is much faster than sorting all, but takes any of equals: so the bits of the
  // number, which order as it does once those of negative ones are turned around, stand over those
  // of the id.
  const at::Tensor bits = (logit + 0.0).view(at::kInt);  // -0 becomes 0
  const at::Tensor ordered = at::where(bits.lt(0), bits.bitwise_xor(0x7FFFFFFF), bits);
  const at::Tensor key = ordered.to(at::kLong).mul_(int64_t{1} << 32).sub_(id);
  return std::get<1>(at::topk(key, k, /*dim=*/1, /*largest=*/true, /*sorted=*/true));
}

}  // namespace

std::vector<at::Tensor> blocks_of_columns(const at::Tensor& x) {
  const int64_t columns = x.size(1), whole = columns / kLogitsBlock * kLogitsBlock;
  std::vector<at::Tensor> out;
  if (whole > 0)
    out.push_back(x.narrow(1, 0, whole).unflatten(1, {whole / kLogitsBlock, kLogitsBlock}));
  if (whole < columns) out.push_back(x.narrow(1, whole, columns - whole).unsqueeze(1));
  return out;
}

}  // namespace aten_impl

HeadTileSize AtenBackend::head_tile() const { return {1024, 16 * kLogitsBlock}; }

void AtenBackend::finish_logits(const HeadSpec& spec, at::Tensor& x) const {
  const aten_impl::BelowAutograd below;
  if (spec.scale != 1) x.mul_(spec.scale);
  if (spec.soft_cap > 0) x.div_(spec.soft_cap).tanh_().mul_(spec.soft_cap);
  if (spec.temperature != 1) x.div_(spec.temperature);
}

void AtenBackend::softmax_parts(const at::Tensor& x, at::Tensor parts) const {
  const aten_impl::BelowAutograd below;
  int64_t first = 0;
  for (const at::Tensor& block : aten_impl::blocks_of_columns(x)) {
    const at::Tensor max = block.amax(2), shifted = block - max.unsqueeze(2), e = shifted.exp();
    const at::Tensor to = parts.narrow(1, first, block.size(1));
    to.select(2, 0).copy_(max);
    to.select(2, 1).copy_(e.sum(2));
    to.select(2, 2).copy_((e * shifted).sum(2));
    first += block.size(1);
  }
}

SoftmaxSums AtenBackend::join_softmax_parts(const at::Tensor& parts) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor p = parts.to(at::kDouble);
  const at::Tensor block_max = p.select(2, 0), max = block_max.amax(1),
                   shift = block_max - max.unsqueeze(1), factor = shift.exp(),
                   sum = (p.select(2, 1) * factor).sum(1),
                   weighted = ((p.select(2, 1) * shift + p.select(2, 2)) * factor).sum(1),
                   log_sum = sum.log();
  return {(max + log_sum).to(parts.scalar_type()),
          (log_sum - weighted / sum).to(parts.scalar_type())};
}

void AtenBackend::softmax_gradient(at::Tensor& x, int64_t first, const at::Tensor& target,
                                   const SoftmaxSums& sums, const at::Tensor& g,
                                   const at::Tensor& h) const {
  const aten_impl::BelowAutograd below;
  x.sub_(sums.log_sum_exp.unsqueeze(1));
  if (h.defined()) {
    const at::Tensor p = x.exp();
    x.add_(sums.entropy.unsqueeze(1)).mul_(h.unsqueeze(1)).add_(g.unsqueeze(1)).mul_(p).neg_();
  } else {
    x.exp_().mul_(-g.unsqueeze(1));
  }
  add_to_entries(x, first, target.unsqueeze(1), g.unsqueeze(1));
}

void AtenBackend::take_entries(const at::Tensor& x, int64_t first, const at::Tensor& id,
                               at::Tensor to) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::TileColumns at = aten_impl::columns_of_tile(x, first, id);
  to.copy_(at::where(at.inside, x.gather(1, at.column), to));
}

void AtenBackend::add_to_entries(at::Tensor& x, int64_t first, const at::Tensor& id,
                                 const at::Tensor& value) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::TileColumns at = aten_impl::columns_of_tile(x, first, id);
  const at::Tensor row = at::arange(x.size(0), id.options()).unsqueeze(1).expand_as(id);
  // Entries outside of the tile add 0 to its first column. The order of sums is fixed, unlike that
  // of scatter_add_ on some devices.
  x.index_put_({row, at.column}, value.masked_fill(at.inside.bitwise_not(), 0),
               /*accumulate=*/true);
}

void AtenBackend::join_top(TopTokens& top, const at::Tensor& x, int64_t first, int64_t k) const {
  const aten_impl::BelowAutograd below;
  at::Tensor id = at::arange(first, first + x.size(1), x.options().dtype(at::kLong)).expand_as(x),
             logit = x;
  if (top.id.defined()) {
    id = at::cat({top.id, id}, 1);
    logit = at::cat({top.logit, x}, 1);
  }
  const at::Tensor order = aten_impl::likeliest(logit, id, std::min(k, logit.size(1)));
  top.logit = logit.gather(1, order);
  top.id = id.gather(1, order);
}

}  // namespace temper::ops
