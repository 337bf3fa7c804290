#!/usr/bin/env bash
# Every verb on a device whose memory the host may not touch: the numbers of the backend aten on the CPU, to the bit.
# $1: the program, $2: the same with the device `pretend` (pretend_device.h), $3: LibTorch's headers.
set -uo pipefail
on_device=$(readlink -f "$2")
headers=$3
tests=$TEMPER_SOURCE_DIR/tests/e2e
. "$tests/common.sh"
. "$tests/mesh.sh"
export TEMPER_BACKEND=aten

even_reward
base="model.dtype=float32 train.max_steps=3 train.micro_batch_tokens=48 optimizer.learning_rate=1e-3 metrics.sinks=[jsonl]"
rl="data.train=prompts.jsonl rl.group_size=3 rl.prompts_per_rollout=3 rl.minibatches=2 rollout.max_new_tokens=6"
rewards='rewards=[{name: even, command: [sh, even.sh]}]'
pairs="data.train=pairs.jsonl data.eval=pairs.jsonl train.batch_size=3"
rows="data.train=rows.jsonl data.eval=rows.jsonl train.batch_size=4"

# What depends on the clock is left out.
numbers() { python3 -c '
import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    print({k: v for k, v in row.items() if not any(w in k for w in ("second", "time", "latency", "memory", "per_s", "speed", "utili"))})' "$1"; }
check() { # VERB NAME ARGUMENTS
  local verb=$1 name=$2
  shift 2
  "$temper" "$verb" $base "$@" output_dir="$name-host" > "$name-host.log" 2>&1 || fail "$verb $name on the processor: $(tail -3 "$name-host.log")"
  TEMPER_PRETEND_REPORT=$name.report "$on_device" "$verb" $base "$@" model.device=pretend output_dir="$name-device" \
    > "$name-device.log" 2>&1 || { fail "$verb $name on the device: $(tail -12 "$name-device.log")"; return; }
  diff <(numbers "$name-host/metrics.jsonl") <(numbers "$name-device/metrics.jsonl") > "$name.diff" || fail "$name: $(head -4 "$name.diff")"
  for file in $(cd "$name-host/final" && find . -name '*.safetensors'); do
    cmp -s "$name-host/final/$file" "$name-device/final/$file" || fail "$name: final/$file differs"
  done
  grep -q '^operator' "$name.report" || fail "$name: nothing ran on the device"
}
for model in $families; do check sft sft-$model model.path=$model $rows; done
check sft sft-lora model.path=qwen3 $rows adapter.method=lora adapter.rank=3 adapter.dropout=0.1 train.recompute=blocks
check sft sft-dora model.path=llama $rows adapter.method=lora adapter.rank=3 adapter.use_dora=true "adapter.modules_to_save=[lm_head]"
check sft sft-qlora model.path=llama $rows adapter.method=qlora adapter.rank=3
check sft sft-int8 model.path=gemma2 $rows adapter.method=lora adapter.rank=3 model.storage=int8
fast="model.dtype=bfloat16 model.arithmetic=fast"
check sft sft-fast model.path=qwen3 $rows $fast
check sft sft-noise model.path=qwen3 $rows train.neftune_alpha=5
for optimizer in $("$temper" list optimizers | cut -d " " -f 1); do
  check sft sft-$optimizer model.path=qwen3 $rows optimizer.name=$optimizer
done
check dpo dpo model.path=gemma2 $pairs
check dpo dpo-lora model.path=qwen3 $pairs adapter.method=lora adapter.rank=3
check reward reward model.path=llama $pairs
check grpo grpo model.path=qwen3 $rl "$rewards"
check grpo grpo-lora model.path=gemma2 $rl "$rewards" adapter.method=lora adapter.rank=3 rl.beta=0.1
check grpo grpo-ahead model.path=qwen3 $rl "$rewards" rl.max_staleness=1
check ppo ppo model.path=qwen3 $rl "$rewards"
check ppo ppo-share model.path=llama $rl "$rewards" adapter.method=lora adapter.rank=3 ppo.share_base=true
for strategy in logit feature_projection feature_pooling attention_transfer attention_projection; do
  check distill distill-$strategy model.path=qwen3 distill.teacher=llama $rows distill.strategy=$strategy
done

# What a device computes in where nothing is chosen.
short="model.path=qwen3 $rows train.max_steps=3 metrics.sinks=[jsonl]"
"$temper" sft $short $fast output_dir=chosen > chosen.log 2>&1 || fail "chosen: $(tail -3 chosen.log)"
"$on_device" sft $short model.device=pretend output_dir=default > default.log 2>&1 || fail "default: $(tail -3 default.log)"
cmp -s chosen/final/model.safetensors default/final/model.safetensors || fail "a device's default is not bfloat16 with fast arithmetic"
"$on_device" sft $short model.device=pretend model.backend=native output_dir=none > refused 2>&1
[ $? = 2 ] && grep -q 'model.backend: found native' refused || fail "native off the CPU: $(cat refused)"
"$on_device" score --model qwen3 --input rows.jsonl --device pretend:1 --output none > refused 2>&1
[ $? = 2 ] && grep -q 'has 1 device of this kind' refused || fail "a device too many: $(cat refused)"

# A run that is stopped and resumed on the device, begun on the processor and resumed on the device, and the other way
# round, ends with the weights of one that was never stopped.
long="model.path=qwen3 $rows $base train.save_every=3 optimizer.schedule=constant adapter.method=lora adapter.rank=3 adapter.dropout=0.1"
half() { # PROGRAM OUT ARGUMENTS
  local program=$1 out=$2
  shift 2
  "$program" sft $long "$@" output_dir="$out" > "$out.log" 2>&1 || fail "$out: $(tail -3 "$out.log")"
}
half "$temper" whole train.max_steps=6
for first in "$temper" "$on_device model.device=pretend"; do
  for second in "$temper" "$on_device model.device=pretend"; do
    rm -rf parted
    read -r program device <<< "$first"
    half "$program" parted ${device:-} train.max_steps=3
    read -r program device <<< "$second"
    half "$program" parted ${device:-} train.max_steps=6
    grep -q 'resuming from' parted.log || fail "the second half did not resume: $(cat parted.log)"
    cmp -s whole/final/adapter_model.safetensors parted/final/adapter_model.safetensors || fail "$first, then $second: other weights"
  done
done

# Ranks, whose tensors travel through the host.
for mesh in 2:1 1:2; do
  IFS=: read -r fsdp tensor <<< "$mesh"
  check sft sft-ranks-$fsdp-$tensor --nproc 2 model.path=llama $rows mesh.fsdp=$fsdp mesh.tensor=$tensor
done

# Ranks with a transport of the device's own: the same numbers, and no copy of a tensor for the sake of a collective.
for mesh in 2:1 1:2; do
  IFS=: read -r fsdp tensor <<< "$mesh"
  name=sft-ranks-$fsdp-$tensor
  TEMPER_PRETEND_TRANSPORT=1 "$on_device" sft --nproc 2 $base model.path=llama $rows mesh.fsdp=$fsdp mesh.tensor=$tensor model.device=pretend \
    output_dir=$name-transport > $name-transport.log 2>&1 || fail "$name, transport: $(tail -5 $name-transport.log)"
  [ "$(grep -c 'collectives on the device: [1-9]' $name-transport.log)" = 2 ] || fail "$name: the transport was not used: $(tail -3 $name-transport.log)"
  diff <(numbers $name-host/metrics.jsonl) <(numbers $name-transport/metrics.jsonl) > $name.diff || fail "$name, transport: $(head -4 $name.diff)"
  cmp -s $name-host/final/model.safetensors $name-transport/final/model.safetensors || fail "$name, transport: other weights"
done

# Sampling and scoring: greedy tokens and log-probabilities of the processor's.
for i in $(seq 5 20); do echo "{\"tokens\": [$i, $((i + 7)), 5, $((i * 2))]}"; done > asked.jsonl
for ask in "generate --temperature 0" "generate --temperature 1 --seed 7 --num-samples 3" "generate --beams 2" score; do
  read -r verb flags <<< "$ask"
  for place in host device; do
    program=$temper; where=
    [ $place = device ] && program=$on_device && where="--device pretend"
    "$program" $verb --model qwen3 --input asked.jsonl $flags $where --output asked-$place.jsonl > asked.log 2>&1 || fail "$ask, $place: $(tail -3 asked.log)"
  done
  cmp -s asked-host.jsonl asked-device.jsonl || fail "$ask: the device answers otherwise"
done

# The server's greedy tokens are those of the CPU.
for place in cpu pretend; do
  port=$(free_port)
  "$on_device" serve --model qwen3 --device $place --port "$port" > served-$place.log 2>&1 & server=$!
  address_of served-$place.log $server || fail "serve on $place: $(cat served-$place.log)"
  post "$address/v1/completions" '{"model": "qwen3", "prompt": [5, 6, 7], "max_tokens": 5, "temperature": 0, "logprobs": 1}' |
    grep -o '"choices".*"usage"' > served-$place || fail "no answer of the server on $place"
  kill $server
  wait $server 2> /dev/null
done
cmp -s served-cpu served-pretend || fail "the server answers otherwise on the device: $(cat served-cpu served-pretend)"

# What a step waits for: copies to and from the device and numbers that the host reads, as the difference of runs of 7
# and 3 steps.
per_step() { # VERB NAME MOST_TO_HOST MOST_TO_DEVICE MOST_NUMBERS ARGUMENTS
  local verb=$1 name=$2 most_to_host=$3 most_to_device=$4 most_numbers=$5
  shift 5
  for steps in 3 7; do
    rm -f $steps.counts
    TEMPER_PRETEND_REPORT=$steps.counts "$on_device" "$verb" $base "$@" train.max_steps=$steps model.device=pretend output_dir="$name-$steps" \
      > "$name.log" 2>&1 || fail "$verb $name: $(tail -3 "$name.log")"
  done
  of() { echo $((($(sed -n "s/^$1 //p" 7.counts) - $(sed -n "s/^$1 //p" 3.counts) + 3) / 4)); }
  echo "$name: copies to the host $(of to_host), to the device $(of to_device), numbers read $(of scalars) a step"
  [ "$(of to_host)" -le "$most_to_host" ] && [ "$(of to_device)" -le "$most_to_device" ] && [ "$(of scalars)" -le "$most_numbers" ] ||
    fail "$name: more copies a step than $most_to_host, $most_to_device, $most_numbers"
}
one_pass="data.train=rows.jsonl train.batch_size=4 train.micro_batch_tokens=4096"
per_step sft copies-sft 1 9 1 model.path=qwen3 $one_pass
per_step sft copies-lora 1 9 1 model.path=qwen3 $one_pass adapter.method=lora adapter.rank=3
per_step dpo copies-dpo 2 16 1 model.path=qwen3 data.train=pairs.jsonl train.batch_size=3 train.micro_batch_tokens=4096
per_step grpo copies-grpo 9 54 1 model.path=qwen3 $rl "$rewards" train.micro_batch_tokens=4096 rl.minibatches=1

# Operators for which LibTorch has no kernel on CUDA would fail there.
operators=$(cat ./*.report | sed -n 's/^operator \([^. ]*\).*/\1/p' | sort -u)
[ "$(wc -w <<< "$operators")" -ge 40 ] || fail "operators that ran: $operators"
for operator in $operators; do
  [ -e "$headers/ATen/ops/${operator%_}_cuda_dispatch.h" ] || fail "LibTorch has no CUDA kernel of $operator"
done
exit $bad
