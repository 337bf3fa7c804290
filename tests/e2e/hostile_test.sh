#!/usr/bin/env bash
# Hostile and broken clients: the server goes on answering others, and its memory does not grow. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
trap 'kill $(jobs -p) 2> /dev/null; rm -rf "$dir"' EXIT

json_model
for key in "" secret; do
  : > serve.log  # or the address of the server before is read
  KEY=${key:+$key, other} "$temper" serve --model model --port 0 --max-request-bytes 4194304 ${key:+--api-key-env KEY} > serve.log 2> serve.err &
  process=$!
  address_of serve.log $process || { fail "no address: $(cat serve.err)"; exit 1; }
  # With a key only the cases in which it matters that the client has none.
  cases=; [ -n "$key" ] && cases="large_bodies endless_heads pages sessions_of_keys"
  ONE_BODY=4194304 python3 "$here/hostile_clients.py" "$address" $process "$key" $cases || bad=1
  status=0
  kill -TERM $process
  wait $process || status=$?
  [ $status = 0 ] || fail "the server ended with $status: $(tail -3 serve.err)"
done

# Every bound, met by one client while another one is served: of a request, of bytes and of time under the limits that
# are the default, of numbers under small ones.
: > serve.log
"$temper" serve --model model --port 0 --max-request-bytes 4194304 > serve.log 2> serve.err &
process=$!
address_of serve.log $process || { fail "no address: $(cat serve.err)"; exit 1; }
ONE_BODY=4194304 python3 "$here/hostile_clients.py" "$address" $process "" bounds_of_requests bounds_of_heads_and_bodies bounds_of_time bounds_of_pipelines || bad=1
kill -TERM $process
wait $process || fail "the server of bounds ended with $?: $(tail -3 serve.err)"
: > serve.log
"$temper" serve --model model --port 0 --max-connections 64 --max-connections-per-address 40 --max-requests 8 --max-batch 16 --max-sessions 8 > serve.log 2> serve.err &
process=$!
address_of serve.log $process || { fail "no address: $(cat serve.err)"; exit 1; }
python3 "$here/hostile_clients.py" "$address" $process "" bounds_of_numbers bounds_of_grammars || bad=1
# The last grammars, whose clients have left, may still be compiled: nobody waits for that.
kill -TERM $process
wait $process || fail "the server of small limits ended with $?: $(tail -3 serve.err)"
exit $bad
