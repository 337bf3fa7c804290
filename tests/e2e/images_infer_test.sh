#!/usr/bin/env bash
# Images in the verbs that sample and score: score repeats generate's log-probabilities, whatever is in the batch;
# placeholders are never sampled; what is wrong with an image is one line. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
python3 "$(dirname "$0")/images_make.py" "$TEMPER_SOURCE_DIR" || exit 1
logprobs() { grep -o '"logprobs":[^]]*' "$1"; }
generate() { "$temper" generate --model "$1" --input "$2" --output "$3" --ignore-eos --max-new-tokens ${length:-8} "${@:4}" || fail "generate $*: $?"; }
score() { "$temper" score --model "$1" --input "$2" --output "$3" "${@:4}" || fail "score $*: $?"; }
# refused TEXT COMMAND...: exit 2, and one line that has the text.
refused() {
  local text=$1
  shift
  "$@" > refused.out 2> refused.log
  [ $? = 2 ] && [ "$(grep -c . refused.log)" = 1 ] && grep -qF "$text" refused.log || fail "$*: expected one line with '$text': $(cat refused.log)"
}
# placeholders MODEL IMAGE: how many image tokens the model gives it, from what the error says.
placeholders() {
  echo "{\"tokens\":[1,7,2],\"images\":[\"$2\"]}" > one.jsonl
  "$temper" score --model "$1" --input one.jsonl --output - 2>&1 | grep -o 'expected [0-9]* for' | grep -o '[0-9]*'
}
sevens() { printf ',7%.0s' $(seq "$1"); }

small_model
mv model blind
for model in qwen3_5 qwen2_5_vl gemma3 lfm2_vl smolvlm text; do
  a=$(placeholders $model a.png) b=$(placeholders $model b.png)
  [ -n "$a" ] && [ -n "$b" ] || { fail "$model: no number of placeholders"; continue; }
  cat > rows.jsonl <<J
{"tokens":[1,2$(sevens $a),3,4],"images":["a.png"]}
{"tokens":[1,2$(sevens $b),3,4,5],"images":["sub/b.png"]}
{"prompt_tokens":[1,2$(sevens $b),3$(sevens $a),6],"images":["b.png","$(cat uri)"]}
{"tokens":[1,2,3,4]}
J
  [ $model = gemma3 ] || [ $model = smolvlm ] || [ $a != $b ] || fail "$model: both images have $a tokens"
  generate $model rows.jsonl plain --num-samples 3 --temperature 1.4
  [ "$(grep -c . plain)" = 12 ] || fail "$model: not 12 completions"
  for flags in '--max-batch 1' '--max-batch 5 --speculative off'; do
    generate $model rows.jsonl same --num-samples 3 --temperature 1.4 $flags
    cmp plain same || fail "$model: $flags changed a completion"
  done
  OMP_NUM_THREADS=1 generate $model rows.jsonl same --num-samples 3 --temperature 1.4
  cmp plain same || fail "$model: one thread changed a completion"
  for flags in '' '--max-batch 1' '--max-batch 3'; do
    score $model plain scored --temperature 1.4 $flags
    cmp <(logprobs plain) <(logprobs scored) || fail "$model: score $flags is not what generate wrote"
  done
  length=6 generate $model rows.jsonl beams --beams 2
  score $model beams scored
  cmp <(logprobs beams) <(logprobs scored) || fail "$model: score is not what the beams have"
  python3 - <<'P' || fail "$model: a placeholder was sampled"
import json
for line in list(open("plain")) + list(open("beams")):
    assert 7 not in json.loads(line)["tokens"], line
P
  # Another picture of the same size gives other numbers.
  head -1 rows.jsonl > first.jsonl
  sed 's/a.png/a2.png/' first.jsonl > second.jsonl
  generate $model first.jsonl first
  generate $model second.jsonl second
  cmp -s <(logprobs first) <(logprobs second) && fail "$model: the picture changes nothing"
done

