#!/usr/bin/env bash
# Ranks that divide a mixture's experts (mesh.expert): one rank's losses, samples and files; where they are the only
# axis, to the bit. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/mesh.sh"

sizes='"vocab_size": 62, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "eos_token_id": 2'
family qwen3_moe "{\"model_type\": \"qwen3_moe\", $sizes, \"moe_intermediate_size\": 20, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true}"
family gpt_oss "{\"model_type\": \"gpt_oss\", $sizes, \"intermediate_size\": 20, \"num_local_experts\": 6, \"num_experts_per_tok\": 2, \"sliding_window\": 6}"
family gemma4_text "{\"model_type\": \"gemma4_text\", $sizes, \"intermediate_size\": 24, \"moe_intermediate_size\": 20, \"enable_moe_block\": true, \"num_experts\": 6, \"top_k_experts\": 2, \"sliding_window\": 6, \"global_head_dim\": 12, \"hidden_size_per_layer_input\": 0}"
even_reward

same_bits() { # A B: the same weights and, but for times, the same metrics
  cmp -s "$1/final/$3.safetensors" "$2/final/$3.safetensors" || fail "$2 has other weights than $1"
  python3 - "$1/metrics.jsonl" "$2/metrics.jsonl" <<'P' || fail "$2 has other numbers than $1"
import json, sys
timed = lambda k: any(w in k for w in ("seconds", "latency", "per_second", "memory", "tokens_computed"))
rows = [[{k: v for k, v in json.loads(l).items() if not timed(k)} for l in open(f)] for f in sys.argv[1:]]
for a, b in zip(*rows, strict=True):
    if a != b: sys.exit(str({k: (a.get(k), b.get(k)) for k in a.keys() | b.keys() if a.get(k) != b.get(k)}))
P
}
base="train.max_steps=3 train.micro_batch_tokens=32 optimizer.learning_rate=1e-3 optimizer.schedule=constant"
sft="data.train=rows.jsonl data.eval=rows.jsonl train.eval_every=2 train.batch_size=5"
rl="data.train=prompts.jsonl rl.group_size=3 rl.prompts_per_rollout=3 rl.minibatches=2 rollout.max_new_tokens=6 rl.beta=0.04"
rewards='rewards=[{name: even, command: [sh, even.sh]}]'
lora="adapter.rank=3 adapter.target_modules=all-linear"
check() { # VERB NAME WEIGHTS ARGUMENTS
  local verb=$1 name=$2 weights=$3
  shift 3
  run "$verb" "$name" "$@" $base
  run "$verb" "$name-2" --nproc 2 "$@" $base mesh.expert=2
  same_bits "$name" "$name-2" "$weights"
  same_files "$name" "$name-2"
  run "$verb" "$name-4" --nproc 4 "$@" $base mesh.expert=2 mesh.fsdp=2
  same "$name" "$name-4"
  same_files "$name" "$name-4"
}
for model in qwen3_moe gpt_oss gemma4_text; do
  check sft "sft-$model" model model.path=$model $sft train.router_aux_loss=0.01
  check grpo "grpo-$model" model model.path=$model $rl "$rewards"
done
check sft sft-lora adapter_model model.path=qwen3_moe $sft adapter.method=lora $lora
check grpo grpo-qlora adapter_model model.path=qwen3_moe $rl "$rewards" adapter.method=qlora $lora
run sft data-2 --nproc 4 model.path=qwen3_moe $sft train.router_aux_loss=0.01 $base mesh.expert=2
same sft-qwen3_moe data-2

# Rows without a trained token count for the experts' balance in every verb, however rows are packed: alone in a pass
# they have no other loss.
python3 - <<'P'
import json
with open("cut.jsonl", "w") as f:
    for n, line in enumerate(open("pairs.jsonl")):
        row = json.loads(line)
        if n % 3 == 0: row["chosen_ids"], row["rejected_ids"] = [[7] * 20 + [last] for last in (8, 9)]
        f.write(json.dumps(row) + "\n")
P
counted() { # VERB NAME ARGUMENTS
  local verb=$1 name=$2
  shift 2
  run "$verb" "$name" "$@" $base train.micro_batch_tokens=4096 model.path=qwen3_moe train.router_aux_loss=0.5
  run "$verb" "$name-passes" "$@" $base train.micro_batch_tokens=8 model.path=qwen3_moe train.router_aux_loss=0.5
  run "$verb" "$name-fsdp" --nproc 2 "$@" $base train.micro_batch_tokens=8 model.path=qwen3_moe train.router_aux_loss=0.5 mesh.fsdp=2
  same "$name" "$name-passes"
  same "$name" "$name-fsdp"
}
counted distill logit $sft distill.teacher=qwen3 distill.alpha=1
counted distill halves $sft distill.teacher=qwen3
counted distill task $sft distill.teacher=qwen3 distill.alpha=0
counted dpo dpo data.max_length=16 data.train=cut.jsonl data.eval=cut.jsonl train.eval_every=2 train.batch_size=5

# A checkpoint goes on under another mesh, with the same bits.
options="model.path=qwen3_moe $sft train.router_aux_loss=0.01 train.save_every=2 $base"
run sft half --nproc 2 $options train.max_steps=2 mesh.expert=2
cp -r half more
run sft half --nproc 4 $options mesh.expert=4
run sft more $options
same_bits sft-qwen3_moe half model
same_bits sft-qwen3_moe more model

# A rank holds its part of the experts, and the plan says so.
plan() { "$temper" check sft model.path=qwen3_moe $sft $base output_dir=planned --nproc "$1" "${@:2}" --json; }
python3 - <(plan 1) <(plan 2 mesh.expert=2) <<'P' || fail "memory of divided experts"
import json, sys
one, two = (json.load(open(f))["plan"]["parts"]["weights"] for f in sys.argv[1:])
assert 0.5 * one < two < 0.8 * one, (one, two)
P

refused() { # WORDS ARGUMENTS
  local words=$1 status=0
  shift
  "$temper" sft "$@" $sft output_dir=refused > err 2>&1 || status=$?
  [ $status = 2 ] && grep -q "$words" err || fail "status $status, expected 2 and \`$words\`: $(cat err)"
}
refused 'mesh.expert: 3 ranks do not divide the 8 experts' --nproc 3 model.path=qwen3_moe mesh.expert=3
refused 'mesh.expert: models of type qwen3 have no experts' --nproc 2 model.path=qwen3 mesh.expert=2
refused 'fsdp 1 x expert 4 does not divide the 2 ranks' --nproc 2 model.path=qwen3_moe mesh.expert=4
refused 'found tensor 2 and expert 2' --nproc 4 model.path=qwen3_moe mesh.expert=2 mesh.tensor=2
exit $bad
