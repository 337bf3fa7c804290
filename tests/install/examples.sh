#!/usr/bin/env bash
# Installs into a new prefix, builds the examples against what was installed there, and runs them.
# $1: the build directory, $2: cmake.
set -euo pipefail
build=$1 cmake=$2
source=${TEMPER_SOURCE_DIR:-$PWD}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
value() { sed -n "$3p" "$1" | grep -o "\"$2\": *[^,}]*" | cut -d: -f2 | tr -d ' '; }
# near A B: equal but for the rounding of float32.
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit a != "" && d * d < 1e-10 * (1 + b * b) ? 0 : 1 }'; }

"$cmake" --install "$build" --prefix "$dir/prefix" > /dev/null
cd "$dir"
[ "$(prefix/bin/temper --version)" = "$("$build/temper" --version)" ] || fail "the installed program does not run"
readelf -d prefix/bin/temper prefix/lib*/libtemper*.so | grep -E 'R(UN)?PATH' | grep -F "$build" && fail "an installed file looks for libraries in the build directory"
for file in include/temper/rewards/reward.h share/doc/temper/LICENSE share/doc/temper/THIRD_PARTY.md share/temper/configs/sft.yaml; do
  [ -s prefix/$file ] || fail "$file is not installed"
done
"$cmake" -S prefix/share/temper/examples -B examples -DCMAKE_PREFIX_PATH="$dir/prefix" > cmake.log || { cat cmake.log; exit 1; }
"$cmake" --build examples > build.log 2>&1 || { cat build.log; exit 1; }
# What the program sets for its process is not in what others link.
readelf -S examples/own_reward | grep -q preinit_array && fail "a program that links the library starts itself again"
nm -C examples/own_reward prefix/lib*/libtemper* 2> /dev/null | grep -q ' [DRB] malloc_conf$' && fail "the library sets the allocator"

cat > llama.json <<'J'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 61, "eos_token_id": 2}
J
sed 's/"llama"/"parallel_llama"/' llama.json > parallel.json
for i in 3 17 29 41; do echo "{\"prompt_ids\": [$i, 8, $((i + 5))]}"; done > prompts.jsonl
sed 's/prompt_ids/tokens/' prompts.jsonl > tokens.jsonl
cat > run.yaml <<'Y'
model: {path: llama}
data: {train: prompts.jsonl}
rl: {group_size: 3, prompts_per_rollout: 2}
rollout: {max_new_tokens: 7}
rewards: [{name: distinct}]
metrics: {sinks: [jsonl]}
Y
own_reward=examples/own_reward own_model=examples/own_model own_loss=examples/own_loss
$own_reward init --config llama.json --seed 5 --output llama > /dev/null

# A reward of one's own: its metric is the mean of what the rollouts' completions are worth by its definition.
$own_reward list rewards | grep -q '^distinct ' || fail "the reward is not listed"
$own_reward grpo run.yaml output_dir=rewarded train.max_steps=2 > /dev/null
for step in 1 2; do
  expected=$(grep -o '"completion_tokens": *\[[^]]*' rewarded/rollouts/step-$step.jsonl | sed 's/.*\[//' |
    awk -F', *' '{ split("", seen); n = 0; for (i = 1; i <= NF; ++i) if (!($i in seen)) { seen[$i]; ++n }; sum += n / NF } END { printf "%.9f", sum / NR }')
  near "$(value rewarded/metrics.jsonl rewards/distinct $step)" "$expected" || fail "step $step: rewards/distinct is not $expected: $(sed -n ${step}p rewarded/metrics.jsonl)"
done
prefix/bin/temper grpo run.yaml output_dir=other 2> err && fail "the program knows the example's reward"
grep -q 'unknown reward `distinct`' err || fail "$(cat err)"