# Conversations: a template's placeholders become the image's tokens.
cat > talk.jsonl <<'J'
{"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"how many?"}]}],"images":["b.png"]}
{"messages":[{"role":"user","content":"how many?"}],"image":"a.png"}
{"prompt":[{"role":"user","content":[{"type":"text","text":"how "},{"type":"image_url","image_url":{"url":"b.png"}},{"type":"text","text":"many?"}]}]}
{"prompt":"see <|image_pad|>?","images":["a.png"]}
J
generate text talk.jsonl talk --temperature 0
score text talk scored
cmp <(logprobs talk) <(logprobs scored) || fail "score is not what generate wrote of conversations"
cat > said.jsonl <<'J'
{"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"how many?"}]},{"role":"assistant","content":"three"},{"role":"user","content":"sure?"},{"role":"assistant","content":"two"}],"images":["b.png"]}
J
score text said.jsonl said
"$temper" eval --model text --input said.jsonl --perplexity --json > nll || fail "eval --perplexity: $?"
cat > pairs.jsonl <<'J'
{"prompt":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"how many?"}]}],"chosen":[{"role":"assistant","content":"three"}],"rejected":[{"role":"assistant","content":"two"}],"images":["b.png"]}
J
"$temper" eval --model text --input pairs.jsonl --pairs --json > pairs || fail "eval --pairs: $?"
python3 - <<'P' || fail "the scores of a conversation"
import json
talk, said = json.loads(open("talk").readline()), json.loads(open("said").readline())
nll, pairs = json.load(open("nll")), json.load(open("pairs"))
mean = sum(said["logprobs"]) / len(said["logprobs"])
assert len(said["tokens"]) == nll["tokens"] and abs(mean + nll["nll"]) < 1e-6, (mean, nll)
# The first answer: what the generation prompt is followed by.
end = said["tokens"].index(2)
first = said["tokens"][:end + 2]
row = {"prompt_tokens": talk["prompt_tokens"], "completion_tokens": first, "images": ["b.png"]}
open("first.jsonl", "w").write(json.dumps(row))
json.dump(said["logprobs"][:end + 2], open("expected.json", "w"))
first = said["logprobs"][:end + 2]
assert abs(sum(first) / len(first) - pairs["chosen"]["mean"]) < 1e-6, pairs
P
score text first.jsonl first
python3 -c '
import json
assert json.load(open("first"))["logprobs"] == json.load(open("expected.json"))' || fail "the words of messages have other scores than as a completion"
# A server answers as generate does, and strangers' images cannot end it.
"$temper" serve --model text --port 0 --max-image-pixels 20000 --max-image-bytes 100000 > serve.log 2> serve.err & server=$!
address_of serve.log $server || fail "serve: $(cat serve.err)"
python3 "$(dirname "$0")/images_client.py" $address || fail "serve"
kill $server
wait $server || fail "serve ended with $?"

even_reward
for flags in '' '--max-batch 1'; do
  "$temper" eval --model text --input talk.jsonl --reward-command "sh even.sh" --num-samples 3 --max-new-tokens 6 --json $flags > "judged$flags" || fail "eval $flags: $?"
done
cmp judged 'judged--max-batch 1' || fail "--max-batch changes an evaluation"

printf '/image b.png\nhow many?\n/reset\n/image a.png\nhow many?\n' | "$temper" chat --model text --temperature 0 --max-new-tokens 8 --ignore-eos > chat 2> chat.log || fail "chat: $? $(cat chat.log)"
python3 - <<'P' || fail "chat: $(cat chat)"
import json
texts = [json.loads(line)["text"] + "\n" for line in open("talk")][:2]
assert open("chat").read() == "".join(texts), texts
P
echo '/image none.png' > no.image
refused "standard input, line 1: /image: none.png: no such file (working directory: $PWD)" "$temper" chat --model text < no.image
echo '/image' > no.image
refused 'standard input, line 1: /image: found no path, expected one, as in /image picture.png' "$temper" chat --model text < no.image
printf '/image a.png\nhow many?\n/image b.png\n' > no.image
refused 'standard input, line 3: /image: no message follows b.png, so nothing was asked about it; write one on the next line' "$temper" chat --model text --max-new-tokens 2 < no.image
[ -s refused.out ] || fail "no answer before an image without a message"

