#include "temper/train/ranks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "temper/base/version.h"

namespace temper::train {
namespace {

constexpr int64_t kBucket = int64_t{1} << 22;  // elements that are summed at once

// Sums tensors over the group, many at a time.
void sum_in_buckets(dist::Group& group, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (size_t begin = 0; begin < tensors.size();) {
    size_t end = begin;
    int64_t count = 0;
    do count += tensors[end++].numel();
    while (end < tensors.size() && count + tensors[end].numel() <= kBucket);
    if (end == begin + 1) {
      at::Tensor alone = tensors[begin];
      if (count > 0) group.all_reduce_sum(alone);
    } else {
      at::Tensor bucket = at::empty({count}, at::kFloat);
      int64_t place = 0;
      const auto each = [&](const auto& copy) {
        place = 0;
        for (size_t i = begin; i < end; place += tensors[i++].numel())
          copy(bucket.narrow(0, place, tensors[i].numel()), tensors[i].view({-1}));
      };
      each([](at::Tensor to, const at::Tensor& from) { to.copy_(from); });
      if (count > 0) group.all_reduce_sum(bucket);
      each([](const at::Tensor& from, at::Tensor to) { to.copy_(from); });
    }
    begin = end;
  }
}

}  // namespace

dist::Mesh join_mesh(RunConfig& config, const RunHost& host) {
  dist::Mesh mesh = dist::join(config.mesh, config.where("mesh"), host.stop);
  dist::check_agreement(*mesh.world, {{"version", kVersion}, {"config", dump_run_config(config)}});
  return mesh;
}

void reduce_gradients(const dist::Mesh& mesh, const Trainables& trainables) {
  if (mesh.world->size() == 1) return;
  std::vector<at::Tensor> partial, sharded, whole;
  for (const auto& trainable : trainables)
    for (const NamedParameter& p : trainable->optimizer.parameters()) {
      at::Tensor& grad = p.parameter->trained().mutable_grad();
      if (!grad.defined()) grad = at::zeros(p.parameter->trained().sizes(), at::kFloat);
      if (!grad.is_contiguous()) grad = grad.contiguous();
      if (p.parameter->gradient_is_partial()) partial.push_back(grad);
      const nn::Placement* placement = p.parameter->placement();
      (placement && placement->fsdp ? sharded : whole).push_back(grad);
    }
  if (mesh.tensor->size() > 1) sum_in_buckets(*mesh.tensor, partial);
  if (mesh.data->size() > 1) sum_in_buckets(*mesh.data, sharded);
  if (mesh.rows->size() > 1) sum_in_buckets(*mesh.rows, whole);
}

}  // namespace temper::train
