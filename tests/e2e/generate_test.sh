#!/usr/bin/env bash
# Sampling and judging from the command line: what changes a completion, what must not, and being stopped. $1: the
# program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
"$temper" demo --output d --sft-steps 30 --rl-steps 1 > log || { cat log; exit 1; }
model=d/warm-up/final
head -40 d/test.jsonl > rows.jsonl

# sample NAME FLAG...: completions of rows.jsonl into NAME.
sample() { "$temper" generate --model $model --input rows.jsonl --output "$1" --num-samples 2 --max-new-tokens 12 --ignore-eos "${@:2}" || fail "generate ${*:2}: $?"; }
texts() { grep -o '"text":"[^"]*"' "$1"; }
sample plain
[ "$(grep -c . plain)" = 80 ] || fail "not 80 completions"
for flags in '--max-batch 3' '--max-batch 1' '--cache-bytes 100000'; do
  sample same $flags
  cmp plain same || fail "$flags changed a completion"
done
OMP_NUM_THREADS=1 sample same
cmp plain same || fail "one thread changed a completion"
for flags in '--presence-penalty 1' '--frequency-penalty 1' '--logit-bias 3=4' '--no-repeat-ngram 2' '--stop-token-id 3' '--seed 4' '--temperature 0.5' '--repetition-penalty 1.5' '--top-k 3' '--top-p 0.5' '--min-p 0.2'; do
  sample other $flags
  cmp -s plain other && fail "$flags changed nothing"
done
sample greedy --temperature 0
sample greedy2 --temperature 0 --seed 9
cmp greedy greedy2 || fail "greedy depends on the seed"
[ "$(texts greedy | awk 'NR % 2' )" = "$(texts greedy | awk 'NR % 2 == 0')" ] || fail "two greedy samples of a row differ"

# A stop text ends the completion, is cut from the text and not from the tokens.
sample stopped --stop 1 --stop 23
texts stopped | grep -q '1\|23' && fail "a stop text is left"
grep -q '"finish_reason":"stop"' stopped || fail "nothing stopped"
paste -d'|' <(texts stopped) <(texts plain) | awk -F'|' '{ cut = substr($1, 1, length($1) - 1); if (index($2, cut) != 1) exit 1 }' || fail "--stop changed what comes before"

# A form that completions keep to: every one, batched or not; their log-probabilities are what score gives.
if "$temper" generate --model $model --prompt 1 --regex 1 2>&1 | grep 'not support grammars' > /dev/null; then
  echo "skipped: this build has no grammars"
else
  echo 'root ::= [1-3] ("+" [1-3])* "="' > sums.gbnf
  "$temper" generate --model $model --input rows.jsonl --output formed --grammar sums.gbnf --max-new-tokens 40 --num-samples 2 || fail "--grammar: $?"
  "$temper" generate --model $model --input rows.jsonl --output same --grammar sums.gbnf --max-new-tokens 40 --num-samples 2 --max-batch 1 || fail "--grammar: $?"
  cmp formed same || fail "--max-batch changed a completion of a grammar"
  grep '"finish_reason":"stop"' formed | sed 's/.*"text":"\([^"]*\)".*/\1/' | grep -vxqE '[1-3](\+[1-3])*=' && fail "a completion is not of the grammar"
  [ "$(grep -c '"finish_reason":"stop"' formed)" -gt 40 ] || fail "few completions of the grammar ended"
  sed 's/"tokens"/"completion_tokens"/' formed > formed.rows
  "$temper" score --model $model --input formed.rows --output formed.score || fail "score: $?"
  cmp <(grep -o '"logprobs":[^]]*' formed) <(grep -o '"logprobs":[^]]*' formed.score) || fail "score differs under a grammar"
fi
"$temper" generate --model $model --input rows.jsonl --output beams --beams 4 --num-samples 2 --max-new-tokens 12 || fail "--beams: $?"
[ "$(grep -c '"score":' beams)" = 80 ] || fail "not two beams a row"
sed 's/"tokens"/"completion_tokens"/' beams > beams.rows
"$temper" score --model $model --input beams.rows --output beams.score || fail "score: $?"
cmp <(grep -o '"logprobs":[^]]*' beams) <(grep -o '"logprobs":[^]]*' beams.score) || fail "score differs from beams"
"$temper" generate --model $model --prompt 1+1= --beams 2 > beam.text && [ "$(wc -l < beam.text)" = 1 ] || fail "--prompt --beams printed $(cat beam.text)"

