#!/usr/bin/env bash
# The best evaluation: a metric that changes, weights that are gone, verify, and sweeps that end the worst. $1: the
# program.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
common="model.path=model data.train=rows.jsonl data.eval=rows.jsonl train.eval_every=1 adapter.method=lora adapter.rank=4 train.save_every=1 train.keep_checkpoints=20 train.batch_size=4 optimizer.schedule=constant metrics.sinks=[jsonl]"
train() { "$temper" "$@" > last.log 2>&1 || fail "$*: $(cat last.log)"; }
said() { grep -qF -- "$1" last.log || fail "expected $1: $(cat last.log)"; }
# best_of RUN METRIC FROM: the step of the smallest value after step FROM, as the rows have it.
best_of() {
  python3 - "$@" <<'P'
import json, sys
rows = [r for r in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if sys.argv[2] in r and r["step"] > int(sys.argv[3])]
print(min(rows, key=lambda r: r[sys.argv[2]])["step"])
P
}
# has_final RUN STEP [OF]: final/ has the weights of the checkpoint of that step, of the run OF.
has_final() {
  python3 - "$1" "$2" "${3:-$1}" <<'P' || fail "$1: final/ has not the weights of step $2: $(cat last.log)"
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    return sorted(data[8 + size:][slice(*t["data_offsets"])] for name, t in head.items() if name != "__metadata__")
run, step, of = sys.argv[1:]
assert tensors(run + "/final/adapter_model.safetensors") == tensors(of + "/checkpoints/step-" + step + "/policy.safetensors")
P
}

# Another metric, and another goal of the same: what was seen before does not count, and best/ neither.
stop="train.early_stopping.patience=2"
train sft $common $stop optimizer.learning_rate=1e-3 train.early_stopping.metric=eval/loss train.keep_best.metric=eval/loss train.max_steps=3 output_dir=other
train sft $common $stop optimizer.learning_rate=1e-3 train.early_stopping.metric=eval/perplexity train.keep_best.metric=eval/perplexity train.max_steps=8 output_dir=other
for key in early_stopping keep_best; do
  said "train.$key.metric: found \"eval/perplexity\", goal \"minimize\", and the checkpoint has the best of \"eval/loss\", goal \"minimize\""
done
[ "$(grep -c '"eval/perplexity"' other/metrics.jsonl)" = 8 ] || fail "a run is ended by another metric's best: $(cat last.log)"
has_final other "$(best_of other eval/perplexity 3)"
train sft $common $stop optimizer.learning_rate=1e-3 train.early_stopping.metric=eval/perplexity train.early_stopping.goal=maximize train.max_steps=12 output_dir=other
said 'goal "maximize", and the checkpoint has the best of "eval/perplexity", goal "minimize"'
[ "$(tail -1 other/metrics.jsonl | grep -o '"step": [0-9]*')" = '"step": 11' ] || fail "a changed goal: $(cat other/metrics.jsonl)"

# The best weights that a later step replaced are gone for what goes on before it: its own best counts, and that is said.
best="$common train.keep_best.metric=eval/loss"
train sft $best optimizer.learning_rate=1e-2 train.max_steps=10 output_dir=falls
[ "$(best_of falls eval/loss 0)" = 10 ] || fail "falls: $(cat falls/metrics.jsonl)"
train fork falls@6 --output forked train.max_steps=8
said "are gone (best/): the best of the evaluations from here on counts"
train sft $best optimizer.learning_rate=1e-2 train.max_steps=8 resume=falls/checkpoints/step-6 output_dir=named
said "are gone (best/): the best of the evaluations from here on counts"
for run in forked named; do
  [ -e $run/best/best.json ] && [ ! -e $run/final/best.json ] || fail "best.json: $(ls $run/final $run/best)"
  has_final $run "$(best_of $run eval/loss 6)"
done
"$temper" verify forked > last.log 2>&1 || fail "verify forked: $(cat last.log)"
rm -r forked/best
train fork falls@6 --output forked train.max_steps=10
said "are gone (best/)"
has_final forked "$(best_of forked eval/loss 8)"

