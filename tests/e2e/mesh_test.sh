#!/usr/bin/env bash
# Supervised tuning on any mesh of ranks has one rank's losses and leaves the same files. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/mesh.sh"

sft="data.train=rows.jsonl data.eval=rows.jsonl train.eval_every=2 train.max_steps=4 train.batch_size=5 train.micro_batch_tokens=24 optimizer.learning_rate=1e-3 optimizer.schedule=constant"
for model in $families; do
  for kind in full lora; do
    options="model.path=$model $sft"
    [ $kind = lora ] && options="$options adapter.method=lora adapter.rank=3 adapter.dropout=0.1"
    run sft "$model-$kind" $options
    for mesh in $meshes; do
      IFS=: read -r ranks fsdp tensor <<< "$mesh"
      out=$model-$kind-$ranks-$fsdp-$tensor
      run sft "$out" --nproc "$ranks" $options mesh.fsdp="$fsdp" mesh.tensor="$tensor"
      same "$model-$kind" "$out" grad_norm
      same_files "$model-$kind" "$out"
    done
  done
done

# A checkpoint goes on under another mesh, with the same numbers.
options="model.path=qwen3 $sft train.save_every=2"
run sft half --nproc 2 $options train.max_steps=2 mesh.fsdp=2
cp -r half more
run sft half --nproc 2 $options mesh.tensor=2
same qwen3-full half grad_norm
run sft more $options
same qwen3-full more grad_norm

# A profile counts what a rank holds, and what it sends in a step.
run sft counted-data --nproc 2 model.path=qwen3 $sft train.max_steps=1 train.profile=1
run sft counted-fsdp --nproc 2 model.path=qwen3 $sft train.max_steps=1 train.profile=1 mesh.fsdp=2
python3 - <<'P' || fail "counts of a profile"
import json, os
data, fsdp, other = ({k.removeprefix("bytes: "): n for k, n in json.load(open(f))["otherData"]["counts"].items()}
                     for f in ("counted-data/trace.json", "counted-fsdp/trace.json", "counted-fsdp/trace.rank1.json"))
weights = data["trained weights"]
assert 0 < os.path.getsize("qwen3/model.safetensors") - weights < 4096, data
assert data["gradients"] == weights and data["optimizer state"] == 2 * weights, data
assert weights <= data["sent bytes: world"] < 1.1 * weights, data  # 2 (R-1)/R of the gradients
assert fsdp["trained weights"] + other["trained weights"] - weights < 1000, fsdp  # a norm is on both
assert fsdp["optimizer state"] == 2 * fsdp["gradients"] == 2 * fsdp["trained weights"] < 1.3 * weights, fsdp
assert fsdp["sent bytes: units"] > 1.5 * weights, fsdp  # at least 3 (R-1)/R in a pass
P

# Wrong meshes are refused before anything starts.
refused() { # WORDS ARGUMENTS
  local words=$1 status=0
  shift
  "$temper" sft "$@" $sft output_dir=refused > err 2>&1 || status=$?
  [ $status = 2 ] && grep -q "$words" err || fail "status $status, expected 2 and \`$words\`: $(cat err)"
}
refused 'mesh: fsdp 3 x tensor 1 does not divide the 2 ranks' --nproc 2 model.path=qwen3 mesh.fsdp=3
refused 'mesh: fsdp 2 x tensor 1 does not divide the 1 rank' model.path=qwen3 mesh.fsdp=2
refused 'mesh: data 2 x fsdp 2 x tensor 1 is not the 2 ranks' --nproc 2 model.path=qwen3 mesh.fsdp=2 mesh.data=2
refused '4 ranks do not divide the 62 tokens' --nproc 4 model.path=qwen3 mesh.tensor=4
refused 'did you mean' --nproc 2 model.path=qwen3 mesh.fspd=2
exit $bad