# Where rows come from and go to: standard input and output, never over the input, a full disk in words.
"$temper" generate --model $model --input - --output - --num-samples 2 --max-new-tokens 12 --ignore-eos < rows.jsonl > piped || fail "-: $?"
cmp plain piped || fail "- gives something else"
"$temper" generate --model $model --input rows.jsonl --output /dev/full 2> full.log
[ $? = 1 ] && grep -q 'No space left' full.log || fail "a full disk: $(cat full.log)"
# So is standard output, of every verb that prints.
full() {
  "$temper" "$@" > /dev/full 2> full.log
  [ $? = 1 ] && grep -q 'standard output: cannot write all of what was printed: No space left' full.log && [ "$(wc -l < full.log)" = 1 ] || fail "temper $* on a full disk: $(cat full.log)"
}
full list algorithms
full --help
full --version
full sft --help
full completion bash
full generate --model $model --prompt 1+1= --max-new-tokens 3
full export --model $model --output exported-full
sed 's/"prompt"/"question"/' rows.jsonl > renamed.jsonl
"$temper" generate --model $model --input renamed.jsonl --columns prompt=question --output same --num-samples 2 --max-new-tokens 12 --ignore-eos || fail "--columns: $?"
cmp plain same || fail "--columns changed a completion"
sed 's/"prompt"/"question"/; s/"completion"/"reply"/' rows.jsonl > renamed.jsonl
"$temper" score --model $model --input renamed.jsonl --columns prompt=question completion=reply --output renamed.score || fail "score --columns: $?"
"$temper" score --model $model --input rows.jsonl --output rows.score || fail "score: $?"
cmp rows.score renamed.score || fail "score --columns changed a score"