# Those of a step before it are taken along, and a run that is worse from there on leaves them; verify finds the same.
train sft $best optimizer.learning_rate=1e-2 train.max_steps=6 output_dir=rises
train sft $best optimizer.learning_rate=1 train.max_steps=10 output_dir=rises
[ "$(best_of rises eval/loss 0)" = 6 ] || fail "rises: $(cat rises/metrics.jsonl)"
has_final rises 6
for lot in '' '--steps 1 --seed 1' '--steps 2 --seed 2'; do
  "$temper" verify rises $lot > last.log 2>&1 || fail "verify rises $lot: $(cat last.log)"
done
train sft $best optimizer.learning_rate=1 train.max_steps=10 resume=rises/checkpoints/step-8 output_dir=taken
has_final taken 6 rises
train fork rises@8 --output forked-8
has_final forked-8 6 rises
"$temper" verify forked-8 > last.log 2>&1 || fail "verify forked-8: $(cat last.log)"
# As an earlier version left it: best/ does not say of which evaluation it is.
rm -r rises/best/best.json taken
train sft $best optimizer.learning_rate=1 train.max_steps=10 resume=rises/checkpoints/step-8 output_dir=taken
has_final taken 6 rises
# A critic's go along. Where all rewards are equal the first evaluation is the best.
for i in $(seq 8); do echo "{\"prompt_ids\": [$((3 + i)), $((7 + i)), 5]}"; done > prompts.jsonl
ppo="model.path=model data.train=prompts.jsonl data.eval=prompts.jsonl train.eval_every=1 train.save_every=1 train.keep_checkpoints=20 metrics.sinks=[jsonl] train.keep_best.metric=eval/reward_mean rl.prompts_per_rollout=4 rollout.max_new_tokens=60"
reward='rewards=[{name: equal, command: [sed, -u, "s/.*/0.5/"]}]'
train ppo $ppo "$reward" optimizer.learning_rate=1e-2 train.max_steps=2 output_dir=ppo
train ppo $ppo "$reward" optimizer.learning_rate=1e-2 train.max_steps=4 output_dir=ppo
grep -q '"step": *1\b' ppo/best/best.json && cmp -s ppo/best/model.safetensors ppo/final/model.safetensors ||
  fail "ppo: final/ has not the weights of step 1: $(cat ppo/best/best.json)"
"$temper" verify ppo > last.log 2>&1 || fail "verify ppo: $(cat last.log)"

# sweep --stop-worst: a step or a metric that the runs do not have is refused before any of them starts.
refused() {
  local words=$1
  shift
  "$temper" sweep sft $common output_dir=none "$@" > last.log 2>&1
  [ $? = 2 ] && [ ! -e none ] && grep -qF -- "$words; no run was started" last.log || fail "$*: expected $words: $(cat last.log)"
}
worst="--stop-worst 0.5 --by eval/loss --after"
refused 'sweep: max_steps=2: --after: found 4, expected at most train.max_steps, 2' --over train.max_steps=6,2 $worst 4
refused '--after: found 4, expected a step with an evaluation, as --by is eval/loss: a multiple of train.eval_every, 3' train.max_steps=6 train.eval_every=3 --seeds 0,1 $worst 4
refused '--by: found eval/los, which no evaluation of this run has; did you mean eval/loss?' train.max_steps=6 --seeds 0,1 --stop-worst 0.5 --by eval/los --after 4
refused '--by: there is neither data.eval nor data.validation_fraction to evaluate on' train.max_steps=6 data.eval=[] train.eval_every=0 --seeds 0,1 $worst 4
# A run that ends before the step is left out: the worst is one of the others.
early=(sweep sft $common output_dir=early train.max_steps=5 --over optimizer.learning_rate=1e-3,1e-2 --over train.early_stopping='{metric: eval/loss, patience: 1, goal: maximize}',null --stop-worst 0.5 --by eval/loss --after 4)
for time in first second; do
  train "${early[@]}"
  [ "$(grep -c 'ended after step 2, before --after 4: it is not compared' last.log)" = 2 ] && [ "$(grep -c 'ends after step 4: eval/loss' last.log)" = 1 ] || fail "early, $time: $(cat last.log)"
  [ "$(ls -d early/*/final | wc -l)" = 4 ] || fail "early: $(ls early/*)"
done
exit $bad
