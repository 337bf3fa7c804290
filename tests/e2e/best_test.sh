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
# has_final RUN STEP: final/ has the weights of that step's checkpoint.
has_final() {
  python3 - "$@" <<'P' || fail "$1: final/ has not the weights of step $2: $(cat last.log)"
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    return sorted(data[8 + size:][slice(*t["data_offsets"])] for name, t in head.items() if name != "__metadata__")
run, step = sys.argv[1:]
assert tensors(run + "/final/adapter_model.safetensors") == tensors(run + "/checkpoints/step-" + step + "/policy.safetensors")
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
exit $bad
