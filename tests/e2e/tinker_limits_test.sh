#!/usr/bin/env bash
# Limits of `temper serve --tinker`, each met by one client while another is served, and what keys keep apart. $1: the program.
set -uo pipefail
. "$(dirname "$0")/common.sh"
here=$(cd "$(dirname "$0")" && pwd)
small_model
python3 - <<'P'
import json
config = json.load(open("model/config.json"))
config["max_position_embeddings"] = 600
json.dump(config, open("model/config.json", "w"))
P

start() {
  : > serve.log
  "$temper" serve --model model --port 0 --tinker --state-dir state --max-request-bytes 4194304 --max-adapters 6 --max-rank 64 --adapter-bytes 1000000 \
    --max-requests 16 "$@" > serve.log 2> serve.err &
  process=$!
  address_of serve.log $process && return
  fail "serve $*: no address; $(cat serve.log serve.err)"
  exit 1
}
client() { python3 "$here/tinker_limits.py" "$address" state "$1" || fail "$1; $(cat serve.err)"; }
ends() { kill -TERM $process; wait $process || fail "SIGTERM: status $?"; }

start
for part in requests counts slices; do client $part; done
client keys
ends
# The same with keys of the server's; another one is none.
KEYS="tml-test, tml-other" start --api-key-env KEYS
client keys
[ "$(python3 - "$address" <<'P'
import sys, urllib.error, urllib.request
for key in ("tml-test", "tml-other", "tml-third", "tml-test, tml-other", ""):
    request = urllib.request.Request(sys.argv[1] + "/api/v1/get_server_capabilities", headers={"X-API-Key": key})
    try:
        print(urllib.request.urlopen(request).status, end=" ")
    except urllib.error.HTTPError as e:
        print(e.code, end=" ")
P
)" = "200 200 401 401 401 " ] || fail "several keys"
ends
KEYS=" , " "$temper" serve --model model --port 0 --api-key-env KEYS > keys.log 2>&1
[ $? = 2 ] && grep -q "found no key in KEYS" keys.log || fail "an empty list of keys: $(cat keys.log)"
exit $bad
