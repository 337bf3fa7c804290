#include "temper/rl/sections.h"

#include <cstddef>
#include <vector>

#include "temper/base/error.h"

namespace temper {

template <>
inline constexpr std::array enum_names<rl::RlSection::OnMismatch> = {"stop", "correct"};
template <>
inline constexpr std::array enum_names<rl::RlSection::Correction> = {
    "truncate", "mask", "sequence_truncate", "sequence_mask"};
template <>
inline constexpr std::array enum_names<rl::RlRolloutSection::Update> = {"finish", "continue"};

}  // namespace temper

namespace temper::rl {

void RlSection::set_algorithm(const std::string& name, const std::string& where) {
  algorithm = algorithms().find(name, where)();
  name_ = name;
}

std::unique_ptr<Algorithm> RlSection::untouched_algorithm() const {
  return algorithms().find(name_, "rl.algorithm")();
}

std::string RlSection::overridden_defaults(const RolloutLimits& limits) const {
  const std::unique_ptr<Algorithm> untouched = untouched_algorithm();
  untouched->prepare(limits);
  const std::vector<Field> papers = Fields::of(*untouched), own = Fields::of(*algorithm);
  std::string out;
  for (size_t i = 0; i < own.size(); ++i) {
    const std::string value = own[i].write().text, paper = papers.at(i).write().text;
    if (value != paper)
      out += str(out.empty() ? "" : ", ", "rl.", own[i].name, " is ", value, ", not ", paper);
  }
  return out;
}

ImportanceCorrection RlSection::correction() const {
  const auto is = [&](Correction how) { return importance_correction == how; };
  return {.mask = is(Correction::kMask) || is(Correction::kSequenceMask),
          .sequence = is(Correction::kSequenceTruncate) || is(Correction::kSequenceMask),
          .cap = importance_cap,
          .low = importance_bounds[0],
          .high = importance_bounds[1]};
}

void RlSection::fields(Fields& f) {
  f.add(
      "algorithm", name_,
      "the policy-gradient algorithm (temper list algorithms); sets its paper's defaults, but rloo "
      "averages the loss per completion, where its paper sums (loss_aggregation)");
  f.add("group_size", group_size, "completions sampled per prompt", at_least(1));
  f.add("prompts_per_rollout", prompts_per_rollout, "prompts per rollout batch", at_least(1));
  f.add("minibatches", minibatches,
        "number of minibatches, and so of updates, in one epoch over a rollout batch", at_least(1));
  f.add("iterations", iterations, "epochs over each rollout batch (PPO epochs)", at_least(1));
  f.add("replay", replay, "a rollout file (rollouts/step-N.jsonl) to train on instead of sampling",
        reads(InputFiles::kRows));
  f.add("save_rollouts", save_rollouts,
        "rollout batches that are kept in rollouts/: all, none, every K (one of K batches, as in "
        "every 10) or last K",
        outside_digest());
  f.add("compress_rollouts", compress_rollouts,
        "write rollouts/step-N.jsonl.zst (Zstandard) in place of .jsonl; rl.replay reads both",
        outside_digest());
  f.add(
      "max_staleness", max_staleness,
      "asynchronous rollout: maximum number of updates between the policy that samples a batch and "
      "the one that trains on it; 0: sampling and training alternate",
      at_least(0));
  f.add("difficulty", difficulty, "which prompts are drawn again");
  f.add("on_mismatch", on_mismatch,
        "when the log-probabilities of sampler and trainer differ: stop, or correct by importance "
        "sampling. Default: correct with max_staleness, rollout.server, model.backend: aten, or "
        "roles.tensor other than mesh.tensor; else stop. With rl.replay, if this key is not set, a "
        "difference only gives a warning, and the file's `logprobs` are not used");
  f.add(
      "importance_correction", importance_correction,
      "how on_mismatch: correct bounds a token's importance weight, trainer's over sampler's "
      "probability: truncate at importance_cap (TIS), or mask outside importance_bounds (IcePop); "
      "sequence_truncate, sequence_mask: the weight is the whole completion's (the product of its "
      "tokens'), at most importance_cap, or 0 above it");
  f.add("importance_cap", importance_cap,
        "upper bound of importance weights, but under importance_correction: mask", above(0));
  f.add("importance_bounds", importance_bounds,
        "under importance_correction: mask, tokens with weights outside [low, high] are masked",
        above(0));
  f.add("mask_truncated", mask_truncated,
        "completions that end for length train nothing and count in no mean of the loss; rewards "
        "and advantages are as without it");
  f.add("top_entropy_fraction", top_entropy_fraction,
        "only this share of an update's completion tokens, those of highest entropy, has a policy "
        "loss (Wang et al.; often 0.2); costs a forward pass; 1: all",
        between(0, 1));
  f.add("reference", reference,
        "directory of the reference model; null: the initial policy (with a new adapter, its base)",
        reads(InputFiles::kModel));
  f.add("reference_update_every", reference_update_every,
        "after every so many updates the reference becomes reference_mix x policy + (1 - "
        "reference_mix) x reference, from the next rollout batch on; 0: it stays; not with an "
        "adapter",
        at_least(0));
  f.add("reference_mix", reference_mix, "the policy's share in it", between(0, 1));
  algorithm->fields(f);
}

void RlRolloutSection::fields(Fields& f) {
  RolloutSection::fields(f);
  f.add("server", server, "servers that sample in place of this process");
  f.add("threads", threads,
        "with rl.max_staleness, CPU threads for sampling; training uses the others; null: half of "
        "them",
        at_least(1));
  f.add("update", update,
        "with rl.max_staleness, completions in progress at an update: finish with the weights that "
        "they began with, or continue with the new ones (in-flight weight updates)");
  f.add("replay_sampling_mask", replay_sampling_mask,
        "with top_k, top_p or min_p: record which tokens they left at each position, and compute "
        "the log-probabilities of policy and reference over these alone, so that ratios are of the "
        "distribution that was sampled from; null: true where that can be had (no servers, "
        "penalties or logit_bias)");
}

generate::GenerationOptions RlRolloutSection::options(int64_t seed) const {
  generate::GenerationOptions options = RolloutSection::options(seed);
  options.record_kept = replay_sampling_mask.value_or(true) && options.sampling.filters() &&
                        !options.sampling.changes_logits() && !server.used();
  return options;
}

}  // namespace temper::rl
