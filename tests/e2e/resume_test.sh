#!/usr/bin/env bash
# What a run leaves and finds again: abandoned and damaged checkpoints, changed plans, two runs at once, signals. $1:
# the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"

small_model
for i in $(seq 30); do echo "{\"input_ids\": [$((3 + i)), $((7 + i)), 5, $i], \"labels\": [-100, $((7 + i)), 5, $i]}"; done > rows.jsonl
sft() { "$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 optimizer.learning_rate=1e-3 metrics.sinks=jsonl "$@"; }
steps() { ls "$1/checkpoints" | sed 's/step-//' | sort -n | tr '\n' ' '; }
rows() { grep -c . "$1/metrics.jsonl"; }

# Another run in the same directory prunes its own line of checkpoints, and what is newest is what was written last.
sft output_dir=a train.max_steps=100 train.save_every=10 > /dev/null
[ "$(steps a)" = '80 90 100 ' ] || fail "kept $(steps a)"
sft output_dir=a train.max_steps=25 train.save_every=10 resume=never > /dev/null
[ "$(steps a)" = '10 20 25 ' ] || fail "another run kept $(steps a)"
sft output_dir=a train.max_steps=25 train.save_every=10 | grep -q 'run is complete' || fail "a complete run is not said to be"
sft output_dir=a train.max_steps=30 train.save_every=10 > goes-on 2>&1 || fail "a longer plan: $?"
[ "$(rows a)" = 30 ] && grep -q 'max_steps: 25 -> 30' goes-on || fail "a longer plan: $(rows a) rows, $(cat goes-on)"

# train.keep_final_checkpoint: false leaves the record that the run is complete, and no weights to go on from; final/ is
# what it is.
sft output_dir=kept train.max_steps=30 train.save_every=10 > /dev/null
sft output_dir=lean train.max_steps=30 train.save_every=10 train.keep_final_checkpoint=false > /dev/null || fail "keep_final_checkpoint=false: $?"
[ "$(find lean/checkpoints -type f)" = lean/checkpoints/step-30/state.json ] || fail "left: $(find lean/checkpoints -type f)"
cmp kept/final/model.safetensors lean/final/model.safetensors || fail "keep_final_checkpoint changed final/"
sft output_dir=lean train.max_steps=30 train.keep_final_checkpoint=false | grep -q 'run is complete' || fail "a lean complete run is not said to be"
sft output_dir=lean train.max_steps=40 train.keep_final_checkpoint=false > /dev/null 2> lean.err
[ $? = 2 ] && grep -q 'kept no checkpoint (train.keep_final_checkpoint: false)' lean.err || fail "a lean run goes on: $(cat lean.err)"
sft output_dir=lean train.max_steps=10 resume=never > /dev/null && [ -e lean/checkpoints/step-10/policy.safetensors ] || fail "a lean run is not started over"

# A damaged checkpoint is passed over; where all are, nothing is trained over them.
sft output_dir=whole train.max_steps=40 train.save_every=10 > /dev/null
sft output_dir=b train.max_steps=30 train.save_every=10 > /dev/null
head -c 500 b/checkpoints/step-30/policy.safetensors > cut && mv cut b/checkpoints/step-30/policy.safetensors
sft output_dir=b train.max_steps=30 train.save_every=10 > passed 2>&1 || fail "a damaged checkpoint: $(cat passed)"
grep -q 'skipped a checkpoint.*step-30' passed || fail "a damaged checkpoint is passed over without a word: $(cat passed)"
grep -q 'resuming from .*step-20' passed || fail "not resumed from the one before: $(cat passed)"
for file in b/checkpoints/*/state.json; do echo '{' > "$file"; done
sft output_dir=b train.max_steps=30 2> damaged > /dev/null
[ $? = 2 ] && grep -q 'state.json.*start over with resume=never' damaged || fail "all damaged: $(cat damaged)"
sed -i 's/"counts": \[/"counts": [-3, /' whole/checkpoints/step-40/state.json
for state in '{"step": -4}' '{"step": 99999999999999999999}' '{"step": 5, "complete": 5}' '{"step": "x"}'; do
  echo "$state" > whole/checkpoints/step-40/state.json
  sft resume=whole/checkpoints/step-40 output_dir=c train.max_steps=60 > /dev/null 2> hostile
  [ $? = 2 ] && grep -q 'step-40' hostile || fail "$state: $(cat hostile)"
done

# What every sink holds after a stop, after a kill (later checkpoints and the final model are not there yet) and where the
# evaluation of the checkpoint's step is made again, is what it holds of a run that nobody disturbed.
logged() {
  sft data.eval=rows.jsonl data.balance.mode=report train.eval_every=2 train.save_every=4 train.max_steps=11 train.keep_checkpoints=9 \
    'metrics.sinks=[jsonl,csv,tensorboard,wandb,prometheus]' "$@"
}
killed() { rm -r "$1/final"; for step in 8 11; do rm -r "$1/checkpoints/step-$step"; done; }
logged output_dir=undisturbed > /dev/null || fail "all sinks: $?"
for way in killed again twice; do
  logged output_dir=$way > /dev/null; killed $way
  [ $way = killed ] || python3 -c '
import json, sys
state = json.load(open(sys.argv[1]))
del state["hash"], state["evaluated"]
json.dump(state, open(sys.argv[1], "w"))' $way/checkpoints/step-4/state.json
  printf half >> "$(ls $way/tensorboard/* | tail -1)"
  logged output_dir=$way > $way.log 2>&1 || fail "$way: $(cat $way.log)"
  if [ $way = twice ]; then
    killed $way
    logged output_dir=$way > $way.log 2>&1 || fail "$way: $(cat $way.log)"
  fi
  python3 "$TEMPER_SOURCE_DIR/tests/e2e/logged.py" undisturbed $way || fail "$way: a sink has another record than that of a run that was not disturbed"
done
[ "$(ls undisturbed/tensorboard | wc -l)" = 1 ] || fail "event files of one start"
logged output_dir=undisturbed | grep -q 'run is complete' && [ "$(ls undisturbed/tensorboard | wc -l)" = 1 ] || fail "a complete run got an event file"
logged output_dir=twice resume=never > /dev/null && [ "$(ls twice/tensorboard | wc -l)" = 1 ] || fail "a run that starts over keeps the old event files"
python3 "$TEMPER_SOURCE_DIR/tests/e2e/logged.py" undisturbed twice || fail "a run that starts over"

# Another optimizer has no use for the state of this one.
cp a/config.yaml before
sft output_dir=a train.max_steps=40 optimizer.name=lion > /dev/null 2> optimizer
[ $? = 2 ] && grep -q 'optimizer.name: found lion, and a/checkpoints/step-[0-9]* has the state of adamw' optimizer || fail "another optimizer: $(cat optimizer)"
cmp -s a/config.yaml before || fail "a refused optimizer changed config.yaml"
newest=$(ls -d a/checkpoints/step-* | tail -1)
sft output_dir=elsewhere train.max_steps=40 optimizer.name=lion resume=$newest > /dev/null 2> optimizer
[ $? = 2 ] && grep -q "found lion, and $newest has the state of adamw" optimizer || fail "another optimizer, from a checkpoint elsewhere: $(cat optimizer)"
# An earlier version's checkpoint does not say: the config.yaml of its run does.
cp -r a earlier
python3 - earlier/checkpoints/*/state.json <<'P'
import json, sys
for path in sys.argv[1:]:
    state = json.load(open(path))
    assert state.pop("optimizer") == "adamw" and state.pop("hash")
    json.dump(state, open(path, "w"))
P
sft output_dir=earlier train.max_steps=40 optimizer.name=lion > /dev/null 2> optimizer
[ $? = 2 ] && grep -q 'found lion, and earlier/checkpoints/step-[0-9]* has the state of adamw' optimizer || fail "another optimizer, of an earlier version: $(cat optimizer)"

# A checkpoint of another verb; a directory that is none.
sft output_dir=d train.max_steps=2 > /dev/null
"$temper" grpo model.path=model data.train=rows.jsonl output_dir=d 'rewards=[{name: x, command: [sh, -c, "while read -r l; do echo 1; done"]}]' \
  'data.columns={prompt_ids: input_ids}' train.max_steps=4 > /dev/null 2> verb
[ $? = 2 ] && grep -q 'another verb' verb || fail "another verb's checkpoint: $(cat verb)"
touch file
sft output_dir=file 2> nodir > /dev/null
[ $? = 2 ] && grep -q 'output_dir' nodir || fail "output_dir a file: $(cat nodir)"

# Two runs in one directory: the second is refused, the first is not disturbed.
"$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=e train.max_steps=200000 metrics.sinks=jsonl > /dev/null 2> first.err &
first=$!
until_rows e 1 $first
sft output_dir=e train.max_steps=200000 2> second > /dev/null
[ $? = 2 ] && grep -q 'another run' second || fail "a second run: $(cat second)"
# A wish to stop that comes twice is one wish.
kill -TERM $first; kill -TERM $first
wait $first
[ $? = 143 ] && [ -n "$(steps e)" ] || fail "two signals at once lost the run"
[ "$(grep -c 'finishing the step and saving a checkpoint; a second signal ends the run at once' first.err)" = 1 ] || fail "a stop is not answered in a log: $(cat first.err)"
# Who wants to talk to it is told what it is, and how to have its model.
"$temper" chat --model e < /dev/null 2> stopped.err
[ $? = 2 ] && grep -q "run that has not ended: its newest checkpoint is of step $(steps e | tr -d ' '); " stopped.err || fail "chat on a stopped run: $(cat stopped.err)"
step=$(steps e | tr -d ' ')
"$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=e train.max_steps=$step metrics.sinks=jsonl > /dev/null 2>&1 && [ -e e/final/model.safetensors ] || fail "train.max_steps=$step does not end the run"

# A run whose directory goes meanwhile fails, and what it trained is there again.
"$temper" sft model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=gone train.max_steps=200000 metrics.sinks=jsonl > /dev/null 2> gone.err &
run=$!
until_rows gone 1 $run
rm -rf gone
comes_true has_ended $run || fail "a run without its directory goes on"
wait $run
[ $? = 1 ] && grep -q 'gone, or a part of it, was removed while this run was writing there; the state of step [0-9]* is saved in gone' gone.err || fail "a run whose directory was removed: $(cat gone.err)"
step=$(steps gone | tr -d ' ')
sft output_dir=gone optimizer.learning_rate=2e-5 train.max_steps=$((step + 1)) > /dev/null 2> gone.err && [ -e gone/final/model.safetensors ] || fail "what was saved is not gone on from: $(cat gone.err)"

# A metric that no evaluation has is refused before the run.
sft output_dir=metric data.eval=rows.jsonl train.keep_best.metric=eval/lss train.max_steps=1 > /dev/null 2> metric.err
[ $? = 2 ] && grep -q 'train.keep_best.metric: found eval/lss, which no evaluation of this run has; did you mean eval/loss?' metric.err && [ ! -e metric/metrics.jsonl ] || fail "keep_best of no metric: $(cat metric.err)"

sft output_dir=metric data.eval=rows.jsonl train.keep_best.metric=eval/throughput train.max_steps=1 > /dev/null 2> metric.err
[ $? = 2 ] && grep -q 'expected one of eval/loss' metric.err || fail "a metric that is like none: $(cat metric.err)"

# What a run that starts over would replace is moved aside.
sft output_dir=a train.max_steps=3 resume=never > over.log 2>&1 || fail "starting over: $(cat over.log)"
grep -q '^a: what an earlier run left is now in a.old-[0-9]*$' over.log && [ -e a.old-1/final/model.safetensors ] && [ -e a.old-2/checkpoints/step-30/state.json ] || fail "starting over: $(cat over.log) $(ls -d a.old-*)"

# check says so before, also where checkpoints are gone.
says() { "$temper" check sft model.path=model data.train=rows.jsonl train.batch_size=4 "$@" 2>&1 | grep output_dir > said; grep -q 'are moved to over.old-1' said; }
sft output_dir=over train.max_steps=2 > /dev/null
says output_dir=over resume=never && says output_dir=over resume=a/checkpoints/step-3 || fail "check of what is moved: $(cat said)"
rm -r over/checkpoints
says output_dir=over && says output_dir=over resume=never || fail "check of what is moved without checkpoints: $(cat said)"

# The same for ranks, told by their launcher and by whoever signals the group; and ranks end with their launcher.
setsid "$temper" sft --nproc 2 model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=f train.max_steps=100000 metrics.sinks=jsonl > /dev/null 2> ranks &
launcher=$!
until_rows f 1 $launcher
kill -TERM -- -$launcher
wait $launcher
[ $? = 143 ] && [ -n "$(steps f)" ] || fail "ranks lost the run: $(cat ranks)"
# The launcher's status is that of the signal that it got, not of the one that it passes on.
for signal in INT HUP; do
  rm -rf f
  "$temper" sft --nproc 2 model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=f train.max_steps=100000 metrics.sinks=jsonl > /dev/null 2> ranks &
  launcher=$!
  until_rows f 1 $launcher
  kill -$signal $launcher
  wait $launcher
  [ $? = $((128 + $(kill -l $signal))) ] && [ -n "$(steps f)" ] || fail "SIG$signal: ranks lost the run: $(cat ranks)"
done
"$temper" sft --nproc 2 model.path=model data.train=rows.jsonl train.batch_size=4 output_dir=g train.max_steps=100000 metrics.sinks=jsonl > /dev/null 2>&1 &
launcher=$!
until_rows g 1 $launcher
children=$(cat /proc/$launcher/task/$launcher/children)
kill -KILL $launcher
for child in $children; do
  comes_true has_ended $child || { fail "ranks outlive their launcher"; kill -KILL $children; }
done
exit $bad
