#include "temper/ops/aten/flash_attention.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "temper/base/error.h"
#include "temper/ops/aten/common.h"

namespace temper::ops::aten_impl {
namespace {

constexpr int64_t kLargestHead = 256, kHeadMultiple = 8;  // limits of the kernels on head_dim

// Which devices have the kernels, as far as that was asked.
class FlashDevices {
 public:
  static FlashDevices& instance() {
    static FlashDevices devices;
    return devices;
  }
  void ask(at::DeviceType kind, bool asked) {
    const std::lock_guard lock(mutex_);
    asked ? (void)kinds_.insert(kind) : (void)kinds_.erase(kind);
    found_.clear();
  }
  bool has(at::Device device, int64_t head_dim) {
    const std::lock_guard lock(mutex_);
    if (!kinds_.contains(device.type())) return false;
    const std::pair<std::string, int64_t> key(device.str(), head_dim);
    const auto known = found_.find(key);
    if (known != found_.end()) return known->second;
    return found_[key] = !off_ && works(device, head_dim);
  }

 private:
  FlashDevices() {
    const char* setting = std::getenv("TEMPER_FLASH_ATTENTION");
    off_ = setting && std::string_view(setting) == "off";
  }
  // LibTorch may be built without them, and older GPUs do not have them, or not of every head_dim.
  static bool works(at::Device device, int64_t head_dim);

  std::mutex mutex_;
  bool off_ = false;
  std::set<at::DeviceType> kinds_{at::kCUDA};
  std::map<std::pair<std::string, int64_t>, bool> found_;
};

// The window as the kernels count it: keys before a query's own, and behind it.
struct FlashWindow {
  bool causal = false;
  std::optional<int64_t> before, behind;
};
FlashWindow window_of(const AttentionSpec& s, bool causal) {
  if (!causal) return {};
  if (s.window == 0) return {.causal = true, .before = {}, .behind = {}};
  return {.causal = false, .before = s.window - 1, .behind = 0};
}

// Rows of a tensor, contiguous.
at::Tensor taken(const at::Tensor& x, const at::Tensor& rows) {
  return rows.defined() ? x.index_select(0, rows) : x.contiguous();
}

void add_rows(at::Tensor& to, const at::Tensor& rows, const at::Tensor& x) {
  if (rows.defined())
    to.index_add_(0, rows, x.to(to.scalar_type()));
  else
    to.add_(x);
}

bool FlashDevices::works(at::Device device, int64_t head_dim) {
  AttentionSpec spec;
  spec.num_heads = spec.num_kv_heads = 1;
  spec.head_dim = head_dim;
  const at::TensorOptions options = at::TensorOptions(at::kBFloat16).device(device),
                          single = options.dtype(at::kFloat);
  try {
    const at::Tensor x = at::zeros({1, 1, head_dim}, options);
    FlashBatch batch;
    batch.query_start = batch.key_start = at::arange(2, options.dtype(at::kInt));
    batch.longest_query = batch.longest_key = 1;
    const FlashInputs in{x, x, x, x, at::zeros({1, 1}, single), x};
    PaddedGradients gradients{at::zeros({1, 1, head_dim}, single),
                              at::zeros({1, 1, head_dim}, single),
                              at::zeros({1, 1, head_dim}, single)};
    flash_attention(spec, batch, in);
    flash_attention_backward(spec, batch, in, gradients);
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

}  // namespace

bool takes_flash_attention(const AttentionSpec& s, at::Device device) {
  return (s.arithmetic == Arithmetic::kFast || s.arithmetic == Arithmetic::kAmx) &&
         s.soft_cap == 0 && s.cache_dtype != CacheDtype::kFloat16 && s.head_dim <= kLargestHead &&
         s.head_dim % kHeadMultiple == 0 && has_flash_attention(device, s.head_dim);
}

bool has_flash_attention(at::Device device, int64_t head_dim) {
  return FlashDevices::instance().has(device, head_dim);
}
void ask_for_flash_attention(at::DeviceType kind, bool asked) {
  FlashDevices::instance().ask(kind, asked);
}

PaddedResult flash_attention(const AttentionSpec& s, const FlashBatch& b, const FlashInputs& in) {
  const FlashWindow window = window_of(s, b.causal);
  const auto [out, log_sum_exp, state, unused, mask] = at::_flash_attention_forward(
      taken(in.q, b.query_row), taken(in.k, b.key_row), taken(in.v, b.key_row), b.query_start,
      b.key_start, b.longest_query, b.longest_key, /*dropout_p=*/0, window.causal,
      /*return_debug_mask=*/false, s.scale, window.before, window.behind);
  return {out.to(at::kFloat), log_sum_exp.t().contiguous()};
}

void flash_attention_backward(const AttentionSpec& s, const FlashBatch& b, const FlashInputs& in,
                              PaddedGradients& gradients) {
  const FlashWindow window = window_of(s, b.causal);
  // The state of random numbers is dropout's: there is none, so that nothing reads it.
  const at::Tensor state = at::zeros({2}, b.query_start.options().dtype(at::kUInt64)),
                   unused = at::empty({0}, in.q.options());
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      taken(in.dout, b.query_row), taken(in.q, b.query_row), taken(in.k, b.key_row),
      taken(in.v, b.key_row), taken(in.out, b.query_row),
      taken(in.log_sum_exp, b.query_row).t().contiguous(), b.query_start, b.key_start,
      b.longest_query, b.longest_key, /*dropout_p=*/0, window.causal, state, unused, s.scale,
      window.before, window.behind);
  add_rows(gradients.q, b.query_row, dq);
  add_rows(gradients.k, b.key_row, dk);
  add_rows(gradients.v, b.key_row, dv);
}

// The argument block_table is there since 2.12.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 12)

bool reads_flash_pages(const AttentionSpec& spec, at::Device device) {
  return spec.cache_dtype == CacheDtype::kBFloat16 && takes_flash_attention(spec, device);
}

PaddedResult paged_flash_attention(const AttentionSpec& s, const PagedFlashBatch& b,
                                   const at::Tensor& q, const at::Tensor& keys,
                                   const at::Tensor& values) {
  const FlashWindow window = window_of(s, true);
  const auto [out, log_sum_exp, state, unused, mask] = at::_flash_attention_forward(
      q.to(at::kBFloat16), keys, values, b.query_start, b.key_start, b.longest_query, b.longest_key,
      /*dropout_p=*/0, window.causal, /*return_debug_mask=*/false, s.scale, window.before,
      window.behind, /*seqused_k=*/b.keys, /*alibi_slopes=*/{}, /*block_table=*/b.page);
  return {out.to(at::kFloat), log_sum_exp.t()};
}

#else

bool reads_flash_pages(const AttentionSpec&, at::Device) { return false; }

PaddedResult paged_flash_attention(const AttentionSpec&, const PagedFlashBatch&, const at::Tensor&,
                                   const at::Tensor&, const at::Tensor&) {
  throw RunError("LibTorch's flash attention reads no pages");
}

#endif

}  // namespace temper::ops::aten_impl
