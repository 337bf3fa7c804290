#!/usr/bin/env bash
# What a user gets wrong: one message that names the place, and exit status 2. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
# expect STATUS 'part of the message' arguments...
expect() {
  local status=$1 part=$2 found=0
  shift 2
  timeout 60 "$temper" "$@" > out.txt 2> err.txt || found=$?
  if [ $found != "$status" ] || ! grep -qF -- "$part" err.txt || [ "$(wc -l < err.txt)" != 1 ]; then
    echo "FAILED: temper $*: status $found (expected $status), expected '$part', found:" >&2
    cat err.txt >&2
    bad=1
  fi
}
cat > config.json <<'J'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 31}
J
"$temper" init --config config.json --output model > /dev/null || exit 1
echo '{"input_ids": [1, 2, 3]}' > rows.jsonl
printf 'output_dir: run\nmodel: {path: model}\ndata: {train: rows.jsonl}\ntrain:\n  max_step: 3\n' > typo.yaml
printf 'output_dir: run\nmodel: {path: model}\ndata: {train: rows.jsonl}\noptimizer: {learning_rate: fast}\n' > type.yaml
printf 'output_dir: [run\n' > broken.yaml
printf '{"tokens": [1, 2]}\n{"tokens": [1, 99]}\n' > range.jsonl
head -1 range.jsonl > one.jsonl
for i in $(seq 1 20); do echo "{\"prompt_ids\": [$i, 3]}"; done > prompts.jsonl
printf '{"tokens": [1, 2]}\n\n{"tokens": \n' > cut.jsonl
printf '{"nothing": 1}\n' > fields.jsonl
ok="output_dir=run model.path=model data.train=rows.jsonl train.max_steps=1"

expect 2 'unknown verb `train`' train
expect 2 'did you mean `sft`?' stf
expect 2 'rows.jsonl: found a file of rows, expected a config file or dotted.key=value; write data.train=rows.jsonl' sft rows.jsonl
expect 2 '`no_cuda` is called model.device here; write model.device: cpu' sft $ok no_cuda=true
expect 2 '`deepspeed` is called mesh.fsdp here' sft $ok deepspeed=zero3.json
# Either build of LibTorch, with or without a driver; the tests run with no GPU visible.
no_gpu=$("$temper" doctor | sed -n 's/^gpu *none: //p')
case $no_gpu in
  'this build has no CUDA' | 'this machine has no NVIDIA driver (libcuda.so.1)' | *'libtorch_cuda.so does not load: '* | 'no CUDA device is visible') ;;
  *) echo "FAILED: doctor says of the GPU: $no_gpu" >&2; bad=1 ;;
