#!/usr/bin/env bash
# What a prompt is and what a reward model reads: a conversation that ends with its answer is a prompt without it for
# every verb that samples, and a reward model gives a completion of a chat the number that `eval --pairs` gives it. $1:
# the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
even_reward
# model_with TEMPLATE END: model/ writes that template and ends its turns with END; with bias.yaml it says "a", "b" or
# "c" and END.
model_with() {
  python3 - "$TEMPER_SOURCE_DIR" "$@" <<'P' || exit 1
import json, sys
golden, template, end = sys.argv[1] + "/tests/golden/", *sys.argv[2:]
tokenizer = json.load(open(golden + "tokenizers/qwen2.json"))["tokenizer"]
tokenizer["post_processor"] = None
size = 1 + max([*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])])
ids = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
for text in ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]:
    if text not in ids:
        ids[text] = size
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "content": text, "id": size, "special": True})
        size += 1
json.dump(tokenizer, open("tokenizer.json", "w"))
json.dump({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": size, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
           "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True, "eos_token_id": [ids["<|endoftext|>"], ids[end]]},
          open("config.json", "w"))
json.dump({"eos_token": end, "chat_template": open(f"{golden}templates/{template}.jinja").read()}, open("tokenizer_config.json", "w"))
bias = {str(tokenizer["model"]["vocab"][c]): 60 for c in "abc"} | {str(ids[end]): 60}
json.dump({"rollout": {"logit_bias": bias, "max_new_tokens": 2}}, open("bias.yaml", "w"))
P
  rm -rf model
  "$temper" init --config config.json --seed 3 --output model > /dev/null || fail "init: $?"
  cp tokenizer.json tokenizer_config.json model
}
run() { "$temper" "$@" metrics.sinks=[jsonl] > log 2>&1 || fail "$*: $(tail -3 log)"; }

# A reward model, trained on chats and used on them. (Qwen 3's template writes the thoughts of an answer that has none,
# and so does its generation prompt where thinking is off: the row's answer is then what is sampled.)
python3 - <<'P'
import json
say = lambda role, text: [{"role": role, "content": text}]
with open("pairs.jsonl", "w") as rows:
    for i in range(4):
        print(json.dumps({"prompt": say("user", f"q{i}"), "chosen": say("assistant", "a"), "rejected": say("assistant", "b")}), file=rows)
P
for family in "chatml <|im_end|>" "qwen3 <|im_end|>" "llama31 <|eot_id|>"; do
  set -- $family
  model_with "$1" "$2"
  common="model.path=model data.train=pairs.jsonl data.shuffle=false data.template_variables={enable_thinking:\ false}"
  eval "run reward $common train.max_steps=2 train.batch_size=4 optimizer.learning_rate=1e-2 output_dir=rm"
  eval "run grpo bias.yaml $common train.max_steps=1 rl.prompts_per_rollout=4 rl.beta=0 'rewards=[{model: rm/final}]' output_dir=rl"
  # pair-N.jsonl: the N-th completion that ended by itself, as a side; reward-N: what it was worth.
  python3 <<'P' || fail "$1: no completion ended by itself: $(head -2 rl/rollouts/step-1.jsonl)"
import json
prompts = [json.loads(line)["prompt"] for line in open("pairs.jsonl")]
rows = [json.loads(line) for line in open("rl/rollouts/step-1.jsonl")]
rows = [r for r in rows if r["finish_reason"] == "stop" and len(r["completion_tokens"]) == 2]
say = lambda text: [{"role": "assistant", "content": text}]
for n, r in enumerate(rows[:3]):
    json.dump({"prompt": prompts[r["group"]], "chosen": say(r["text"]), "rejected": say("other")}, open(f"pair-{n}.jsonl", "w"))
    json.dump(r["reward"], open(f"reward-{n}", "w"))
assert len(rows) >= 3
P
  for n in 0 1 2; do
    "$temper" eval --model rm/final --input pair-$n.jsonl --pairs --json > score 2> log || fail "$1: eval --pairs: $(cat log)"
    python3 -c "import json, sys; a, b = json.load(open('reward-$n')), json.load(open('score'))['chosen']['mean']; sys.exit(abs(a - b) > 1e-6 * max(1, abs(b)))" ||
      fail "$1: the reward $(cat reward-$n) of a completion, its score $(cat score)"
  done
  rm -rf rm rl pair-* reward-*
done

# A conversation with its answer is the prompt that it is without, for every verb and in every format.
model_with chatml '<|im_end|>'
python3 - <<'P'
import json
say = lambda role, text: {"role": role, "content": text}
asked = [say("user", "1+1"), say("assistant", "2"), say("user", "2+2")]
answer = say("assistant", "4")
from_ = lambda ms: [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]} for m in ms]
rows = {"asked": {"messages": asked}, "messages": {"messages": [*asked, answer]}, "prompt": {"prompt": [*asked, answer]},
        "sharegpt": {"conversations": from_([*asked, answer])}, "alpaca": {"history": [["1+1", "2"]], "instruction": "2+2", "output": "4"}}
for name, row in rows.items():
    json.dump(row, open(name + ".jsonl", "w"))
P
prompt() { tr -d ' ' < "$1" | grep -o '"prompt_tokens":\[[0-9,]*\]' | head -1; }
for rows in asked messages prompt sharegpt alpaca; do
  common="model.path=model data.train=$rows.jsonl train.max_steps=1"
  for verb in grpo ppo; do
    run $verb bias.yaml $common rl.prompts_per_rollout=1 rl.group_size=2 'rewards=[{name: even, command: [sh, even.sh]}]' output_dir=$rows-$verb
    [ -n "$(prompt asked-$verb/rollouts/step-1.jsonl)" ] && [ "$(prompt $rows-$verb/rollouts/step-1.jsonl)" = "$(prompt asked-$verb/rollouts/step-1.jsonl)" ] ||
      fail "$verb samples behind the answer of $rows"
  done
  run distill bias.yaml $common distill.teacher=model distill.strategy=on_policy train.batch_size=1 output_dir=$rows-distill
  count() { grep -o '"tokens": *[0-9][0-9]*' "$1-distill/metrics.jsonl"; }
  [ -n "$(count asked)" ] && [ "$(count $rows)" = "$(count asked)" ] || fail "distill samples behind the answer of $rows"
  "$temper" generate --model model --input $rows.jsonl --output $rows-out.jsonl --max-new-tokens 2 2> log || fail "generate $rows: $(cat log)"
  [ -n "$(prompt asked-out.jsonl)" ] && [ "$(prompt $rows-out.jsonl)" = "$(prompt asked-out.jsonl)" ] || fail "generate samples behind the answer of $rows"
  # The reward command sees the tokens of the prompt.
  "$temper" eval --model model --input $rows.jsonl --reward-command "sh -c 'while read -r l; do echo \"\$l\" >> $rows-seen; echo 1; done'" --max-new-tokens 2 > log 2>&1 || fail "eval $rows: $(cat log)"
  [ -n "$(prompt asked-seen)" ] && [ "$(prompt $rows-seen)" = "$(prompt asked-seen)" ] || fail "eval samples behind the answer of $rows"
done
exit $bad
