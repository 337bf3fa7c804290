#!/usr/bin/env bash
# Tokens that a run adds to the vocabulary, and rows of the embeddings that train alone. $1: the program. With
# TEMPER_PEFT_PYTHON=PYTHON, transformers and PEFT read what was trained, too.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"

json_model
cat > rows.py <<'P'
import json
words = ["a", "the", "two", "x", "e", "1"]
with open("rows.jsonl", "w") as rows, open("prompts.jsonl", "w") as prompts, open("texts.jsonl", "w") as texts, open("pairs.jsonl", "w") as pairs:
    for i in range(40):
        say = " ".join(words[(i * k) % 6] for k in range(1, 5 + i % 7))
        print(json.dumps({"prompt": say + "<think>", "completion": f"<act>{say}</act>"}), file=rows)
        print(json.dumps({"prompt": say + "<act>"}), file=prompts)
        print(json.dumps({"prompt": say + "<act>", "chosen": "a</act>", "rejected": "the"}), file=pairs)
        if i < 9: print(json.dumps({"text": f"<act>{say}</act> <act>"}), file=texts)
P
python3 rows.py
# table.py MODEL NAME: the rows of a float32 matrix, a line each.
cat > table.py <<'P'
import json, struct, sys
data = open(sys.argv[1] + "/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
tensor = json.loads(data[8:8 + size])[sys.argv[2]]
begin, end = tensor["data_offsets"]
width = tensor["shape"][1]
values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + size + begin:8 + size + end])
for row in range(tensor["shape"][0]): print(*values[row * width:(row + 1) * width])
P
# begins_as_mean OLD NEW KNOWN TOTAL TENSOR: rows KNOWN to KNOWN + 1 of NEW are the mean of OLD's first KNOWN; the others
# are OLD's; TOTAL in all.
begins_as_mean() {
  python3 table.py "$1" "$5" > old.rows; python3 table.py "$2" "$5" > new.rows
  awk -v known="$3" -v total="$4" 'NR == FNR { old[NR] = $0; if (NR <= known) for (i = 1; i <= NF; ++i) sum[i] += $i; next }
    FNR > known && FNR <= known + 2 { for (i = 1; i <= NF; ++i) { d = $i - sum[i] / known; if (d < 0) d = -d; if (d > 1e-7) exit 1 }; next }
    $0 != old[FNR] { exit 1 } END { if (FNR != total) exit 1 }' old.rows new.rows
}
cat > run.yaml <<'Y'
model: {path: model, new_tokens: [<act>, </act>]}
data: {train: rows.jsonl}
train: {max_steps: 6, batch_size: 6, save_every: 2}
optimizer: {learning_rate: 2.0e-2}
metrics: {sinks: [jsonl]}
Y
known=$(python3 -c 'import json; print(json.load(open("json_config.json"))["vocab_size"])')
sft() { "$temper" sft run.yaml output_dir="$@" > log 2>&1 || fail "sft $*: $(tail -3 log)"; }
close() { paste <(grep -o '"logprobs":\[[^]]*' "$1") <(grep -o '"logprobs":\[[^]]*' "$2") | tr -d '"logprbs:[' | tr '\t' ',' |
  awk -F, '{ n = NF / 2; for (i = 1; i <= n; ++i) { d = $i - $(n + i); if (d < 0) d = -d; if (d > 1e-4) exit 1 } k++ } END { exit k == 9 ? 0 : 1 }'; }

# The model grows: rows, config and tokenizer; with spare rows it keeps its size, whether the head is tied or not.
sft still optimizer.learning_rate=0
begins_as_mean model still/final "$known" $((known + 2)) model.embed_tokens.weight || fail "new rows are not the mean of the others"
grep -q "\"vocab_size\": $((known + 2))" still/final/config.json || fail "config.json has another vocabulary"
grep -q '"content":"<act>"' still/final/tokenizer.json || fail "tokenizer.json lacks a new token"
sed -E "s/\"vocab_size\": [0-9]+/\"vocab_size\": $((known + 5))/; s/\"tie_word_embeddings\": true/\"tie_word_embeddings\": false/" json_config.json > spare.json
"$temper" init --config spare.json --seed 4 --output spare > /dev/null; cp model/tokenizer* spare/
sft spared model.path=spare optimizer.learning_rate=0
for tensor in model.embed_tokens.weight lm_head.weight; do
  begins_as_mean spare spared/final "$known" $((known + 5)) $tensor || fail "spare rows of $tensor"