# A prompt on the command line: its text, as it is sampled.
sum=$(head -1 rows.jsonl | sed 's/.*"prompt":"\([^"]*\)".*/\1/')
"$temper" generate --model $model --prompt "$sum" --prompt 1+1= --num-samples 2 --max-new-tokens 12 --ignore-eos > streamed || fail "--prompt: $?"
[ "$(head -2 streamed)" = "$(texts plain | head -2 | sed 's/"text":"//; s/"$//')" ] && [ "$(wc -l < streamed)" = 4 ] || fail "--prompt printed $(cat streamed)"
"$temper" generate --model $model --input rows.jsonl --output beyond --max-new-tokens 100 2>&1 | grep 'rows.jsonl:1: .*max_position_embeddings, 64; so are those of 39 more rows' > /dev/null || fail "no warning beyond max_position_embeddings"

# A chat: every line a message, every answer in a line; /reset begins anew.
cp -r $model talker
echo '{"eos_token": "<end>", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}' > talker/tokenizer_config.json
printf '%s\n' "$sum" /reset "$sum" "/system 1+" "$sum" "/system" "$sum" | "$temper" chat --model talker --temperature 0 --max-new-tokens 6 > chat || fail "chat: $?"
[ "$(wc -l < chat)" = 4 ] && [ "$(sed -n 1p chat)" = "$(sed -n 2p chat)" ] && [ "$(sed -n 1p chat)" = "$(sed -n 4p chat)" ] || fail "chat said $(cat chat)"
"$temper" generate --help | grep -A1 -e '--max-new-tokens' | grep -q 64 || fail "--help shows no default"

# Ctrl-C: exit status 130, what is whole is kept, nothing stands under the name.
for i in $(seq 3000); do echo '{"tokens": [1, 2, 3]}'; done > many.jsonl
"$temper" generate --model $model --input many.jsonl --output all.jsonl --max-new-tokens 2000 --ignore-eos --max-batch 64 2> stop.log &
process=$!
until [ -e all.jsonl.tmp-$process ]; do kill -0 $process || break; sleep 0.05; done
sleep 0.5
kill -INT $process
wait $process
[ $? = 130 ] || fail "an interrupted run did not say so by its status"
grep -q stopped stop.log || fail "an interrupted run said: $(cat stop.log)"
[ ! -e all.jsonl ] && [ -z "$(ls -- *.tmp* 2> /dev/null)" ] || fail "an interrupted run left $(ls)"

# So it is while a long prompt goes through the model, before there is any token.
python3 -c 'print("{\"tokens\": [" + ", ".join(str(3 + i % 9) for i in range(300000)) + "]}")' > long.jsonl
"$temper" generate --model $model --input long.jsonl --output all.jsonl --max-new-tokens 2 --cache-bytes 2000000000 2> stop.log &
process=$!
until [ -e all.jsonl.tmp-$process ]; do kill -0 $process || break; sleep 0.05; done
sleep 0.5
begin=$SECONDS
kill -TERM $process
wait $process
[ $? = 143 ] && grep -q stopped stop.log && [ $((SECONDS - begin)) -le 20 ] || fail "a long prompt that was interrupted: $((SECONDS - begin)) s, $(cat stop.log)"

# Judged by a program and by a built-in reward: the same verdicts.
cat > exact.sh <<'S'
while read -r line; do
  a=${line#*\"answer\":\"}; c=${line#*\"completion\":\"}
  [ "${a%%\"*}" = "${c%%\"*}" ] && echo 1 || echo 0
done
S
judge() { "$temper" eval --model $model --input rows.jsonl --num-samples 4 --max-new-tokens 6 --json "$@" || fail "eval $*: $?"; }
judge --reward exact > builtin.json
judge --reward-command sh exact.sh > program.json
judge --reward-command 'sh "exact.sh"' > quoted.json
cmp program.json quoted.json || fail "a command in quotes judged otherwise: $(cat quoted.json)"
cmp builtin.json program.json || fail "the program judged otherwise: $(cat builtin.json program.json)"
grep -q '"pass@4"' builtin.json || fail "no pass@4: $(cat builtin.json)"
# The completions as a rollouts file: its rewards are those of the summary; pairs and a run read it.
cat > ends.sh <<'S'
while read -r line; do c=${line#*\"completion\":\"}; c=${c%%\"*}; echo ${#c}; done
S
judge --reward-command sh ends.sh --output judged.jsonl > judged.json
python3 - <<'P' || fail "eval --output: $(head -c 600 judged.jsonl)"
import json
rows = [json.loads(line) for line in open("judged.jsonl")]
prompts = sum(1 for _ in open("rows.jsonl"))
assert [(row["group"], row["sample"]) for row in rows] == [(g, s) for g in range(prompts) for s in range(4)]
told = json.load(open("judged.json"))
assert abs(sum(row["reward"] for row in rows) / len(rows) - told["reward"]["mean"]) < 1e-9, told
for row in rows:
    assert list(row["rewards"].values()) == [row["reward"]]
    assert len(row["logprobs"]) == len(row["completion_tokens"]) > 0 and row["prompt_tokens"]
    assert row["finish_reason"] in ("stop", "length")
P
"$temper" data pairs --rollouts judged.jsonl --output best.jsonl > best.log 2>&1 && grep -q '"chosen_ids"' best.jsonl || fail "pairs of eval's completions: $(cat best.log)"
"$temper" grpo model.path=$model rl.replay=judged.jsonl rl.on_mismatch=stop rl.group_size=4 rl.prompts_per_rollout=2 train.max_steps=1 metrics.sinks=jsonl 'rewards=[{command: [sh, ends.sh]}]' output_dir=replayed > replayed.log 2>&1 || fail "replay of eval's completions: $(tail -3 replayed.log)"
for other in '--reward exact --output rows.jsonl' '--reward exact --output -' '--perplexity --output x'; do
  "$temper" eval --model $model --input rows.jsonl $other > /dev/null 2> refused.log
  [ $? = 2 ] && [ "$(wc -l < refused.log)" = 1 ] && grep -q -e --output -e rows.jsonl refused.log || fail "eval $other: $(cat refused.log)"
done

# wrong EXPECTED FLAG...: exit status 2 and one line with EXPECTED.
wrong() {
  local status=0 message
  message=$("$temper" generate --model $model --input rows.jsonl --output x "${@:2}" 2>&1) || status=$?
  [ $status = 2 ] && [ "$(wc -l <<< "$message")" = 1 ] && [[ $message == *"$1"* ]] || fail "${*:2}: status $status, $message"
  [ ! -e x ] || fail "${*:2} left a file"
}
wrong 'rollout.cache_bytes' --cache-bytes 1000 --max-new-tokens 12
wrong '--top-p' --top-p 0
wrong '--max-new-tokens' --max-new-tokens 99999999999
wrong 'expected at most the number of beams' --beams 2 --num-samples 3 --max-new-tokens 12
wrong 'beam search does not sample' --beams 2 --top-k 3 --max-new-tokens 12
wrong 'temperature does not apply, found 0.5' --beams 2 --temperature 0.5 --max-new-tokens 12
wrong '--length-penalty requires --beams' --length-penalty 2
wrong '--stop: found an empty text' --stop ''
[ ! -e sums.gbnf ] || wrong '--regex: ' --regex '(' --max-new-tokens 12
wrong '--json-schema: none.json' --json-schema none.json
wrong 'expected one of --json-schema, --regex and --grammar' --regex 1 --json-schema rows.jsonl
wrong '--logit-bias' --logit-bias x=1
wrong '--logit-bias.1: found `y`' --logit-bias 1=y
wrong 'logit_bias: found token 99' --logit-bias 99=1 --max-new-tokens 12
wrong 'stop_token_ids: found token 99' --stop-token-id 99 --max-new-tokens 12
wrong 'min_new_tokens: found 20' --min-new-tokens 20 --max-new-tokens 10
wrong 'found nan' --temperature nan
wrong 'found -1' --seed -1
wrong 'found 0' --num-samples 0
wrong 'expected integer >= 1 and <= 1e+06' --num-samples 99999999999999999999
wrong 'unknown flag `--sed`; did you mean `--seed`' --sed 1
wrong 'either --input or --prompt' --prompt 1+1=
# Messages and tools without a template: what is advised is what this command has.
echo '{"messages": [{"role": "user", "content": "1"}]}' > said.jsonl
echo '[{name: f, description: d, parameters: {type: object}, command: [cat]}]' > tools.yaml
advised() { grep -q -- "$1" err && grep -q 'chat_template.jinja' err && ! grep -q 'data.chat_template' err || fail "expected $1, as for generate: $(cat err)"; }
status=0; "$temper" generate --model $model --input said.jsonl --output x 2> err || status=$?
[ $status = 2 ] && advised 'messages need a chat template' || fail "messages without a template: $status"
status=0; "$temper" generate --model $model --tools tools.yaml --input rows.jsonl --output x --max-new-tokens 2 2> err || status=$?
[ $status = 2 ] && advised 'the chat template shows them' || fail "tools without a template: $status"
"$temper" generate --model talker --tools tools.yaml --input said.jsonl --output tools.out --max-new-tokens 2 2> err || fail "--tools: $?"
advised 'shows the model no tools'
grep -q '"reward' tools.out && fail "tools gave a reward: $(cat tools.out)"

# The reward of an episode is what its environment tells; the file's rewards are not applied.
cat > quiet.py <<'P'
import json, sys
for line in sys.stdin:
    kind = json.loads(line)["type"]
    if kind == "reset":
        print(json.dumps({"messages": []}), flush=True)
    elif kind == "step":
        print(json.dumps({"messages": [], "done": True, **({"reward": 0} if sys.argv[1:] else {})}), flush=True)
P
for told in '' ', told'; do
  echo "{environment: {command: [python3, quiet.py$told]}, rewards: [{name: exact}]}" > quiet.yaml
  "$temper" generate --model $model --environment quiet.yaml --input rows.jsonl --output quiet.out --max-new-tokens 4 || fail "--environment: $?"
  [ "$(grep -c '"reward":0.0,' quiet.out)" = $([ -n "$told" ] && echo 40 || echo 0) ] || fail "the reward of an environment: $(head -1 quiet.out)"
done

# A new model's tokenizer has to be there.
mkdir packed && gzip -c $model/tokenizer.json > packed/tokenizer.json.gz
status=0; message=$("$temper" init --config $model/config.json --tokenizer packed --output made 2>&1) || status=$?
[ $status = 2 ] && [[ $message == *'packed: found no tokenizer.json'* ]] && [ ! -e made ] || fail "init without a tokenizer: $status $message"

cp rows.jsonl before.jsonl
message=$("$temper" generate --model $model --input rows.jsonl --output ./rows.jsonl 2>&1)
[ $? = 2 ] && [[ $message == *'is the input'* ]] && cmp rows.jsonl before.jsonl || fail "the input as output: $message"
echo '{"tokens": [1, 99]}' > rows.jsonl
wrong 'rows.jsonl:1' --seed 1
exit $bad
