#!/usr/bin/env bash
# Models whose layers carry a state (lfm2, qwen3_5_text, qwen3_next): in reinforcement learning the sampler is the
# trainer to the bit, with prompts that are shared and with any cache; what generate records is what score computes. $1:
# the program.
set -euo pipefail
. "$(dirname "$0")/common.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

sizes='"vocab_size": 331, "hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "initializer_range": 0.1, "eos_token_id": 2, "tie_word_embeddings": true'
net='"full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 9, "linear_value_head_dim": 11'
experts='"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20'
model() { echo "{\"model_type\": \"$1\", $sizes, $2}" > config.json; "$temper" init --config config.json --seed 3 --output "$1" > /dev/null; }
model lfm2 '"layer_types": ["conv", "full_attention", "conv"], "block_multiple_of": 4'
model qwen3_5_text "$net"
model qwen3_next "$net, $experts"

awk 'BEGIN { for (i = 0; i < 40; ++i) { printf "{\"prompt_ids\": ["; n = 1 + i % 29; for (k = 0; k < n; ++k) printf "%s%d", k ? ", " : "", 5 + (7 * i + 3 * k) % 300; printf "], \"row\": %d}\n", i } }' > prompts.jsonl
awk 'BEGIN { for (i = 0; i < 8; ++i) { n = 3 + 5 * i; ids = ""; for (k = 0; k < n; ++k) ids = ids (k ? ", " : "") 5 + (7 * i + 3 * k) % 300; printf "{\"input_ids\": [%s], \"labels\": [%s]}\n", ids, ids } }' > rows.jsonl
even_reward
cat > run.yaml <<'Y'
data: {train: prompts.jsonl}
train: {max_steps: 3, micro_batch_tokens: 128}
optimizer: {learning_rate: 3.0e-3, schedule: constant}
rl: {group_size: 4, prompts_per_rollout: 3, beta: 0.02}
rollout: {max_new_tokens: 20, temperature: 0.9}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y

for model in lfm2 qwen3_5_text qwen3_next; do
  run="run.yaml model.path=$model"
  "$temper" check grpo $run output_dir=$model-whole > /dev/null || fail "$model: check"
  "$temper" grpo $run output_dir=$model-whole > /dev/null
  zero_diffs $model-whole/metrics.jsonl
  "$temper" grpo $run output_dir=$model-small rollout.cache_bytes=200000 train.max_steps=2 > /dev/null
  cmp $model-whole/rollouts/step-2.jsonl $model-small/rollouts/step-2.jsonl || fail "$model: a small cache changed a sample"
  "$temper" grpo $run output_dir=$model-stale rl.max_staleness=1 rollout.update=continue adapter.method=lora adapter.rank=3 > /dev/null
  "$temper" sft model.path=$model data.train=rows.jsonl output_dir=$model-qlora adapter.method=qlora train.max_steps=2 > /dev/null

  "$temper" generate --model $model --input prompts.jsonl --output out.jsonl --max-new-tokens 9 --num-samples 2 --seed 4 > /dev/null
  "$temper" generate --model $model --input prompts.jsonl --output beams.jsonl --max-new-tokens 5 --beams 3 > /dev/null
  "$temper" score --model $model --input out.jsonl --output scored.jsonl > /dev/null
  for file in out scored; do grep -o '"logprobs":[^]]*' $file.jsonl > $file.logprobs; done
  cmp out.logprobs scored.logprobs || fail "$model: score is not what generate recorded"
done
if "$temper" generate --model lfm2 --input prompts.jsonl --output out.jsonl --speculative 3 > /dev/null 2> refused; then fail "drafts were not refused"; fi
grep -q 'expected auto or off' refused || fail "$(cat refused)"
