# Sourced after common.sh by the tests of `temper check`.
# has FILE NAME STATUS [WORDS]: the check of that name has that status, and its message has the words.
has() {
  python3 - "$@" <<'P' || fail "$*: $(cat "$1")"
import json, sys
report = json.load(open(sys.argv[1]))
names = [c["name"] for c in report["checks"]]
assert len(names) == len(set(names)), names
assert set(report) == {"checks", "plan"} and {"peak_bytes", "parts"} <= set(report["plan"]), report.keys()
check = next(c for c in report["checks"] if c["name"] == sys.argv[2])
assert check["status"] == sys.argv[3], check
assert len(sys.argv) < 5 or sys.argv[4] in check["message"], check
P
}
check() { # OUT STATUS ARGUMENTS
  local out=$1 expected=$2
  shift 2
  "$temper" check "$@" --json > "$out" 2> "$out.err"
  [ $? = "$expected" ] || fail "check $*: status, expected $expected: $(cat "$out" "$out.err")"
}
