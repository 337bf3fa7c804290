#!/usr/bin/env bash
# Rows with images from the command line: what training counts, what check finds, what the tools for rows make of their
# paths, and whether a picture is the one that a run read. $1: the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
golden=$(cd "$(dirname "$0")/../golden" && pwd)

mkdir -p model data/pictures
cp "$golden"/vision/qwen3_vl/{config.json,model.safetensors} model
echo '{"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 4096}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}' > model/preprocessor_config.json
cp "$golden"/images/files/{grey.png,rgb.png} data/pictures  # 30 x 20: 4 x 2 tokens
head -c 300 data/pictures/grey.png > data/pictures/cut.png
pads=7,7,7,7,7,7,7,7
row() { echo "{\"input_ids\": [8, $pads, 9, $1, 5], \"labels\": [-100, ${pads//7/-100}, -100, $1, 5], \"images\": [\"$2\"]}"; }
for i in $(seq 4); do row $((10 + i)) pictures/grey.png; row $((10 + i)) pictures/rgb.png; done > data/rows.jsonl
common='model.path=model metrics.sinks=jsonl optimizer.learning_rate=1e-3'
sft="sft $common data.train=data/rows.jsonl train.batch_size=4 train.max_steps=4 train.save_every=2"
says() { grep -qF -- "$1" last.log || fail "expected \`$1\`: $(cat last.log)"; }
# wrong WORDS COMMAND..: ends with 2 and one line.
wrong() {
  local words=$1
  shift
  "$temper" "$@" > last.log 2>&1
  [ $? = 2 ] || fail "$*: not refused: $(cat last.log)"
  says "$words"
}

# Metrics.
"$temper" $sft output_dir=run > last.log 2>&1 || fail "sft: $(cat last.log)"
[ "$(value run/metrics.jsonl images | sort -u)" = 4 ] || fail "images: $(cat run/metrics.jsonl)"
[ "$(value run/metrics.jsonl image_tokens | sort -u)" = 32 ] || fail "image tokens: $(cat run/metrics.jsonl)"
echo "{\"prompt_ids\": [8, $pads, 9], \"chosen_ids\": [11, 5], \"rejected_ids\": [12, 5], \"images\": [\"pictures/grey.png\"]}" > data/pairs.jsonl
"$temper" dpo $common data.train=data/pairs.jsonl train.batch_size=1 train.max_steps=1 output_dir=dpo > last.log 2>&1 || fail "dpo: $(cat last.log)"
[ "$(value dpo/metrics.jsonl image_tokens)" = 8 ] || fail "a pair's images: $(cat dpo/metrics.jsonl)"

# Checks: counts, a row with its picture, a broken picture by its row.
"$temper" check $sft output_dir=new --show 2 > last.log 2>&1 || fail "check: $(cat last.log)"
says '8 images (2 different), 64 tokens'
says '[image 30 x 20: 8 tokens]'
says 'no row repeats another'
"$temper" check $sft output_dir=new --show 2 --json | grep -q '"images":\[{"begin":1,"tokens":8,"width":30,"height":20}\]' || fail 'check --json'
{ cat data/rows.jsonl; row 10 pictures/cut.png; } > data/cut.jsonl
"$temper" check sft $common data.train=data/cut.jsonl output_dir=new > last.log 2>&1 && fail 'a broken picture passed'
says 'data/cut.jsonl:9: image 1: data/pictures/cut.png: '
wrong 'data/cut.jsonl:9: image 1: data/pictures/cut.png: ' sft $common data.train=data/cut.jsonl data.shuffle=false train.batch_size=9 train.max_steps=1 output_dir=cut

# Tools: equal rows by their pictures, words beside other pictures are others, paths from another directory.
"$temper" data stats data/rows.jsonl > last.log 2>&1 || fail "stats: $(cat last.log)"
says '8 images in 8 rows, 2 different'
mkdir -p out/deep copy/pictures
cp data/pictures/grey.png copy/pictures/other.png
row 11 pictures/other.png > copy/rows.jsonl
"$temper" data dedup data/rows.jsonl copy/rows.jsonl --near 0.9 --output out/deep/rows.jsonl --json > last.log 2>&1 || fail "dedup: $(cat last.log)"
says '"exact": 1'
grep -qF '"../../data/pictures/grey.png"' out/deep/rows.jsonl || fail "paths: $(cat out/deep/rows.jsonl)"
"$temper" data stats out/deep/rows.jsonl > last.log 2>&1
says '2 different'
grep -q 'cannot be read' last.log && fail "the copied rows lost their pictures: $(cat last.log)"
"$temper" data split data/rows.jsonl --output-dir out/parts --fractions train=0.5,test=0.5 > last.log 2>&1 || fail "split: $(cat last.log)"
"$temper" data stats out/parts/train.jsonl out/parts/test.jsonl > last.log 2>&1
grep -q 'cannot be read' last.log && fail "split: $(cat last.log)"
"$temper" data convert data/rows.jsonl --output out/rows.json > last.log 2>&1 || fail "convert: $(cat last.log)"
grep -qF '"../data/pictures/rgb.png"' out/rows.json || fail "convert: $(cat out/rows.json)"

# The manifest: each picture once, and a changed one is named with its step.
[ "$(grep -o '"images": {[^}]*}' run/manifest.jsonl | grep -o '[a-z]*\.png' | sort | tr '\n' ' ')" = 'grey.png rgb.png ' ] || fail "manifest: $(cat run/manifest.jsonl)"
"$temper" verify run > last.log 2>&1 || fail "verify: $(cat last.log)"
cp data/pictures/rgb.png data/pictures/grey.png
"$temper" verify run > last.log 2>&1
[ $? = 1 ] || fail "a changed picture: $(cat last.log)"
says 'data/pictures/grey.png: its SHA-256 is'
says 'run/manifest.jsonl:2: step 1'
rm data/pictures/grey.png
"$temper" verify run > last.log 2>&1
says 'data/pictures/grey.png: the image is not there'
exit $bad