# Runs of other image sizes share a base and its tower: each trains on the features of its own pixels.
echo '{"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":"how many?"}]},{"role":"assistant","content":"a few"}],"images":["sub/b.png"]}' > sizes.jsonl
sizes="sft model.path=text data.train=sizes.jsonl train.batch_size=1 train.max_steps=2 metrics.sinks=jsonl optimizer.learning_rate=1e-3 adapter.method=lora adapter.rank=2"
"$temper" sweep $sizes output_dir=sizes --over data.max_image_pixels=64,400 > sizes.log 2>&1 || fail "sweep: $(cat sizes.log)"
grep -q '2 runs share a base' sizes.log || fail "no base is shared: $(cat sizes.log)"
for most in 64 400; do
  "$temper" $sizes output_dir=size-$most data.max_image_pixels=$most > size.log 2>&1 || fail "images of $most pixels: $(cat size.log)"
  cmp size-$most/final/adapter_model.safetensors sizes/max_image_pixels=$most/final/adapter_model.safetensors || fail "images of $most pixels: other weights"
done
! cmp -s size-64/final/adapter_model.safetensors size-400/final/adapter_model.safetensors || fail "image sizes change nothing"
# Evaluations by rewards sample prompts with images, whatever shares the work; another picture has other completions.
cat > sum.sh <<'S'
while read -r line; do c=${line#*\"completion_tokens\":}; echo "${c%%]*}" | cksum | cut -d" " -f1; done
S
evaluated() { # NAME ARGUMENT..
  "$temper" ${sizes/max_steps=2/max_steps=1} data.eval=$1.jsonl train.eval_every=1 'train.eval_rewards=[{name: sum, command: [sh, sum.sh]}]' train.eval_completions=4 rollout.max_new_tokens=8 optimizer.learning_rate=0 \
    output_dir="evaluated-$*" "${@:2}" > evaluated.log 2>&1 || fail "eval_rewards $*: $(cat evaluated.log)"
  value "evaluated-$*/metrics.jsonl" eval/reward_mean
}
sed 's#sub/b.png#large.png#' sizes.jsonl > larger.jsonl
cat sizes.jsonl larger.jsonl > both.jsonl
one=$(evaluated both) two=$(evaluated both --nproc 2)
[ -n "$one" ] && [ "$one" = "$two" ] || fail "an evaluation on two ranks: $one, $two"
[ "$(evaluated sizes)" != "$(evaluated larger)" ] || fail "an evaluation does not see its images"

# What is wrong.
user='{"role":"user","content":[{"type":"image"},{"type":"text","text":"how many?"}]}'
# wrong TEXT ROW [MODEL]: refused by both verbs.
wrong() {
  echo "$2" > wrong.jsonl
  refused "$1" "$temper" generate --model "${3:-text}" --input wrong.jsonl --output out
  sed -i 's/"prompt":"[^"]*"/&,"completion":"a"/' wrong.jsonl
  refused "$1" "$temper" score --model "${3:-text}" --input wrong.jsonl --output out
}
wrong 'no such file' "{\"messages\":[$user],\"images\":[\"none.png\"]}"
wrong 'addresses are not read' "{\"messages\":[$user],\"images\":[\"http://x/y.png\"]}"
wrong 'fewer than image parts' "{\"messages\":[$user]}"
wrong 'image' "{\"messages\":[$user],\"images\":[\"a.png\",\"b.png\"]}"
wrong 'image 1' "{\"messages\":[$user],\"images\":[\"cut.png\"]}"
wrong 'not a JPEG, PNG or WebP' "{\"messages\":[$user],\"images\":[\"not.png\"]}"
wrong '200 times' "{\"messages\":[$user],\"images\":[\"wide.png\"]}"
wrong 'expected 0 for 0 images' '{"tokens":[1,7,7,2]}'
wrong 'image tokens' '{"tokens":[1,7,7,2],"images":["a.png"]}'
wrong 'image tokens' '{"prompt":"a <|image_pad|> b"}'
wrong 'does not see' '{"tokens":[1,3,2],"images":["a.png"]}' blind
exit $bad
