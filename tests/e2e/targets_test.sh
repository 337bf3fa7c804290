#!/usr/bin/env bash
# Runs give the same bits under every set of vector instructions, whatever LibTorch and the C library were built for
# (tools/record_runs.py; some runs of it, the others by hand). $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
# A prompt that samples share, over the ends of pages; functions and sums of every loss; schedules; sampling.
runs="sft-cosine sft-lora sft-biased sft-polynomial sft-net sft-experts grpo-twice gspo-twice-bfloat16 dpo-sigmoid dpo-robust dpo-kto dpo-sinks orpo reward \
  distill-jsd distill-attention_transfer gspo-correction ppo generate-net score sft-exact-gelu"
python3 "$TEMPER_SOURCE_DIR/tools/record_runs.py" --temper "$temper" --targets --only $runs > targets.log 2>&1 ||
  fail "$(grep -v ' values, ' targets.log)"

# Another target than the machine's is an error that names those that it has; `doctor` says what is used.
status=0
TEMPER_SIMD=sse9 "$temper" list losses > out.txt 2> err.txt || status=$?
[ $status = 2 ] && [ "$(wc -l < err.txt)" = 1 ] && grep -q 'TEMPER_SIMD: found `sse9`, expected ' err.txt || fail "TEMPER_SIMD=sse9: status $status: $(cat err.txt)"
targets=$(grep -oE '\<(avx2|avx512|neon)\>' err.txt)
for target in $targets; do
  TEMPER_SIMD=$target "$temper" list losses > out.txt || fail "TEMPER_SIMD=$target: status $?"
done
if [ "$(wc -w <<< "$targets")" -gt 1 ]; then
  target=$(head -1 <<< "$targets")
  grep -q "^with TEMPER_SIMD=$target:" targets.log || fail "$target was not compared: $(grep ^with targets.log)"
  TEMPER_SIMD=$target "$temper" doctor > out.txt || fail "doctor: status $?"
  grep -iq "^simd *$target, .*(TEMPER_SIMD=$target)" out.txt || fail "doctor does not name $target: $(grep ^simd out.txt)"
fi
exit $bad
