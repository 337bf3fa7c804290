# temper check of what a run goes on from, and of rows that end a run after its first steps: it refuses what the run
# refuses, with the run's message.
source "$(dirname "$0")/common.sh" "$1"
source "$(dirname "$0")/checks.sh"
export OMP_NUM_THREADS=1
small_model
python3 - <<'P'
import json, random
random.seed(1)
ids = lambda n: [random.randrange(3, 61) for _ in range(n)]
def write(name, rows):
    with open(name, "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")
write("rows.jsonl", [{"input_ids": ids(12 + i % 5)} for i in range(32)])
write("pairs.jsonl", [{"prompt_ids": ids(4), "chosen_ids": ids(5), "rejected_ids": ids(6)} for _ in range(8)])
singles = [{"prompt_ids": ids(4), "completion_ids": ids(3), "label": i % 2 == 0} for i in range(8)]
write("singles.jsonl", singles)
write("single.jsonl", singles[:1])
def labelled(first):
    rows = [ids(8) for _ in range(100)]
    return [{"input_ids": row, "labels": [-100] * 8 if i < first else row} for i, row in enumerate(rows)]
write("late.jsonl", labelled(70))
write("soon.jsonl", labelled(60))
P

# A precomputed reference of a GGUF file: check passes, and so does the run; a second one reads its numbers.
"$temper" export --model model --output gg --format gguf > log 2>&1 || fail "export: $(cat log)"
file=$(ls gg/*.gguf)
for of in "model.path=$file" "model.path=model preference.reference_model=$file"; do
  dpo="dpo $of data.train=pairs.jsonl train.batch_size=4 train.max_steps=2 preference.reference=precomputed output_dir=gguf"
  rm -rf gguf
  check gguf.json 0 $dpo
  "$temper" $dpo > log 2>&1 || fail "$of: $(tail -3 log)"
  [ -s gguf/reference_logps.safetensors ] || fail "$of: no numbers are kept"
  "$temper" $dpo resume=never > log 2>&1 && grep -q "log-probabilities are read from" log || fail "$of: computed anew: $(tail -3 log)"
done

# refused WORDS ARGUMENTS...: by check and by the run, with the same words; check writes nothing.
state_of() { find . -path ./log -prune -o -type f ! -name '*.json' ! -name '*.err' -print0 | sort -z | xargs -0 ls -l --time-style=full-iso; }
refused() {
  local words=$1
  shift
  state_of > before
  check refused.json 2 "$@" && has refused.json output_dir fail "$words"
  state_of > after
  diff <(grep -v ' \./\(before\|after\)$' before) <(grep -v ' \./\(before\|after\)$' after) > log || fail "check $*: wrote: $(cat log)"
  "$temper" "$@" > log 2>&1
  [ $? = 2 ] && grep -qF "$words" log || fail "$*: the run, expected $words: $(tail -3 log)"
}
base="data.train=rows.jsonl train.batch_size=4 train.save_every=2 metrics.sinks=[jsonl]"
# begin NAME ARGUMENTS...: a run of 4 steps in that directory, kept as NAME.kept; again NAME: as it was then.
begin() {
  local name=$1
  shift
  "$temper" sft $base model.path=model train.max_steps=4 output_dir=$name "$@" > log 2>&1 || fail "the run $name: $(tail -3 log)"
  cp -rp $name $name.kept
}
again() { rm -rf $1 && cp -rp $1.kept $1; }
more="sft $base model.path=model train.max_steps=6"

begin full
check more.json 0 $more output_dir=full && has more.json output_dir warn "goes on from step 4 of a run with other settings: train.max_steps"
check same.json 0 sft $base model.path=model train.max_steps=4 output_dir=full && has same.json output_dir warn "this run is complete"
refused "found lion, and full/checkpoints/step-4 has the state of adamw" $more output_dir=full optimizer.name=lion
refused "found lion, and full/checkpoints/step-2 has the state of adamw; go on with that" $more output_dir=full resume=full/checkpoints/step-2 optimizer.name=lion
refused "is missing or of another shape; the checkpoint is of another model or adapter" $more output_dir=full adapter.method=lora
again full
refused "trained tensors of policy, the run has" $more output_dir=full 'train.freeze=[model.layers.1*]'
again full
sed 's/"intermediate_size": 48/"intermediate_size": 40/' config.json > narrow.json
"$temper" init --config narrow.json --seed 3 --output narrow > /dev/null
refused "is missing or of another shape" $more output_dir=full model.path=narrow
again full
sed -i '2s/.*/garbage/' full/metrics.jsonl
refused "full/metrics.jsonl:2" $more output_dir=full
again full
begin stranger seed=5
rm -r full/checkpoints/step-4 && cp -rp stranger/checkpoints/step-4 full/checkpoints/
refused "belongs to another run" $more output_dir=full
again full
check never.json 0 $more output_dir=full resume=never optimizer.name=lion && has never.json output_dir warn "are moved to"
check goes.json 0 $more output_dir=full && has goes.json output_dir warn "goes on from step 4"
"$temper" $more output_dir=full > log 2>&1 || fail "what check passes does not run: $(tail -3 log)"

begin lora adapter.method=lora adapter.rank=2
lora="$more adapter.method=lora output_dir=lora"
check lora.json 0 $lora adapter.rank=2 && has lora.json output_dir warn "goes on from step 4"
refused "is missing or of another shape" $lora adapter.rank=4
again lora
refused "trained tensors of policy" $lora adapter.rank=2 'adapter.target_modules=[q_proj]'
again lora
"$temper" init --config config.json --seed 9 --output other > /dev/null
refused "the frozen weights are not those that lora/checkpoints/step-4 was trained on" $lora adapter.rank=2 model.path=other

# A run that is complete and kept no checkpoint.
begin alone train.keep_final_checkpoint=false
check alone.json 0 sft $base model.path=model train.max_steps=4 output_dir=alone train.keep_final_checkpoint=false
has alone.json output_dir warn "this run is complete"
refused "is complete after 4 steps and kept no checkpoint" $more output_dir=alone train.keep_final_checkpoint=false
again alone
rm -r alone/final
refused "alone/final, which alone had what it trained, is gone" $more output_dir=alone train.keep_final_checkpoint=false

# Completions that stand alone are compared with those of other rows.
kto="dpo preference.loss=kto model.path=model output_dir=kto train.max_steps=1"
for data in "data.train=single.jsonl" "data.train=singles.jsonl data.eval=single.jsonl"; do
  check kto.json 2 $kto $data && has kto.json data.number fail "single.jsonl: found 1 row, expected at least 2"
  "$temper" $kto $data > log 2>&1
  [ $? = 2 ] && grep -q "single.jsonl: found 1 row, expected at least 2" log || fail "kto of one row: $(tail -3 log)"
done
check kto.json 0 $kto data.train=singles.jsonl && has kto.json data.number pass

# A run whose first rows train nothing ends; check judges the rows as they are drawn.
late="sft model.path=model data.shuffle=false train.batch_size=4 train.max_steps=20 output_dir=late"
check late.json 2 $late data.train=late.jsonl && has late.json first_rows fail "none of the 64 rows so far trains a token"
"$temper" $late data.train=late.jsonl > log 2>&1
[ $? = 2 ] && grep -q "none of the 64 rows so far trains a token" log || fail "rows that train nothing: $(tail -3 log)"
check soon.json 0 $late data.train=soon.jsonl && has soon.json first_rows pass
check soon.json 2 $late data.train=soon.jsonl train.max_steps=10 && has soon.json first_rows fail "none of the 40 rows so far trains a token"
check shuffled.json 0 $late data.train=late.jsonl data.shuffle=true
exit $bad