esac
expect 2 "model.device: found cuda:1234; $no_gpu" sft $ok model.device=cuda:1234
expect 2 "--device: found cuda:1234; $no_gpu" chat --model model --device cuda:1234
TEMPER_BACKEND=nonsense expect 2 'the environment variable TEMPER_BACKEND: backend "nonsense"' generate --model model --input one.jsonl --output o
TEMPER_BACKEND=nonsense "$temper" generate --model model --input one.jsonl --output o --max-new-tokens 1 --backend native || { echo "FAILED: TEMPER_BACKEND is read where --backend says it" >&2; bad=1; }
TEMPER_BACKEND=nonsense expect 2 'the environment variable TEMPER_BACKEND: backend "nonsense"' doctor
grep -q '^backend .*TEMPER_BACKEND' out.txt && grep -q '^parquet' out.txt || { echo "FAILED: doctor: $(cat out.txt)" >&2; bad=1; }
rm -f o
expect 2 'output_dir: found model, the directory of model.path; expected another one' sft $ok output_dir=model
expect 2 'model/config.json: found a file, expected a model directory; give its directory, model' generate --model model/config.json --input one.jsonl --output o
expect 2 'model: not an adapter directory: it has no adapter_config.json; it is a model' generate --model model --adapter model --input one.jsonl --output o
"$temper" sft $ok output_dir=trained metrics.sinks=[jsonl] > /dev/null 2>&1 || { echo "FAILED: a run of one step" >&2; bad=1; }
expect 2 'trained: not a checkpoint: it has no state.json; the newest checkpoint of trained is trained/checkpoints/step-1' sft $ok output_dir=next resume=trained
expect 2 'http://h:1: no such model; expected a directory with config.json or a .gguf file; it is an address, and models are read from this machine: `temper fetch ORG/NAME`' sft $ok model.path=http://h:1
expect 2 'it is an address: `temper fetch a/b` downloads the model, which a/b then names' sft $ok model.path=https://huggingface.co/a/b/tree/main
expect 2 'http://h:1: no such adapter; expected a directory with adapter_config.json; it is an address' sft $ok adapter.path=http://h:1
expect 2 'distill.teacher: found http://h:1 as a path; the address of a server is a url: distill.teacher.url=http://h:1' distill $ok distill.teacher=http://h:1
expect 2 'did you mean `rollout.server.urls`?' grpo $ok rollout.server=http://h:1
expect 2 'judge.model: found http://h:1, expected a directory or id; the address of a server is judge.url' grpo $ok 'rewards={judge: {model: "http://h:1", prompt: "{completion}"}}'
expect 2 'nowhere: no such adapter; expected a directory with adapter_config.json' sft $ok adapter.path=nowhere
expect 2 'write --reward-command "python3 reward.py"' eval --model model --input one.jsonl --reward 'python3 reward.py'
expect 2 'write --reward-command "python3 reward.py"' eval --model model --input one.jsonl --reward reward.py
printf '[\n{"input_ids": [1, 2]}\n]\n' > list.jsonl
expect 2 'list.jsonl:1: found a list, expected a row, one JSON object a line' sft $ok data.train=list.jsonl
iconv -f UTF-8 -t UTF-16 rows.jsonl > utf16.jsonl
expect 2 'utf16.jsonl:1: the file is UTF-16, expected UTF-8' sft $ok data.train=utf16.jsonl
expect 2 'typo.yaml:5: unknown key `train.max_step`; did you mean `train.max_steps`' sft typo.yaml
expect 2 'type.yaml:4: optimizer.learning_rate' sft type.yaml
expect 2 'broken.yaml' sft broken.yaml
expect 2 'missing.yaml' sft missing.yaml
expect 2 'output_dir' sft model.path=model
expect 2 'train.max_steps=: found no value; write train.max_steps=null for none' sft $ok train.max_steps=
expect 2 'train.batch_size=: found no value; write train.batch_size=VALUE (integer >= 1)' sft $ok train.batch_size=
expect 2 '`train.max_steps`: a key without a value; write train.max_steps=VALUE' sft $ok train.max_steps
expect 2 'a shell understands such a line: [bash, -c,' grpo $ok data.train=prompts.jsonl 'rewards=[{command: ["cd x && python3 reward.py"]}]'
expect 2 'a program and its arguments are a list: [python3, reward.py]' grpo $ok 'rewards=[{command: python3 reward.py}]'
expect 2 'write rewards=[{command: [python3, reward.py]}]' grpo $ok rewards=reward.py
expect 2 'the command has `&&`, which only a shell understands' grpo $ok data.train=prompts.jsonl 'rewards=[{command: [cat, "&&", cat]}]'
expect 2 '`actor_rollout_ref.rollout.n` is called rl.group_size here' grpo $ok actor_rollout_ref.rollout.n=5
expect 2 'give its directory, model' sft $ok model.path=model/model.safetensors
expect 2 'expected one of models, algorithms, optimizers, servers, rewards' list mistral
expect 2 'did you mean `models`?' list model
: > none.jsonl
for verb in generate score; do expect 2 'none.jsonl: no rows' $verb --model model --input none.jsonl --output o; done
expect 2 'output_dir is required' sft
expect 2 'it is the key adapter.use_dora here' sft $ok adapter.method=dora
expect 2 'did you mean `qlora`?' sft $ok adapter.method=qlor
expect 2 'model.path is required' sft output_dir=run
expect 2 'data.train is required' sft output_dir=run
expect 2 'data.train is required' sft output_dir=run model.path=model
expect 2 'nowhere: no such model' sft $ok model.path=nowhere
expect 2 'gone.jsonl: cannot open' sft $ok data.train=gone.jsonl
expect 2 'fields.jsonl:1: the row has [nothing]' sft $ok data.train=fields.jsonl
expect 2 'found 0, expected integer >= 1' sft $ok train.batch_size=0
expect 2 'names no linear layer; there are' sft $ok adapter.method=lora adapter.target_modules=[wq]
expect 2 'unknown metrics sink `orbit`' sft $ok metrics.sinks=[orbit]
expect 2 'train.eval_every: there is neither data.eval nor data.validation_fraction to evaluate on' sft $ok train.eval_every=1
expect 2 'every row is left out: it is longer than data.max_length' sft output_dir=dropped model.path=model data.train=rows.jsonl data.overlong=drop data.max_length=2
expect 2 'fields.jsonl:1: the row has [nothing]' sft $ok data.eval=fields.jsonl train.eval_every=1
expect 1 'rewards failed on all completions of 3 rollouts in a row (the first failure: cat: cat answered ' \
  grpo output_dir=failing model.path=model data.train=prompts.jsonl 'rewards=[{command: [cat], on_failure: drop}]' \
  rl.prompts_per_rollout=4 rollout.max_new_tokens=2 metrics.sinks=[jsonl]