done
sft full
killed_after 0.4 "$temper" sft run.yaml output_dir=killed > /dev/null 2>&1
sft killed
cmp full/final/model.safetensors killed/final/model.safetensors || fail "a resumed run has other weights"
"$temper" tokenize --model full/final --input texts.jsonl --output tokens.jsonl 2> log || fail "tokenize: $(cat log)"
[ "$(grep -c "\"tokens\":\[$known," tokens.jsonl)" = 9 ] || fail "new tokens are not read in texts: $(head -1 tokens.jsonl)"
"$temper" generate --model full/final --prompt 'a<act>' --max-new-tokens 3 > /dev/null || fail "generate: $?"

# An adapter with the new tokens' rows: scored on the old base alone, merged, gone on from.
lora="adapter.method=lora adapter.rank=4 adapter.train_tokens=new"
for kind in tied untied dora bfloat16 static; do
  base=model flags=
  case $kind in
    tied) settings=$lora ;;
    untied) settings="$lora model.path=spare" base=spare ;;
    dora) settings="$lora adapter.use_dora=true" ;;
    bfloat16) settings="$lora model.dtype=bfloat16" flags="--dtype bfloat16" ;;
    static) settings="adapter.method=lora adapter.rank=4" ;;  # rows that do not train
  esac
  sft $kind $settings
  killed_after 0.4 "$temper" sft run.yaml output_dir=again $settings > /dev/null 2>&1
  sft again $settings
  cmp $kind/final/adapter_model.safetensors again/final/adapter_model.safetensors || fail "$kind: a resumed run has other weights"
  rm -rf again
  [ $kind = static ] || grep -aq trainable_tokens_delta $kind/final/adapter_model.safetensors || fail "$kind: no rows are saved"
  "$temper" score --model $base --adapter $kind/final $flags --input tokens.jsonl --output $kind.scores 2> log || fail "$kind: score: $(cat log)"
  "$temper" generate --model $kind/final $flags --input tokens.jsonl --output a.jsonl --max-new-tokens 8 --seed 4 2> log || fail "$kind: generate: $(cat log)"
  sed -E 's/.*"prompt_tokens":(\[[^]]*\]),"tokens":(\[[^]]*\]).*/{"prompt_tokens":\1,"completion_tokens":\2}/' a.jsonl > completions.jsonl
  "$temper" score --model $base --adapter $kind/final $flags --input completions.jsonl --output c.jsonl || fail "$kind: score"
  cmp <(grep -o '"logprobs":[^]]*' a.jsonl) <(grep -o '"logprobs":[^]]*' c.jsonl) || fail "$kind: sampled and scored log-probabilities differ"
  [ $kind = bfloat16 ] && continue
  "$temper" export --model $base --adapter $kind/final --output merged > log 2>&1 || fail "$kind: export: $(tail -3 log)"
  "$temper" score --model merged --input tokens.jsonl --output m.scores || fail "$kind: score of the merged model"
  close $kind.scores m.scores || fail "$kind: merging changed the model"
  if [ -n "${TEMPER_PEFT_PYTHON:-}" ]; then
    grown=still/final; [ $base = spare ] && grown=spared/final
    "$TEMPER_PEFT_PYTHON" -W ignore - merged tokens.jsonl $kind.scores <<'P' || fail "$kind: transformers reads the merged model otherwise"
import json, sys
import torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=sys.argv[1] + "/tokenizer.json")
for text, row, score in zip(open("texts.jsonl"), open(sys.argv[2]), open(sys.argv[3])):
    tokens = json.loads(row)["tokens"]
    assert tokenizer(json.loads(text)["text"], add_special_tokens=False).input_ids == tokens
    ids = torch.tensor([tokens])
    with torch.no_grad(): logp = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
    assert (logp - torch.tensor(json.loads(score)["logprobs"])).abs().max() < 1e-4
P
    "$TEMPER_PEFT_PYTHON" -W ignore "$here/peft_scores.py" $grown $kind/final tokens.jsonl $kind.scores 2> peft.log || fail "$kind: PEFT reads it otherwise: $(tail -3 peft.log)"
  fi
  rm -rf merged
  sft onward model.new_tokens=[] adapter.path=$kind/final model.path=$base
  rm -rf onward
done
"$temper" sft --nproc 2 run.yaml output_dir=two $lora > log 2>&1 || fail "two ranks: $(tail -3 log)"
paste <(value tied/metrics.jsonl loss) <(value two/metrics.jsonl loss) | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 1e-5) exit 1; n++ } END { exit n == 6 ? 0 : 1 }' || fail "two ranks give another loss"