# A loss of one's own: on the first step the mean over completions of the mean over tokens of -A log π.
cat > first.sh <<'S'
while read -r line; do ids=${line#*completion_tokens\":[}; echo "${ids%%[],]*}e-1"; done
S
$own_loss list algorithms | grep -q '^reinforce ' || fail "the algorithm is not listed"
$own_loss grpo run.yaml output_dir=reinforced train.max_steps=3 rl.algorithm=reinforce 'rewards=[{name: first, command: [sh, first.sh]}]' > /dev/null
expected=$(sed -E 's/.*"logprobs": *\[([^]]*)\].*"advantage": *([^,}]*).*/\2 \1/; s/,/ /g' reinforced/rollouts/step-1.jsonl |
  awk '{ sum = 0; for (i = 2; i <= NF; ++i) sum += $i; loss -= $1 * sum / (NF - 1) } END { printf "%.9f", loss / NR }')
near "$(value reinforced/metrics.jsonl loss 1)" "$expected" || fail "the first loss is not $expected: $(head -1 reinforced/metrics.jsonl)"
near "$expected" 0 && fail "the first loss is 0, whatever the algorithm"
[ "$(wc -l < reinforced/metrics.jsonl)" = 3 ] || fail "not three steps"
# Its key is the algorithm's: it is in the resolved config, obeyed, and unknown to other algorithms.
grep -q 'baseline_share: 1' reinforced/config.yaml || fail "the algorithm's key is not in the resolved config"
$own_loss grpo run.yaml output_dir=plain train.max_steps=1 rl.algorithm=reinforce rl.baseline_share=0 'rewards=[{name: first, command: [sh, first.sh]}]' > /dev/null
grep -o '"\(reward\|advantage\)": *[^,}]*' plain/rollouts/step-1.jsonl | cut -d: -f2 | paste - - |
  awk '{ d = $1 - $2; if (d * d > 1e-12) exit 1 }' || fail "rl.baseline_share: 0 has a baseline"
status=0; $own_loss grpo run.yaml output_dir=other rl.baseline_share=0 2> err || status=$?
[ $status = 2 ] && grep -q 'unknown key `rl.baseline_share`' err || fail "grpo takes another algorithm's key: $status $(cat err)"
status=0; prefix/bin/temper grpo run.yaml output_dir=other rl.algorithm=reinforce 'rewards=[{name: length}]' 2> err || status=$?
[ $status = 2 ] && grep -q 'rl.algorithm: unknown algorithm `reinforce`; expected one of .*grpo' err || fail "status $status: $(cat err)"

# A family of one's own: what it generates scores to the same bits.
$own_model list models | grep -q '^parallel_llama ' || fail "the family is not listed"
$own_model init --config parallel.json --seed 5 --output parallel > /dev/null
$own_model generate --model parallel --input tokens.jsonl --output out.jsonl --max-new-tokens 9 --num-samples 2 > /dev/null
sed 's/"tokens"/"completion_tokens"/' out.jsonl > completions.jsonl
$own_model score --model parallel --input completions.jsonl --output scores.jsonl --max-batch 3 > /dev/null
logprobs() { grep -o '"logprobs": *\[[^]]*\]' "$1"; }
[ "$(logprobs out.jsonl | wc -l)" = 8 ] || fail "not eight completions"
cmp <(logprobs out.jsonl) <(logprobs scores.jsonl) || fail "generate and score differ"
"$build/temper" generate --model parallel --input tokens.jsonl --output other.jsonl 2> err && fail "the program knows the example's family"
grep -q parallel_llama err || fail "$(cat err)"

# Linking the library neither restarts a program nor sets its allocator's settings.
for program in own_reward own_trainer two_adapters; do
  readelf -SW examples/$program | grep -q preinit_array && fail "$program has code that runs before main"
  nm examples/$program | grep -q ' malloc_conf$' && fail "$program has settings of an allocator"
done

# A program with a loop of its own: the loss falls to next to nothing.
examples/own_trainer > trained || fail "own_trainer: $?"
[ "$(wc -l < trained)" = 200 ] || fail "own_trainer does not make 200 steps"
awk 'NR == 1 { first = $4 } { last = $4 } END { exit first > 3.5 && last < 0.5 ? 0 : 1 }' trained || fail "own_trainer does not learn: $(sed -n '1p;$p' trained)"
examples/two_adapters > adapters || fail "two_adapters: $?"
tail -1 adapters | grep -q ' up 4 5 6 down 5 4 3$' || fail "two_adapters do not learn: $(sed -n '1p;$p' adapters)"

# The reward in Python.
if command -v python3 > /dev/null; then
  answer=$(printf '%s\n' '{"completion": "a few words", "words": 3}' '{"completion": "", "words": 3}' '{"completion": "one two three four", "words": 5}' |
    python3 prefix/share/temper/examples/reward.py | tr '\n' ' ')
  [ "$answer" = '1.0 0.0 0.8 ' ] || fail "reward.py answers $answer"
fi
echo ok
