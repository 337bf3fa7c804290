#!/bin/bash
# temper fetch: from a hub on the loopback into a cache as huggingface_hub lays it out.
source "$(dirname "$0")/common.sh"

# expect STATUS TEXT ARGUMENTS...: the exit status of temper fetch, and a part of what it says.
expect() {
  local status=$1 text=$2 found
  shift 2
  said=$("$temper" fetch "$@" 2>&1)
  found=$?
  [ $found = "$status" ] || fail "fetch $*: exit status $found, expected $status: $said"
  case $said in *"$text"*) ;; *) fail "fetch $*: '$text' is not in: $said" ;; esac
}

python3 "$(dirname "$0")/hub_stand_in.py" log > port & hub=$!
trap 'kill $hub; rm -rf "$dir"' EXIT
comes_true test -s port
read -r port storage < port
export HF_ENDPOINT=http://127.0.0.1:$port HF_HOME=$PWD/home HF_TOKEN=hf_secret
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
commit=0123456789abcdef0123456789abcdef01234567
cache=$PWD/home/hub
model=$cache/models--org--tiny

expect 0 "$model/snapshots/$commit" org/tiny
[ "$(cat $model/refs/main)" = $commit ] || fail "refs/main"
sha1=$(printf 'blob 24\0{"model_type": "llama"}\n' | sha1sum | cut -d' ' -f1)
[ "$(readlink $model/snapshots/$commit/config.json)" = ../../blobs/$sha1 ] || fail "config.json is not a link to its blob"
blob=$(sha256sum < $model/snapshots/$commit/model.safetensors | cut -d' ' -f1)
[ "$(readlink $model/snapshots/$commit/model.safetensors)" = ../../blobs/$blob ] || fail "model.safetensors is not a link to its blob"
[ "$(cat $model/snapshots/$commit/onnx/deep/model.onnx)" = deep ] || fail "a file in a folder"
[ -f $model/snapshots/$commit/empty ] && ! [ -s $model/snapshots/$commit/empty ] || fail "an empty file"
grep -q "^hub .* Bearer hf_secret$" log || fail "the token was not sent"
grep -q "^storage .*Bearer" log && fail "the token was sent to another host"
grep -q "^storage GET /model.safetensors?signature=1 - -$" log || fail "the other host was not asked"

# What is there is not downloaded again; nor is what is not asked for.
: > log
expect 0 snapshots org/tiny
grep -q " GET /org" log && fail "files were downloaded again"
rm -rf home
expect 0 snapshots org/tiny --include '*.json' 'onnx/*'
[ -e $model/snapshots/$commit/model.safetensors ] && fail "--include"
[ -e $model/snapshots/$commit/onnx/deep/model.onnx ] || fail "--include with a folder"
expect 0 snapshots org/tiny --revision refs/pr/1
[ "$(cat $model/refs/refs/pr/1)" = $commit ] || fail "refs/refs/pr/1"

# A hub that lists files page by page.
expect 0 snapshots org/tree
[ "$(find -L $cache/models--org--tree/snapshots -type f | wc -l)" = 4 ] || fail "files of several pages"

# A data set, and a run that finds it.
"$temper" data stats org/rows 2>&1 | grep -q 'temper fetch org/rows --dataset' || fail "what is not in the cache: no command"
expect 2 'expected a model and a revision' org/rows
[ -e $cache/datasets--org--rows ] && fail "a data set fetched as a model"
expect 0 "datasets--org--rows/snapshots/$commit" org/rows --dataset
"$temper" data stats org/rows > stats 2>&1 || fail "the data set is not found: $(cat stats)"

# What was cut off goes on; so does what an earlier call left.
: > log
expect 0 snapshots org/cut
grep -q "GET .*cut.bin bytes=300000- " log || fail "no request for the rest: $(cat log)"
cut=$(readlink -f $cache/models--org--cut/snapshots/$commit/cut.bin)
head -c 500000 "$cut" > "$cut.incomplete" && rm "$cut" && : > log
expect 0 snapshots org/cut
grep -q "GET .*cut.bin bytes=500000- " log || fail "no request for the rest: $(cat log)"
[ "$(wc -c < "$cut")" = 1000000 ] || fail "cut.bin"

# What does not hold.
expect 1 'wrong.bin: its SHA-1 (as git'"'"'s) is' org/wrong --include wrong.bin
expect 1 'wrong.bin: its SHA-1' org/wrong --include wrong.bin  # nothing of it was kept
expect 1 'short.bin' org/short
expect 1 'does not stay in the cache' org/evil
[ -e escaped ] || [ -e home/escaped ] && fail "a file outside the cache"
expect 2 'a revision (none) that the hub knows' org/tiny --revision none
expect 2 'status 404 "Repository not found"' org/missing
expect 2 'found the id `tiny`, expected ORG/NAME' tiny
expect 2 '--revision: found `../x`' org/tiny --revision ../x
expect 2 '--include matches none' org/tiny --include '*.gguf'
expect 2 'ID is required'
expect 0 snapshots org/gated
HF_TOKEN= expect 2 'need HF_TOKEN' org/gated
HF_ENDPOINT=http://127.0.0.1:1 expect 1 'cannot connect' org/tiny
HF_ENDPOINT=hub expect 2 'HF_ENDPOINT: found hub' org/tiny
exit $bad
