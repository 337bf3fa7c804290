#include "temper/train/config/train_section.h"

namespace temper {

void config_detail::Traits<train::ProfileSteps>::read(const YamlNode& node, const std::string& path,
                                                      const Rule&, train::ProfileSteps& value) {
  value = {};
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind != YamlNode::Kind::kMap) return read_value(node, path, at_least(0), value.steps);
  for (const YamlNode::Entry& entry : node.entries) {
    const std::string key = path + "." + entry.key;
    if (entry.key == "first" && entry.value.kind != YamlNode::Kind::kNull)
      read_value(entry.value, key, at_least(1), value.first.emplace());
    else if (entry.key == "steps")
      read_value(entry.value, key, at_least(1), value.steps);
    else if (entry.key != "first")
      fail(node, path, "a number of steps, or {first: STEP, steps: N}");
  }
  if (value.steps == 0) fail(node, path, "a number of steps, or {first: STEP, steps: N}");
}

YamlNode config_detail::Traits<train::ProfileSteps>::write(train::ProfileSteps& value) {
  if (!value.first) return write_value(value.steps);
  YamlNode map = YamlNode::map();
  map.entries.push_back({"first", {}, write_value(*value.first), {}});
  map.entries.push_back({"steps", {}, write_value(value.steps), {}});
  return map;
}

}  // namespace temper

namespace temper::train {

void EarlyStoppingSection::fields(Fields& f) {
  f.add("metric", metric,
        "evaluation metric that decides, such as eval/loss; null: no early stopping");
  f.add("patience", patience, "evaluations without an improvement before the run ends",
        at_least(1));
  f.add("min_delta", min_delta, "minimum change that counts as an improvement", at_least(0));
  f.add("goal", goal, "whether the metric should fall or rise; auto: by its name");
}

void KeepBestSection::fields(Fields& f) {
  f.add("metric", metric,
        "evaluation metric that selects the weights of final/; null: the last weights");
  f.add("goal", goal, "whether the metric should fall or rise; auto: by its name");
}

void TrainSection::fields(Fields& f) {
  f.add("max_steps", max_steps, "number of optimizer updates; null: given by train.epochs",
        at_least(1));
  f.add("epochs", epochs, "passes over the data if max_steps is null; null: 1", above(0));
  f.add("batch_size", batch_size,
        "rows per step, over all ranks and micro-batches; grpo and ppo have instead "
        "rl.prompts_per_rollout x rl.group_size completions in rl.minibatches updates",
        at_least(1));
  f.add("micro_batch_tokens", micro_batch_tokens,
        "maximum number of tokens per forward pass (micro-batch); a longer row is a pass by itself",
        at_least(1));
  f.add("recompute", recompute,
        "activation checkpointing; blocks: recompute each block in the backward pass, to save "
        "memory");
  f.add("offload", offload,
        "what leaves memory for files that are gone after the run: the inputs of blocks, which "
        "need recompute: blocks, the optimizer's state, or both; the same bits",
        outside_digest());
  f.add("offload_dir", offload_dir,
        "existing directory, on a fast local disk, of these files; null: output_dir",
        outside_digest());
  f.add("eval_every", eval_every, "steps between evaluations; 0: only after the last step",
        at_least(0));
  f.add("eval_at_start", eval_at_start, "also evaluate before the first step");
  f.add("eval_samples", eval_samples,
        "sft: rows of each evaluation set whose greedy completion is printed and reported; 0: none",
        at_least(0));
  f.add("eval_sample_tokens", eval_sample_tokens, "maximum number of tokens of such a completion",
        at_least(1));
  f.add("eval_rewards", eval_rewards,
        "rewards, as the entries of `rewards`, of completions of data.eval's prompts in each "
        "evaluation, sampled as `rollout` says; under grpo and ppo in place of `rewards`",
        one_or_list());
  f.add("eval_completions", eval_completions, "completions of each prompt for train.eval_rewards",
        between(1, 1024));
  f.add("save_every", save_every,
        "steps between checkpoints; 0: only at the end and when interrupted",
        outside_digest(at_least(0)));
  f.add("save_minutes", save_minutes,
        "minutes between checkpoints, in addition to save_every; 0: none",
        outside_digest(at_least(0)));
  f.add("save_in_background", save_in_background,
        "a thread writes checkpoints from a copy of the trained weights and the optimizer's state "
        "while training continues; null: where the copy fits into memory",
        outside_digest());
  f.add("keep_checkpoints", keep_checkpoints, "number of checkpoints kept on disk",
        outside_digest(at_least(1)));
  f.add("keep_final_checkpoint", keep_final_checkpoint,
        "false: once final/ is written the weights and the optimizer's state in checkpoints/ are "
        "removed, and a small state.json stays there as the record that the run is complete; it "
        "then cannot go on to more steps",
        outside_digest());
  f.add("early_stopping", early_stopping, "ends the run when an evaluation metric stops improving");
  f.add("keep_best", keep_best, "leaves the weights of the best evaluation in final/");
  f.add("freeze", freeze, "names of parameters that are not trained; * matches any characters");
  f.add("neftune_alpha", neftune_alpha,
        "NEFTune: scale of the noise on embeddings in training passes; 0: none", at_least(0));
  f.add("z_loss", z_loss,
        "z-loss: coefficient of the mean squared log-sum-exp of the logits at supervised tokens; "
        "0: none",
        at_least(0));
  f.add("router_aux_loss", router_aux_loss,
        "mixture of experts: coefficient of the load-balancing loss over the step's tokens; null: "
        "none",
        at_least(0));
  f.add("profile", profile,
        "number of steps to profile, from the first one of this process, or {first: STEP, steps: "
        "N}; written to trace.json (Perfetto); 0: off",
        outside_digest());
  f.add("memory_limit", memory_limit,
        "maximum resident memory of a rank, in bytes or as 12GB or 12GiB: a run that is planned to "
        "take more does not start, one that takes more ends with a checkpoint; null: none",
        outside_digest());
  f.add("max_inflight", max_inflight,
        "reinforcement learning: maximum length of each queue: rollout batches sampled ahead "
        "(rl.max_staleness), groups of completions that wait for rewards, or for ranks with the "
        "role reference; null: each queue's own limit",
        at_least(1));
}

}  // namespace temper::train
