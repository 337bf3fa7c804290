# What the tests of meshes share: models of three families, rows, and comparisons. Source it after common.sh.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OMP_NUM_THREADS=1

family() { # NAME JSON
  echo "$2" > config.json
  "$temper" init --config config.json --seed 3 --output "$1" > /dev/null || fail "init $1"
}
sizes='"vocab_size": 62, "hidden_size": 36, "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "eos_token_id": 2'
family qwen3 "{\"model_type\": \"qwen3\", $sizes, \"head_dim\": 10, \"tie_word_embeddings\": true}"
family llama "{\"model_type\": \"llama\", $sizes, \"head_dim\": 10, \"tie_word_embeddings\": false, \"attention_bias\": true, \"mlp_bias\": true}"
family gemma2 "{\"model_type\": \"gemma2\", $sizes, \"head_dim\": 10, \"sliding_window\": 6, \"query_pre_attn_scalar\": 10}"
family lfm2 "{\"model_type\": \"lfm2\", $sizes, \"head_dim\": 10, \"block_multiple_of\": 2, \"conv_bias\": true, \"layer_types\": [\"conv\", \"full_attention\"]}"
family qwen3_5_text "{\"model_type\": \"qwen3_5_text\", $sizes, \"head_dim\": 16, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 5, \"linear_value_head_dim\": 7}"

python3 - <<'P'
import json, random
random.seed(1)
ids = lambda n: [random.randrange(3, 62) for _ in range(n)]
with open("rows.jsonl", "w") as f:
    for i in range(24):
        n = random.randrange(3, 20)
        row = ids(n)
        f.write(json.dumps({"input_ids": row, "labels": [-100] * (n if i % 7 == 0 else n // 3) + row[n // 3:] * (i % 7 != 0)}) + "\n")
with open("pairs.jsonl", "w") as f:
    for i in range(16):
        f.write(json.dumps({"prompt_ids": ids(4 + i % 5), "chosen_ids": ids(3 + i % 4), "rejected_ids": ids(2 + i % 6)}) + "\n")
with open("prompts.jsonl", "w") as f:
    for i in range(8):
        f.write(json.dumps({"prompt_ids": ids(3 + i % 6), "target": i}) + "\n")
P

# run VERB OUT ARGUMENTS: several ranks where ARGUMENTS begin with --nproc N.
run() {
  local verb=$1 out=$2
  shift 2
  "$temper" "$verb" "$@" output_dir="$out" metrics.sinks=[jsonl] > "$out.log" 2>&1 || fail "$verb $out: $(tail -3 "$out.log")"
}
same() { python3 "$here/same_losses.py" "$1/metrics.jsonl" "$2/metrics.jsonl" "${@:3}" || fail "$2 differs from $1"; }
# The same files; of weights, their names, dtypes and shapes.
same_files() {
  diff <(cd "$1" && find . -type f ! -name '.lock' | sort) <(cd "$2" && find . -type f ! -name '.lock' | sort) || fail "files of $2"
  # A rollout batch is kept as text, whose length is in the header and depends on the numbers' last digits.
  for file in $(cd "$1" && find . -name '*.safetensors' ! -name task.safetensors); do
    cmp -s <(header "$1/$file") <(header "$2/$file") || fail "$2/$file has another header"
  done
}
header() { python3 -c 'import sys; f = open(sys.argv[1], "rb"); sys.stdout.buffer.write(f.read(int.from_bytes(f.read(8), "little")))' "$1"; }
meshes=${TEMPER_TEST_MESHES:-"2:2:1 2:1:2 4:2:2"}  # ranks:fsdp:tensor
families=${TEMPER_TEST_FAMILIES:-"qwen3 llama gemma2"}
