#include "temper/cli/compared_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "temper/base/error.h"
#include "temper/io/weight_files.h"
#include "temper/models/files/tensors.h"

namespace temper::cli {
namespace {

// In pieces, so that a tensor of a large vocabulary is not in memory twice in float64.
double most_apart(const TensorView& a, const TensorView& b) {
  constexpr int64_t kPiece = int64_t{1} << 22;
  const at::Tensor x = models::to_tensor(a, at::kFloat).flatten(),
                   y = models::to_tensor(b, at::kFloat).flatten();
  double largest = 0;
  for (int64_t from = 0; from < x.numel(); from += kPiece) {
    const int64_t count = std::min(kPiece, x.numel() - from);
    const at::Tensor p = x.narrow(0, from, count).to(at::kDouble),
                     q = y.narrow(0, from, count).to(at::kDouble);
    // Equal infinities, and NaN in both, are no difference.
    const at::Tensor same = p.eq(q).logical_or(p.isnan().logical_and(q.isnan()));
    const double piece =
        at::where(same, at::zeros({}, at::kDouble), (p - q).abs()).max().item<double>();
    if (std::isnan(piece)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, piece);
  }
  return largest;
}

}  // namespace

ComparedTensors compare_tensors(const TensorMap& a, const TensorMap& b) {
  ComparedTensors out;
  for (const auto& [name, x] : a) {
    const auto found = b.find(name);
    if (found == b.end()) {
      out.only_a.push_back(name);
      continue;
    }
    ++out.compared;
    const TensorView& y = found->second;
    if (x.shape != y.shape) {
      out.differ.push_back({name, shape_text(x.shape) + " and " + shape_text(y.shape),
                            std::numeric_limits<double>::quiet_NaN()});
      continue;
    }
    const bool same_dtype = x.dtype == y.dtype;
    if (same_dtype && (x.num_bytes == 0 || std::memcmp(x.data, y.data, x.num_bytes) == 0)) continue;
    out.differ.push_back({name,
                          same_dtype ? "" : str(dtype_name(x.dtype), " and ", dtype_name(y.dtype)),
                          most_apart(x, y)});
  }
  for (const auto& [name, y] : b)
    if (!a.contains(name)) out.only_b.push_back(name);
  return out;
}

TensorMap tensors_of(const std::string& directory) {
  const std::string adapter = directory + "/adapter_model.safetensors";
  return std::filesystem::exists(adapter) ? read_safetensors(adapter) : read_weights(directory);
}

}  // namespace temper::cli