expect 1 'status 7: two; its standard error before that: | one (its on_failure is stop)' grpo output_dir=stopping model.path=model data.train=prompts.jsonl \
  'rewards=[{command: [sh, -c, "echo one >&2; echo two >&2; exit 7"], on_failure: stop}]' rollout.max_new_tokens=2 metrics.sinks=[jsonl]
expect 2 "not one YAML value; text that YAML would read otherwise must be quoted: train.max_steps='\"[0-9]{2}\"'" sft $ok 'train.max_steps=[0-9]{2}'
expect 2 'it belongs to `temper grpo`' ppo $ok data.train=prompts.jsonl rl.scale_rewards=false
expect 2 '--nproc: found `two`' sft --nproc two $ok
expect 2 'range.jsonl:2: `tokens` holds 99; ids of this model are 0 to 30' score --model model --input range.jsonl --output o
expect 2 'cut.jsonl:3: not valid JSON' score --model model --input cut.jsonl --output o
expect 2 'fields.jsonl:1: the row has [nothing]; expected `tokens`' generate --model model --input fields.jsonl --output o
expect 2 '--model is required' score --input range.jsonl --output o
expect 2 'model/config.json/x: no such model' score --model model/config.json/x --input range.jsonl --output o
expect 2 'holds a model already' init --config config.json --output model
echo '{"model_type": "mamba"}' > mamba.json
expect 2 'unknown model family `mamba`; expected one of cohere2, deepseek_v3, exaone4, gemma, ' init --config mamba.json --output other
expect 2 'CONTRIBUTING.md says how to add a family' init --config mamba.json --output other
mkdir empty && cp model/config.json empty/
expect 2 'empty: no weights' score --model empty --input range.jsonl --output o
cp -r model short && head -c 900 model/model.safetensors > short/model.safetensors
expect 2 'short/model.safetensors' score --model short --input range.jsonl --output o
cp -r model wide && sed -i 's/"hidden_size": 16/"hidden_size": 32/' wide/config.json
expect 2 'wrong shapes' score --model wide --input range.jsonl --output o
# The last number of the last weight is none.
cp -r model nan && printf '\377\377\377\377' | dd of=nan/model.safetensors bs=1 conv=notrunc status=none seek=$(($(stat -c %s nan/model.safetensors) - 4))
expect 1 'step 1: the loss is nan' sft $ok model.path=nan
for temperature in 0 1; do expect 1 'not finite' generate --model nan --input one.jsonl --output o --top-k 3 --temperature $temperature; done
expect 1 'not finite' score --model nan --input one.jsonl --output o
[ -e o ] && { echo "FAILED: a failed run left its output" >&2; bad=1; }
exit $bad
