#!/usr/bin/env bash
# tinker-cookbook's supervised loop over `temper serve --tinker` against `temper sft` on the same rows: the same losses,
# gradients and adapter. $1: the program. TEMPER_TINKER_PYTHON: a Python with tinker 0.38 and tinker-cookbook.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${TEMPER_TINKER_PYTHON:-}" ] || ! "$TEMPER_TINKER_PYTHON" -c 'import tinker_cookbook' 2> /dev/null; then
  echo "skipped: tinker_supervised.py (TEMPER_TINKER_PYTHON names no Python with tinker 0.38 and tinker-cookbook)"
  exit 0
fi
python3 "$TEMPER_SOURCE_DIR/examples/calculator_model.py" calculator || fail "the model of the example"
"$temper" init --config calculator/config.json --tokenizer calculator --output model > /dev/null || fail "init"
# few.jsonl: steps of one pass, which the server's 512 tokens bound; many.jsonl: of several.
python3 - <<'P'
import json, random
random.seed(1)
size = json.load(open("model/config.json"))["vocab_size"]
for name, rows, longest in (("few", 48, 24), ("many", 144, 60)):
    with open(name + ".jsonl", "w") as file:
        for _ in range(rows):
            prompt, answer = random.randrange(3, 9), random.randrange(5, longest)
            ids = [random.randrange(1, size) for _ in range(prompt + answer)]
            file.write(json.dumps({"input_ids": ids, "labels": [-100] * prompt + ids[prompt:]}) + "\n")
P
touch serve.log
"$temper" serve --model model --port 0 --tinker --state-dir state > serve.log 2>&1 & server=$!
address_of serve.log $server || fail "serve: $(cat serve.log)"

# The SDK's defaults are what sft is told: an adapter of the head as well, Adam's constants, no clipping to speak of.
both() {
  local rows=$1 batch=$2
  HF_HUB_OFFLINE=1 TINKER_API_KEY=tml-test TINKER_TELEMETRY=0 "$TEMPER_TINKER_PYTHON" "$here/tinker_supervised.py" "$PWD/model" "$address" $rows.jsonl $batch $rows.cookbook > $rows.log 2>&1 ||
    fail "the cookbook: $(tail -5 $rows.log)"
  "$temper" sft model.path=model data.train=$rows.jsonl data.shuffle=false output_dir=$rows train.batch_size=$batch train.max_steps=6 train.micro_batch_tokens=512 \
    adapter.method=lora adapter.rank=8 'adapter.target_modules=[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head]' \
    optimizer.learning_rate=1e-3 'optimizer.betas=[0.9, 0.95]' optimizer.eps=1e-8 optimizer.schedule=linear optimizer.max_grad_norm=1e15 metrics.sinks=[jsonl] > sft.log 2>&1 ||
    fail "sft: $(tail -3 sft.log)"
  python3 - $rows <<'P' || fail "$rows: sft and the cookbook differ"
import json, sys
name = sys.argv[1]
# In one pass all is the same but the last step of a division in float64; several passes are added up in another order.
most = {"few": 1e-14, "many": 1e-6}[name]
ours, theirs = ([json.loads(line) for line in open(path)] for path in (name + "/metrics.jsonl", name + ".cookbook"))
assert len(ours) == len(theirs) == 6
for x, y in zip(ours, theirs):
    assert x["learning_rate"] == y["learning_rate"], (x, y)
    for key in ("loss", "grad_norm"):
        assert abs(x[key] - y[key]) <= most * abs(x[key]), (x["step"], key, x[key], y[key])
    assert abs(x["loss"] - y["logged"]) <= 1e-6 * x["loss"], (x["step"], x["loss"], y["logged"])
    print(name, x["step"], x["loss"], y["loss"], x["grad_norm"], y["grad_norm"])
P
}
both few 8
saved=$(ls -d state/runs/*/weights/final)
# Behind the header, whose length comes first, are the weights.
python3 - "$saved/adapter_model.safetensors" <<'P' || fail "sft's adapter is not the cookbook's"
import json, sys
def tensors(path):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    return {name: (about["shape"], data[8 + size + about["data_offsets"][0]:8 + size + about["data_offsets"][1]])
            for name, about in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
ours, theirs = tensors("few/final/adapter_model.safetensors"), tensors(sys.argv[1])
assert ours == theirs, [name for name in ours if ours[name] != theirs.get(name)]
P
both many 24
kill -TERM $server
wait $server || fail "SIGTERM: status $?"
exit $bad
