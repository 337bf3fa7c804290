#include "temper/workers/served_reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/metrics/trace.h"
#include "temper/workers/rank_engine.h"
#include "temper/workers/wire.h"

namespace temper::workers {

using generate::remote::NoServer;
using generate::remote::ServerPool;

ServedReference::ServedReference(RoleRanks& role_ranks, dist::Group& group,
                                 train::Messages& messages, train::Policy& policy,
                                 train::FrozenSource source)
    : role_ranks_(role_ranks),
      group_(group),
      messages_(messages),
      policy_(policy),
      source_(std::move(source)),
      start_(policy.lora ? source_.load(policy) : nullptr),
      pool_(std::make_shared<ServerPool>(role_ranks.scoring(), rank_protocol())) {
  role_ranks_.watch(pool_, role_ranks.roles().reference);
}

at::Tensor ServedReference::ask(const train::ForwardPass& pass, double temperature) {
  return parse_scores(pool_->post(kScore, score_text(pass, temperature), turn_++),
                      pass.num_targets());
}

// Ranks that compute the same rows do the same: what one of them was told all know.
at::Tensor ServedReference::token_logp(const train::ForwardPass& pass, double temperature) {
  const trace::Span span("reference of other ranks");
  if (!local_) {
    std::string bytes;
    if (group_.leads()) {
      try {
        bytes = scores_bytes(ask(pass, temperature));
      } catch (const NoServer&) {
        // Empty: there is no such pass.
      }
    }
    bytes = group_.agreed(bytes);
    role_ranks_.warn(messages_);
    bool answered = !bytes.empty() || pass.num_targets() == 0;
    // A local model may be one whose weights these ranks gather together: then all of them run it.
    if (group_.in_step()) answered = group_.all_reduce_max(answered ? 0 : 1) == 0;
    if (answered) return parse_scores(bytes, pass.num_targets());
    local_ = start_ ? std::move(start_) : source_.load(policy_);
  }
  return local_->token_logp(pass, temperature);
}

std::string ServedReference::describe() const {
  std::string ranks;
  for (const int64_t rank : role_ranks_.roles().reference)
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return "a model on ranks of its own: " + ranks;
}

std::string Scoring::score(const std::string& text) {
  const ScoreAsk ask = parse_score(text, images_.get());
  const at::NoGradGuard no_grad;
  return scores_bytes(reference_->token_logp(ask.pass, ask.temperature));
}

}  // namespace temper::workers
