#!/usr/bin/env bash
# Hostile and broken clients: the server goes on answering others, and its memory does not grow. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT

json_model
for key in "" secret; do
  : > serve.log  # or the address of the server before is read
  KEY=$key "$temper" serve --model model --port 0 --max-request-bytes 4194304 ${key:+--api-key-env KEY} > serve.log 2> serve.err &
  process=$!
  address_of serve.log $process || { fail "no address: $(cat serve.err)"; exit 1; }
  # With a key only the cases in which it matters that the client has none.
  cases=; [ -n "$key" ] && cases="large_bodies endless_heads pages"
  ONE_BODY=4194304 python3 "$here/hostile_clients.py" "$address" $process "$key" $cases || bad=1
  status=0
  kill -TERM $process
  wait $process || status=$?
  [ $status = 0 ] || fail "the server ended with $status: $(tail -3 serve.err)"
done
exit $bad
