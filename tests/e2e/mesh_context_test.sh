#!/usr/bin/env bash
# Ranks that divide the tokens of each row (mesh.context): one rank's losses, samples and files, beside other axes too;
# the first step's loss to the bit. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/mesh.sh"

even_reward
family gpt_oss "{\"model_type\": \"gpt_oss\", $sizes, \"head_dim\": 10, \"num_local_experts\": 6, \"num_experts_per_tok\": 2, \"sliding_window\": 6}"
family deepseek_v3 "{\"model_type\": \"deepseek_v3\", ${sizes/\"num_key_value_heads\": 2/\"num_key_value_heads\": 4}, \"moe_intermediate_size\": 20, \"n_routed_experts\": 6, \"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1, \"q_lora_rank\": 12, \"kv_lora_rank\": 16, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"first_k_dense_replace\": 1}"
python3 - <<'P'
import json, random
random.seed(2)
ids = lambda n: [random.randrange(3, 62) for _ in range(n)]
with open("long.jsonl", "w") as f:  # rows of one and many chunks
    for n in (1100, 30, 5, 420, 12, 700, 64, 3):
        f.write(json.dumps({"input_ids": ids(n)}) + "\n")
P

base="train.max_steps=3 optimizer.learning_rate=1e-3 optimizer.schedule=constant"
check() { # VERB NAME MODEL MESHES ARGUMENTS; MESHES: RANKS/KEY=N/KEY=N ..
  local verb=$1 name=$2 meshes=$4
  run "$verb" "$name" model.path="$3" "${@:5}" $base
  for mesh in $meshes; do
    local out=$name-${mesh//[\/.=]/-} keys=${mesh#*/}
    run "$verb" "$out" --nproc "${mesh%%/*}" model.path="$3" "${@:5}" $base ${keys//\// }
    same "$name" "$out"
    same_files "$name" "$out"
    cmp -s <(first_loss "$name") <(first_loss "$out") || [[ $mesh == *data* || $mesh == *fsdp* || $mesh == *tensor* ]] ||
      fail "$out: the first loss is $(first_loss "$out"), not $(first_loss "$name")"
  done
}
first_loss() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["loss"])' "$1/metrics.jsonl"; }

sft="data.train=rows.jsonl data.eval=rows.jsonl train.eval_every=2 train.batch_size=5 train.micro_batch_tokens=24"
long="data.train=long.jsonl train.batch_size=4 train.micro_batch_tokens=1200 data.max_length=1200"
pairs="data.train=pairs.jsonl data.eval=pairs.jsonl train.batch_size=3 train.micro_batch_tokens=48"
rl="data.train=prompts.jsonl rl.group_size=3 rl.prompts_per_rollout=3 rl.minibatches=2 rollout.max_new_tokens=6 rl.beta=0.04"
rewards='rewards=[{name: even, command: [sh, even.sh]}]'
two=2/mesh.context=2
four=4/mesh.context=4
mixed="4/mesh.context=2/mesh.fsdp=2 4/mesh.context=2/mesh.data=2 4/mesh.context=2/mesh.tensor=2"
check sft full qwen3 "$two $four $mixed" $sft
check sft long gemma2 "$two $four" $long
check sft long-llama llama "$two" $long train.recompute=blocks
for model in gpt_oss deepseek_v3 lfm2 qwen3_5_text; do
  check sft "sft-$model" $model "$two" $sft
done
check sft balance gpt_oss "$two" $sft train.router_aux_loss=0.01
check sft lora llama "$two $mixed" $sft adapter.method=lora adapter.rank=3 adapter.dropout=0.1 train.neftune_alpha=5
check sft qlora qwen3 "$two" $sft adapter.method=qlora adapter.rank=3 train.recompute=blocks
check dpo dpo qwen3 "$two 4/mesh.context=2/mesh.fsdp=2" $pairs
check reward reward llama "$two" $pairs
check distill distill qwen3 "$two" distill.teacher=llama data.train=rows.jsonl data.eval=rows.jsonl train.batch_size=4
check grpo grpo qwen3 "$two" $rl "$rewards"
check ppo ppo qwen3 "$two" $rl "$rewards"

# A checkpoint goes on under another mesh, with the same numbers.
options="model.path=qwen3 $sft $base train.save_every=2"
run sft half --nproc 2 $options train.max_steps=2 mesh.context=2
cp -r half more
run sft half --nproc 2 $options mesh.fsdp=2
same full half
run sft more $options
same full more

# The plan of a rank that has a part of the tokens.
for model in qwen3 gpt_oss deepseek_v3 qwen3_5_text; do
  "$temper" check sft --nproc 2 model.path=$model $sft mesh.context=2 train.recompute=blocks output_dir=planned > plan.log 2>&1 &&
    grep -q '^pass *memory' plan.log || fail "plan of $model: $(grep -v ^pass plan.log)"
done

# What compares whole rows is refused.
refused() { # WORDS VERB ARGUMENTS
  local words=$1 status=0
  shift
  "$temper" "$@" output_dir=refused > err 2>&1 || status=$?
  [ $status = 2 ] && [ "$(wc -l < err)" = 1 ] && grep -q "$words" err || fail "status $status, expected 2 and \`$words\`: $(cat err)"
}
refused 'mesh.context: found 2, expected 1' distill --nproc 2 model.path=qwen3 distill.teacher=llama data.train=rows.jsonl distill.strategy=attention_transfer mesh.context=2
refused 'context 3 x tensor 1 does not divide the 2 ranks' sft --nproc 2 model.path=qwen3 $sft mesh.context=3
exit $bad
