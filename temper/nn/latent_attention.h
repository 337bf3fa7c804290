// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries, and keys
// together with values, come from vectors of low rank; what rotates is apart from them, its key one
// for all heads.
//   c_q = norm(q_a(x)),  q_h = q_b(c_q)                       or  q_h = q(x)
//   [c, k_r] = kv_a(x),  [k_h, v_h] = kv_b(norm(c))
//   scores of head h: q_h · [k_h, rotate(k_r)], of whose last features the query's rotate, too
// As k_h and v_h are products W_h^K c and W_h^V c, they need not exist: with n = norm(c),
//   scores of head h: [rotate(q_h^r), W_h^Kᵀ q_h] · [rotate(k_r), n],   output: W_h^V Σ_j p_j n_j
// so that all heads attend to the same latents [rotate(k_r), n], which are all that a cache holds.
// Sampler and trainer compute this form.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/blocks.h"

namespace temper::nn {

struct LatentConfig {
  int64_t q_rank = 0;  // 0: queries are one layer
  int64_t kv_rank = 0;
  int64_t plain_dim = 0, rotated_dim = 0;  // of a head's query and key
  int64_t value_dim = 0;                   // of a head's value
  double norm_eps = 1e-6;                  // of both norms of latents

  int64_t query_dim() const { return plain_dim + rotated_dim; }
  // What a cache holds of a token.
  int64_t cached_dim() const { return rotated_dim + kv_rank; }
  // Of heads with keys and values of their own: queries and keys begin with what rotates, and the
  // shorter of queries and values have zeros behind them.
  int64_t head_dim() const { return std::max(query_dim(), value_dim); }
};

// Two passes give every head keys and values of its own, which is the same up to rounding: training
// where kv_b_proj's adapter drops its input, as a key is then no product of the latent; and
// training on a backend whose numbers depend on the batch anyway, as these products are fewer and
// their heads small enough for flash kernels. What a pass over a cache reads is always latents.
class LatentAttention : public Attention {
 public:
  // `config` with head_dim as LatentConfig has it, as many heads of keys as of queries, and whether
  // layers from x to latents have biases (qkv_bias).
  LatentAttention(Module& parent, std::string name, const AttentionConfig& config,
                  const LatentConfig& latent, int64_t layer, std::shared_ptr<Rotary> rotary);
  void split(const std::shared_ptr<dist::Group>& group, const std::string& where) override;
  // One key for all heads, which is the value, too.
  ops::AttentionSpec spec() const override;
  const LatentConfig& latent() const { return latent_; }

  std::optional<Linear> q_proj, q_a_proj, q_b_proj;  // the first, or the others
  std::optional<RmsNorm> q_a_layernorm;
  Linear kv_a_proj_with_mqa;
  RmsNorm kv_a_layernorm;
  Linear kv_b_proj;

 protected:
  ops::AttentionSpec spec_in(const Context& context) override;
  std::vector<at::Tensor> project_heads(const ops::LinearInput& x, const Context& context,
                                        bool values, at::Tensor& /*gate*/) override;
  at::Tensor read_values(const at::Tensor& attended, const Context& context) override;

 private:
  // A part of kv_b_proj, with an adapter, as products by head.
  struct OfHeads {
    std::vector<ops::LinearOperand> weights;
    at::Tensor magnitude, norm;  // DoRA's, of each head's features; or undefined
  };
  struct Absorbed {
    OfHeads keys;    // weights [kv_rank, plain_dim], after the magnitudes
    OfHeads values;  // weights [value_dim, kv_rank], before the magnitudes
  };
  // What kv_a_proj_with_mqa gives of a token.
  struct Latents {
    at::Tensor compressed, rotated;
  };
  bool expands(const Context& context);
  std::vector<at::Tensor> expand(const at::Tensor& q, const Latents& latents,
                                 const Context& context, bool values);
  std::vector<at::Tensor> absorb(const at::Tensor& q, const Latents& latents,
                                 const Context& context);
  // Rows [N, heads, in] through each head's weights under the rows' adapters: [N, heads * out].
  at::Tensor through_heads(const at::Tensor& x, const Context& context, bool keys);
  at::Tensor through_keys(const at::Tensor& x, const OfHeads& part) const;
  at::Tensor through_values(const at::Tensor& x, const OfHeads& part) const;
  std::shared_ptr<const Absorbed> absorbed(int adapter);
  Absorbed make_absorbed(Lora* lora, bool packed) const;

  LatentConfig latent_;
  std::shared_ptr<dist::Group> group_;  // null: this rank has all heads
  // Of adapters while no gradient is recorded, after so many changes of the model.
  std::mutex mutex_;
  std::map<int, std::shared_ptr<const Absorbed>> absorbed_;
  uint64_t changes_ = 0;
};

}  // namespace temper::nn
