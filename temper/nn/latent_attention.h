// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1.2): queries, and keys
// together with values, come from vectors of low rank; what rotates is apart from them, its key one
// for all heads.
//   c_q = norm(q_a(x)),  q_h = q_b(c_q)                       or  q_h = q(x)
//   [c, k_r] = kv_a(x),  [k_h, v_h] = kv_b(norm(c))
//   scores of head h: q_h · [k_h, rotate(k_r)], of whose last features the query's rotate, too
#pragma once

#include <algorithm>
#include <memory>
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
  // What attention computes with: queries and keys begin with what rotates, and the shorter of
  // queries and values have zeros behind them.
  int64_t head_dim() const { return std::max(query_dim(), value_dim); }
};

// Every head has a key and a value of its own: a cache holds these, not the latents.
class LatentAttention : public Attention {
 public:
  // `config` with head_dim as LatentConfig has it, as many heads of keys as of queries, and whether
  // layers from x to latents have biases (qkv_bias).
  LatentAttention(Module& parent, std::string name, const AttentionConfig& config,
                  const LatentConfig& latent, int64_t layer, std::shared_ptr<Rotary> rotary);
  void split(const std::shared_ptr<dist::Group>& group, const std::string& where) override;

  std::optional<Linear> q_proj, q_a_proj, q_b_proj;  // the first, or the others
  std::optional<RmsNorm> q_a_layernorm;
  Linear kv_a_proj_with_mqa;
  RmsNorm kv_a_layernorm;
  Linear kv_b_proj;

 protected:
  std::vector<at::Tensor> project_heads(const ops::LinearInput& x, const Context& context,
                                        bool values, at::Tensor& /*gate*/) override;
  at::Tensor read_values(const at::Tensor& attended) const override;

 private:
  LatentConfig latent_;
  std::shared_ptr<dist::Group> group_;  // null: this rank has all heads
};

}  // namespace temper::nn
