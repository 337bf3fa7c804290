// Memory of attention beside its arguments and results, counted as its code allocates it.
#include <algorithm>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"
#include "temper/ops/aten/flash_attention.h"

namespace temper::ops {
namespace aten_impl {
namespace {

constexpr int64_t kFloatBytes = 4, kHalfBytes = 2;

// Numbers in the heads of a pass.
struct HeadNumbers {
  int64_t query, key;  // all rows of queries, and of keys
};
HeadNumbers numbers_of(const AttentionSpec& s, const PassSize& pass) {
  return {pass.rows * s.num_heads * s.head_dim, pass.rows * s.num_kv_heads * s.head_dim};
}

// Normalized and rotated heads, their gradients, and dout times out.
int64_t heads_bytes(const HeadNumbers& n) {
  return kFloatBytes * (2 * (n.query + 2 * n.key) + 2 * n.query);
}

// The largest batch: probabilities and their gradient, the cap's slope; what is gathered of
// queries, keys, values and dout, and the gradients that are added. Of the scores at most a third
// is padding.
int64_t padded_bytes(const AttentionSpec& s, const PassSize& pass, at::Device device) {
  const int64_t of_row = s.num_heads * pass.longest,
                scores = std::min(std::max(scratch_numbers(device), kFewestRows * of_row),
                                  pass.rows * of_row * 3 / 2);
  const HeadNumbers n = numbers_of(s, pass);
  return kFloatBytes * ((s.soft_cap > 0 ? 3 : 2) * scores + 2 * (3 * n.query + 4 * n.key));
}

// Rounded queries, keys, values, output and dout, and gradients; within the kernel a float32 sum of
// the queries' gradients, and the keys' and values' by query heads.
int64_t flash_bytes(const AttentionSpec& s, const PassSize& pass) {
  const HeadNumbers n = numbers_of(s, pass);
  const int64_t grouped = s.num_heads == s.num_kv_heads ? 0 : 2 * n.query;
  return kHalfBytes * (3 * n.query + 2 * n.key + n.query + 2 * n.key + grouped) +
         kFloatBytes * 2 * n.query;
}

}  // namespace
}  // namespace aten_impl

int64_t AtenBackend::attention_scratch(const AttentionSpec& s, const PassSize& pass,
                                       at::Device device) const {
  const int64_t heads = aten_impl::heads_bytes(aten_impl::numbers_of(s, pass));
  // Parts of ancestors that a window cuts are padded in either case.
  if (aten_impl::takes_flash_attention(s, device) && (s.window == 0 || pass.longest <= s.window))
    return heads + aten_impl::flash_bytes(s, pass);
  return heads + aten_impl::padded_bytes(s, pass, device);
}

}  // namespace temper::ops
