# train.offload: what leaves memory for a disk changes no bit, is gone afterwards however the run ends, and a full disk
# ends the run with a checkpoint.
source "$(dirname "$0")/common.sh" "$1"
tiny_model 61 64 96 3 2 1 32
# Rows whose inputs of blocks are above the size from which they are written.
python3 - <<'P'
import json, random
random.seed(1)
with open("rows.jsonl", "w") as f:
    for i in range(12):
        f.write(json.dumps({"input_ids": [random.randrange(3, 61) for _ in range(300 + 20 * i)]}) + "\n")
with open("prompts.jsonl", "w") as f:
    for i in range(4):
        f.write(json.dumps({"prompt_ids": [random.randrange(3, 61) for _ in range(260 + i)], "answer": "1"}) + "\n")
P
shared="model.path=model train.recompute=blocks metrics.sinks=jsonl"
sft="sft $shared data.train=rows.jsonl train.batch_size=2 train.max_steps=5 optimizer.learning_rate=1e-3 train.save_every=2"
lora="adapter.method=lora adapter.rank=8"
same() { # A B: weights, optimizer's state and metrics
  for file in checkpoints/step-5/policy.safetensors checkpoints/step-5/policy.optimizer.safetensors; do
    cmp "$1/$file" "$2/$file" || fail "$2: $file differs"
  done
  [ "$(numbers "$1/metrics.jsonl")" = "$(numbers "$2/metrics.jsonl")" ] || fail "$2: other metrics"
}
# clean DIRECTORY: no file of the offload is left there.
clean() { [ -z "$(find "$1" -name '.temper-offload*')" ] || fail "left: $(ls -A "$1")"; }
mkdir disk

for kind in full lora muon; do
  keys=$([ $kind = lora ] && echo "$lora"; [ $kind = muon ] && echo optimizer.name=muon)
  "$temper" $sft $keys output_dir=$kind > /dev/null || fail "$kind: $?"
  for offload in activations optimizer all; do
    "$temper" $sft $keys train.offload=$offload train.offload_dir=disk output_dir=$kind-$offload > /dev/null || fail "$kind, $offload: $?"
    same $kind $kind-$offload
    [ -z "$(ls -A disk)" ] || fail "$kind, $offload left $(ls -A disk)"
  done
done
# Ranks that share out weights and state have files of their own.
"$temper" $sft --nproc 2 mesh.fsdp=2 output_dir=fsdp > fsdp.log 2>&1 || fail "fsdp: $(cat fsdp.log)"
"$temper" $sft --nproc 2 mesh.fsdp=2 train.offload=all output_dir=fsdp-all > fsdp.log 2>&1 || fail "fsdp: $(cat fsdp.log)"
same fsdp fsdp-all
clean fsdp-all