# Preferences begin at the policy, new rows included; the sampler is the trainer.
"$temper" dpo run.yaml output_dir=dpo data.train=pairs.jsonl $lora > log 2>&1 || fail "dpo: $(tail -3 log)"
value dpo/metrics.jsonl loss | awk 'NR == 1 && ($1 < 0.6931471 || $1 > 0.6931473) { exit 1 }' || fail "dpo begins at $(value dpo/metrics.jsonl loss | head -1)"
even_reward
cat > grpo.yaml <<'Y'
model: {path: model, new_tokens: [<act>, </act>]}
data: {train: prompts.jsonl}
train: {max_steps: 4, micro_batch_tokens: 128}
optimizer: {learning_rate: 2.0e-2, schedule: constant}
rl: {group_size: 4, prompts_per_rollout: 3, beta: 0.02}
rollout: {max_new_tokens: 9}
rewards: [{name: even, command: [sh, even.sh]}]
metrics: {sinks: [jsonl]}
Y
for settings in "$lora" "adapter.path=tied/final" "adapter.method=none"; do
  rm -rf grpo
  "$temper" grpo grpo.yaml output_dir=grpo $settings > log 2>&1 || fail "grpo $settings: $(tail -3 log)"
  zero_diffs grpo/metrics.jsonl
  value grpo/metrics.jsonl kl | awk 'NR == 1 && $1 > 1e-6 { exit 1 } END { exit $1 > 0 ? 0 : 1 }' || fail "grpo $settings: the reference is not the start: $(value grpo/metrics.jsonl kl)"
done
for verb in sft dpo; do
  "$temper" check $verb run.yaml output_dir=x $lora data.train=$([ $verb = sft ] && echo rows || echo pairs).jsonl > log 2>&1 || fail "check $verb: $(cat log)"
done

"$temper" check sft run.yaml output_dir=x model.new_tokens=[] adapter.path=tied/final > log 2>&1 || fail "check of an adapter with rows: $(cat log)"

# Two adapters beside each other: one vocabulary.
sft plain model.new_tokens=[] adapter.method=lora "adapter.train_tokens=[The, a]"
echo '{"tokens": [64, 68, 307, 64]}' > old.jsonl
"$temper" score --model model --adapter a=plain/final --adapter b=plain/final --input old.jsonl --output x 2> log || fail "two adapters: $(cat log)"
# A sweep over adapters, one of which has new tokens: each run is what it is alone.
sft bare model.new_tokens=[] adapter.method=lora adapter.rank=4
"$temper" sweep sft run.yaml output_dir=swept model.new_tokens=[] adapter.method=lora --over adapter.path=bare/final,static/final > log 2>&1 || fail "sweep over adapters: $(tail -3 log)"
for kind in bare static; do
  sft alone-$kind model.new_tokens=[] adapter.method=lora adapter.path=$kind/final
  diff -rq alone-$kind/final swept/*${kind}_final/final || fail "$kind: a sweep leaves another adapter than the run alone"
done
# wrong EXPECTED VERB ...: exit status 2 and one line with EXPECTED.
wrong() {
  local status=0 message
  message=$("$temper" "${@:2}" 2>&1) || status=$?
  [ $status = 2 ] && [[ $message == *"$1"* ]] || fail "${*:2}: status $status, $message"
}
wrong 'were trained with different new tokens' score --model model --adapter a=plain/final --adapter b=tied/final --input tokens.jsonl --output x
wrong '`The` is a token of ' sft run.yaml output_dir=x 'model.new_tokens=[The]'
wrong '`<x>` is named twice' sft run.yaml output_dir=x 'model.new_tokens=[<x>, <x>]'
wrong 'found an empty text' sft run.yaml output_dir=x 'model.new_tokens=[""]'
wrong 'model.new_tokens is empty' sft run.yaml output_dir=x model.new_tokens=[] adapter.method=lora adapter.train_tokens=new
wrong 'tokens, expected one' sft run.yaml output_dir=x adapter.method=lora 'adapter.train_tokens=["a the x"]'
wrong 'is named twice' sft run.yaml output_dir=x adapter.method=lora 'adapter.train_tokens=[<act>, <act>]'
wrong 'adapter.train_tokens' sft run.yaml output_dir=x adapter.method=lora adapter.train_tokens=all
wrong 'embed_tokens trains whole' sft run.yaml output_dir=x $lora 'adapter.modules_to_save=[embed_tokens]'
wrong 'lm_head' sft run.yaml output_dir=x $lora 'adapter.target_modules=[q_proj, lm_head]'
wrong 'set mesh.fsdp: 1' sft --nproc 2 run.yaml output_dir=x $lora mesh.fsdp=2
wrong 'model.new_tokens' sft run.yaml output_dir=x adapter.path=tied/final 'model.new_tokens=[<y>]'
wrong 'adapter.train_tokens' sft run.yaml output_dir=x adapter.path=tied/final 'adapter.train_tokens=[The]'
mv model/tokenizer.json tokenizer.json
wrong 'has no tokenizer.json to add tokens to' sft run.yaml output_dir=x
exit $bad