# Reinforcement learning, with a critic too.
even_reward
even='rewards=[{name: even, command: [sh, even.sh]}]'
rl="$shared data.train=prompts.jsonl rollout.max_new_tokens=8 rl.prompts_per_rollout=2 rl.group_size=4 train.max_steps=3"
for verb in grpo ppo; do
  "$temper" $verb $rl "$even" output_dir=$verb > /dev/null || fail "$verb: $?"
  "$temper" $verb $rl "$even" output_dir=$verb-all train.offload=all > /dev/null || fail "$verb, offload: $?"
  for file in $(cd $verb/checkpoints/step-3 && ls ./*.safetensors); do
    cmp $verb/checkpoints/step-3/$file $verb-all/checkpoints/step-3/$file || fail "$verb: $file differs"
  done
  clean $verb-all
done

# Killed, and resumed with other settings of it: the bits of a run that was not. What a killed one left is removed.
for before in all none; do
  [ $before = all ] && after=none || after=all
  "$temper" $sft train.offload=$before output_dir=killed-$before > /dev/null 2>&1 & victim=$!
  until_rows killed-$before 3 $victim
  kill -KILL $victim 2> /dev/null; wait $victim 2> /dev/null
  clean killed-$before
  : > killed-$before/.temper-offload-Abc123
  "$temper" $sft train.offload=$after output_dir=killed-$before > /dev/null 2>&1 || fail "resumed: $?"
  [ $after = none ] || clean killed-$before
  cmp full/checkpoints/step-5/policy.optimizer.safetensors killed-$before/checkpoints/step-5/policy.optimizer.safetensors || fail "killed with $before: the state differs"
  cmp full/final/model.safetensors killed-$before/final/model.safetensors || fail "killed with $before: the weights differ"
done

# Wrong values: a line that names the key, and no run.
wrong() { # WORDS ARGUMENTS...
  local words=$1 status
  shift
  "$temper" "$@" output_dir=wrong > /dev/null 2> wrong.err
  status=$?
  [ $status = 2 ] && [ "$(wc -l < wrong.err)" = 1 ] && grep -q "$words" wrong.err || fail "$*: $status, $(cat wrong.err)"
}
wrong 'train.offload: found all with train.recompute: none, expected train.recompute: blocks' $sft train.offload=all train.recompute=none
wrong 'train.offload: found disk, expected none | activations | optimizer | all' $sft train.offload=disk
wrong 'train.offload_dir: found no/such, expected a directory' $sft train.offload=all train.offload_dir=no/such
wrong 'train.offload_dir: train.offload is none' $sft train.offload_dir=disk
"$temper" check $sft train.offload=all train.offload_dir=no/such output_dir=wrong > check.log
[ $? = 2 ] && grep -q '^fail *offload .*train.offload_dir: found no/such' check.log || fail "check: $(cat check.log)"

# The plan: less memory, the disk that it takes, and how long a row may be.
"$temper" check $sft output_dir=planned --json > whole.json 2> check.err || fail "check: $(cat check.err)"
"$temper" check $sft output_dir=planned train.offload=all --json > less.json 2> check.err || fail "check: $(cat check.err)"
python3 - <<'P' || fail "plans: $(cat whole.json less.json)"
import json
whole, less = (json.load(open(name)) for name in ("whole.json", "less.json"))
values = lambda report, name: next(c["values"] for c in report["checks"] if c["name"] == name)
assert less["plan"]["peak_bytes"] < whole["plan"]["peak_bytes"], (less["plan"], whole["plan"])
assert not any(c["name"] == "offload" for c in whole["checks"])
state = whole["plan"]["parts"]["optimizer"]
assert state < values(less, "offload")["files"] < values(less, "offload")["needed"], values(less, "offload")
rows = values(whole, "longest_row")
assert 1000 < rows["configured"] < rows["offload"] and "recompute" not in rows, rows
assert list(values(less, "longest_row")) == ["configured"], values(less, "longest_row")
P

# A full disk: for the optimizer's state nothing begins, for inputs of blocks the last whole step is saved.
if unshare -rm true 2> /dev/null; then
  full() { # SIZE ARGUMENTS...: a run whose offload_dir has so much room
    local size=$1
    shift
    unshare -rm bash -c 'mount -t tmpfs -o size='"$size"' none disk && shift && exec "$@"' - - "$temper" $sft train.offload_dir=disk "$@" > full.log 2> full.err
  }
  full 64k train.offload=optimizer output_dir=no-room
  [ $? = 1 ] && [ "$(grep -c 'train.offload: disk: no room for' full.err)" = 1 ] || fail "no room: $(cat full.err)"
  # Rows grow: the first steps fit.
  python3 - <<'P'
import json
with open("growing.jsonl", "w") as f:
    for i in range(5):
        f.write(json.dumps({"input_ids": [3 + (7 * k + i) % 50 for k in range(300 if i < 3 else 3000)]}) + "\n")
P
  full 400k train.offload=activations output_dir=filled data.train=growing.jsonl data.shuffle=false train.batch_size=1
  [ $? = 1 ] && grep -q 'train.offload: disk: cannot write: No space left' full.err || fail "full: $(cat full.err)"
  [ -e filled/checkpoints/step-3 ] || fail "no checkpoint of step 3: $(ls filled/checkpoints)"
  "$temper" $sft train.offload=all output_dir=filled data.train=growing.jsonl data.shuffle=false train.batch_size=1 > /dev/null 2>&1 || fail "goes on: $?"
fi
exit $bad
