#!/usr/bin/env bash
# temper data from outside: statistics, balance, duplicates, splits; every format of files; what is wrong with them. $1:
# the program.
# Part of `make test`.
set -uo pipefail
. "$(dirname "$0")/common.sh"
python3 - <<'P'
import csv, gzip, json, random
rng = random.Random(5)
word = lambda: "".join(rng.choice("abcdefghij") for _ in range(6))
rows = []
for i in range(300):
    text = " ".join(word() for _ in range(40))
    rows.append({"prompt": f"Question {i}? {text}", "completion": word(), "source": "abc"[i % 6 // 2 if i % 6 < 4 else 0], "n": 0.1, "u": "é\u2028"})
with open("rows.jsonl", "w") as out:
    for i, row in enumerate(rows):
        out.write(json.dumps(row, ensure_ascii=i % 2 == 0, separators=(",", ": ")) + "\n" + ("\n" if i == 7 else ""))
with open("repeats.jsonl", "w") as out:
    for row in rows[:50]: out.write(json.dumps(row) + "\n")
    for row in rows[:10]: out.write(json.dumps(dict(reversed(row.items()))) + "\n")
    for row in rows[10:20]:
        words = row["prompt"].split(); words[20] = "other"
        out.write(json.dumps({**row, "prompt": " ".join(words), "id": 1}) + "\n")
    for row in rows[20:30]:
        words = row["prompt"].split()
        for at in range(3, len(words), 3): words[at] = word()
        out.write(json.dumps({**row, "prompt": " ".join(words)}) + "\n")
with gzip.open("rows.jsonl.gz", "wt") as out: out.write(open("rows.jsonl").read())
json.dump(rows, open("rows.json", "w"))
with open("rows.csv", "w", newline="") as out:
    table = csv.DictWriter(out, ["prompt", "completion", "source"], extrasaction="ignore"); table.writeheader(); table.writerows(rows)
with open("prompts.jsonl", "w") as out:
    for i in range(400): out.write(json.dumps({"messages": [{"role": "user", "content": f"p{i % 90}"}, {"role": "assistant", "content": f"c{i}"}]}) + "\n")
P

# Statistics are those of the rows, in every format.
for input in rows.jsonl rows.jsonl.gz rows.json rows.csv; do
  "$temper" data stats $input --json > stats.json || fail "stats $input: $?"
  python3 -c '
import json
s = json.load(open("stats.json"))
assert s["rows"] == 300 and s["duplicates"] == {"rows": 0, "prompts": 0}, s
assert s["words"]["min"] == s["words"]["max"] == 43 and s["words"]["total"] == 300 * 43, s["words"]
assert sum(b["rows"] for b in s["histogram"]["bins"]) == 300 == sum(d["rows"] for d in s["domains"].values())
assert s["fields"]["prompt"] == {"rows": 300, "types": {"string": 300}}' || fail "stats of $input: $(cat stats.json)"
done
"$temper" data stats rows.jsonl repeats.jsonl --svg lengths.svg > stats.txt && python3 -c '
import xml.dom.minidom; xml.dom.minidom.parse("lengths.svg")' || fail "stats --svg: $?"
grep -q '^380 rows, .* 2 files; 60 rows repeat an earlier one' stats.txt || fail "stats of two files: $(head -1 stats.txt)"
"$temper" data stats - < rows.jsonl > piped.txt || fail "stats of standard input"
# Names from the data do not reach the terminal's controls, and stay in their line.
printf '%s\n' '{"f\u001b[2J\nx": 1, "text": "one", "kind": "k\u009b1m\nx"}' '{"text": "two", "kind": "\u0007"}' > controls.jsonl
"$temper" data stats controls.jsonl --field kind > controls.txt && "$temper" data balance controls.jsonl --field kind --output $'k\n\e.jsonl' >> controls.txt ||
  fail "stats, balance of control characters"
grep -qF 'f\x1b[2J\nx ' controls.txt && [ "$(grep -cF 'k\x9b1m\nx ' controls.txt)" = 2 ] && grep -qF 'k\n\x1b.jsonl: 2 rows' controls.txt &&
  ! LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' controls.txt || fail "control characters: $(cat -v controls.txt)"
cat rows.jsonl | "$temper" data stats - --json > piped.json && grep -q '"rows": 300' piped.json || fail "stats of a pipe"

# Duplicates: equal rows in whatever order of their fields, then nearly equal ones, and no others; kept rows are the
# file's own bytes.
"$temper" data dedup repeats.jsonl --output exact.jsonl --json > exact.json || fail "dedup: $?"
"$temper" data dedup repeats.jsonl --near 0.8 --output near.jsonl --json --report left.jsonl > near.json || fail "dedup --near: $?"
python3 - <<'P' || fail "dedup: $(cat exact.json near.json)"
import json
lines = open("repeats.jsonl").read().splitlines()
assert open("exact.jsonl").read().splitlines() == lines[:50] + lines[60:]
assert open("near.jsonl").read().splitlines() == lines[:50] + lines[70:]
exact, near = json.load(open("exact.json")), json.load(open("near.json"))
assert (exact["rows"], exact["kept"], exact["exact"], exact["near"]) == (80, 70, 10, 0), exact
assert (near["rows"], near["kept"], near["exact"], near["near"], near["threshold"]) == (80, 60, 10, 10, 0.8), near
left = [json.loads(l) for l in open("left.jsonl")]
assert [r["row"] for r in left] == [f"repeats.jsonl:{n}" for n in range(51, 71)], left
assert [r["duplicate_of"] for r in left] == [f"repeats.jsonl:{n}" for n in range(1, 21)], left
assert all(0.8 <= r["similarity"] < 1 for r in left[10:]) and all(r["similarity"] == 1 for r in left[:10])
P
"$temper" data dedup rows.jsonl --by source --output by.jsonl > /dev/null && [ "$(wc -l < by.jsonl)" = 2 ] || fail "dedup --by: $(wc -l < by.jsonl)"
"$temper" data dedup rows.jsonl.gz --output - 2> dedup.log | cmp - <(grep . rows.jsonl) || fail "dedup changes rows"
grep -q 'rows of 300' dedup.log || fail "dedup to standard output: $(cat dedup.log)"

# Balance.
"$temper" data balance rows.jsonl --field source --output equal.jsonl --json --svg shares.svg > balance.json || fail "balance: $?"
"$temper" data balance rows.jsonl --field source --mode over --target a=0.25,b=0.75 --output over.jsonl > over.txt || fail "balance over: $?"
"$temper" data balance rows.jsonl --field source --output again.jsonl > /dev/null && cmp -s equal.jsonl again.jsonl || fail "balance: another choice"
"$temper" data balance rows.jsonl --field source --seed 1 --output other.jsonl > /dev/null && ! cmp -s equal.jsonl other.jsonl || fail "balance --seed"
python3 - <<'P' || fail "balance: $(cat balance.json)"
import collections, json
lines = open("rows.jsonl").read().split("\n")
lines = [l for l in lines if l]
count = lambda path: collections.Counter(json.loads(l)["source"] for l in open(path))
before, under, over = collections.Counter(json.loads(l)["source"] for l in lines), count("equal.jsonl"), count("over.jsonl")
assert before == {"a": 200, "b": 100}, before
assert under == {"a": 100, "b": 100} and over == {"a": 200, "b": 600}, (under, over)
kept = open("equal.jsonl").read().split("\n")[:-1]
assert len(set(kept)) == len(kept) and kept == [l for l in lines if l in set(kept)]
times = collections.Counter(open("over.jsonl").read().split("\n")[:-1])
assert set(times) == set(lines) and set(times.values()) == {1, 6}
figures = json.load(open("balance.json"))
assert figures["groups"]["a"] == {"target": 0.5, "rows_before": 200, "share_before": 200 / 300, "rows_after": 100, "share_after": 0.5}, figures
P
cat > rules.yaml <<'Y'
first: {keywords: ["question 1", "question 2*"], patterns: ['^Question 3\d?\?']}
rest: {}
Y
"$temper" data balance rows.jsonl --rules rules.yaml --target first=1 --output ruled.jsonl > /dev/null || fail "balance --rules: $?"
[ "$(grep -c . ruled.jsonl)" = 123 ] || fail "balance --rules: $(grep -c . ruled.jsonl) rows"  # 1; 2, 20-29, 200-299; 3, 30-39
"$temper" data balance rows.jsonl --output domains.jsonl | grep -q 'built-in domains' || fail "balance of the built-in domains"

# A split shares no prompt; each row is in one part.
for input in prompts.jsonl rows.jsonl; do
  "$temper" data split $input --output-dir parts --fractions train=0.8,val=0.1,test=0.1 --json > split.json || fail "split: $?"
  python3 - $input <<'P' || fail "split of $input: $(cat split.json)"
import json, sys
read = lambda path: [l for l in open(path, newline="\n").read().split("\n") if l]
parts = {name: read(f"parts/{name}.jsonl") for name in ("train", "val", "test")}
assert sorted(sum(parts.values(), [])) == sorted(read(sys.argv[1]))
ask = lambda line: (lambda row: row["prompt"] if "prompt" in row else row["messages"][0]["content"])(json.loads(line))
prompts = {name: {ask(l) for l in lines} for name, lines in parts.items()}
assert not (prompts["train"] & prompts["val"] or prompts["train"] & prompts["test"] or prompts["val"] & prompts["test"])
figures = json.load(open("split.json"))["splits"]
assert {n: figures[n]["rows"] for n in parts} == {n: len(parts[n]) for n in parts}
if sys.argv[1] == "rows.jsonl": assert {n: len(parts[n]) for n in parts} == {"train": 240, "val": 30, "test": 30}
P
done
"$temper" data split rows.jsonl --output-dir by --fractions a=0.5,b=0.5 --by source > /dev/null || fail "split --by: $?"
[ "$(cat by/a.jsonl by/b.jsonl | wc -l)" = 300 ] && [ "$(wc -l < by/a.jsonl)" = 200 -o "$(wc -l < by/a.jsonl)" = 100 ] || fail "split --by: $(wc -l by/*)"

# Formats of rows and files, and back.
"$temper" data convert prompts.jsonl --to sharegpt --output sharegpt.jsonl.zst > /dev/null && "$temper" data convert sharegpt.jsonl.zst --to messages --output back.json > /dev/null &&
  "$temper" data convert back.json --output back.jsonl > /dev/null || fail "convert: $?"
python3 - <<'P' || fail "convert: $(head -1 back.jsonl)"
import json
read = lambda path: [json.loads(l) for l in open(path)]
assert read("back.jsonl") == read("prompts.jsonl") == json.load(open("back.json"))
P
"$temper" data convert rows.csv --columns question=prompt --output renamed.jsonl > /dev/null && head -1 renamed.jsonl | python3 -c '
import json, sys
assert list(json.loads(sys.stdin.readline())) == ["completion", "source", "question"]' || fail "convert --columns: $(head -1 renamed.jsonl)"
if ldd "$(dirname "$temper")/libtemper_parquet.so" > /dev/null 2>&1; then
  "$temper" data convert prompts.jsonl --output rows.parquet > /dev/null && "$temper" data convert rows.parquet --output table.jsonl > /dev/null &&
    cmp -s <(python3 -c 'import json,sys; [print(json.dumps(json.loads(l))) for l in open("prompts.jsonl")]') <(python3 -c 'import json; [print(json.dumps(json.loads(l))) for l in open("table.jsonl")]') ||
    fail "convert to Parquet and back: $(head -1 table.jsonl)"
  printf '{"a": 1, "d": "2020-01-01", "l": []}\n{"a": 1.5, "d": null, "l": [{"x": true}]}\n' > types.jsonl
  "$temper" data convert types.jsonl --output types.parquet > /dev/null && "$temper" data convert types.parquet --output types2.jsonl > /dev/null && python3 -c '
import json
assert [json.loads(l) for l in open("types2.jsonl")] == [{"a": 1.0, "d": "2020-01-01", "l": []}, {"a": 1.5, "l": [{"x": True}]}]' || fail "types: $(cat types2.jsonl)"
  printf '{"a": 1}\n{"a": "x"}\n' > mixed.jsonl
  "$temper" data convert mixed.jsonl --output mixed.parquet > /dev/null 2> err; [ $? = 2 ] && grep -qF 'mixed.jsonl:2: `a` is text, and in earlier rows a whole number' err && [ ! -e mixed.parquet ] || fail "mixed types: $(cat err)"
fi
"$temper" data dedup rows.jsonl --output packed.jsonl.gz > /dev/null && gzip -dc packed.jsonl.gz | cmp - <(grep . rows.jsonl) || fail "dedup to .gz"

# What is wrong with the input or the command: status 2, one line that says what and where, and no file.
refuse() {
  local expected=$1; shift
  "$temper" "$@" > refused.out 2> refused.log
  local status=$?
  [ $status = 2 ] && grep -qF -- "$expected" refused.log && [ "$(wc -l < refused.log)" = 1 ] ||
    fail "temper $*: status $status, expected \"$expected\": $(cat refused.log)"
}
cp rows.jsonl kept.jsonl
printf '{"prompt": "a"}\n{"prompt": \n' > broken.jsonl
printf '{"a": 1}\n{"b": 1}\n' > fields.jsonl
: > empty.jsonl
mkdir same && cp rows.jsonl same/train.jsonl
refuse 'broken.jsonl:2: ' data stats broken.jsonl
refuse 'broken.jsonl:2: ' data dedup broken.jsonl --output no.jsonl
refuse 'broken.jsonl:2: ' data split broken.jsonl --output-dir no --fractions a=0.5,b=0.5
refuse 'broken.jsonl:2: ' data balance broken.jsonl --output no.jsonl
refuse 'empty.jsonl: no rows' data stats empty.jsonl
refuse 'gone.jsonl: cannot open' data stats gone.jsonl
refuse 'is the input' data dedup rows.jsonl --output ./rows.jsonl
refuse 'is the input' data balance rows.jsonl --field source --output rows.jsonl
refuse 'is the input' data split same/train.jsonl --output-dir same --fractions train=0.5,test=0.5
refuse 'expected a name that ends with .jsonl' data dedup rows.jsonl --output no.csv
refuse 'fields.jsonl:1: the row has [a]' data convert fields.jsonl --to messages --output no.jsonl
refuse 'is named twice' data dedup rows.jsonl ./rows.jsonl --output no.jsonl
refuse 'fields.jsonl:2: no `a`; the row has [b]' data balance fields.jsonl --field a --output no.jsonl
refuse 'no row is in `x`' data balance rows.jsonl --field source --target x=0.5,a=0.5 --output no.jsonl
refuse 'add up to 1.1' data balance rows.jsonl --field source --target a=0.6,b=0.5 --output no.jsonl
refuse 'expected NAME=SHARE' data balance rows.jsonl --field source --target half --output no.jsonl
refuse 'expected 1' data split rows.jsonl --output-dir no --fractions train=0.5,test=0.4
refuse 'expected the name of a file' data split rows.jsonl --output-dir no --fractions ../x=0.5,test=0.5
refuse '--near: found 1.5, expected number > 0 and <= 1' data dedup rows.jsonl --near 1.5 --output no.jsonl
refuse 'expected one of stats, balance' data
refuse 'did you mean `split`' data splitt rows.jsonl
refuse 'unknown flag `--nearr`; did you mean `--near`' data dedup rows.jsonl --nearr 0.5 --output no.jsonl
refuse 'broken.jsonl' data balance rows.jsonl --rules broken.jsonl --output no.jsonl
cmp -s rows.jsonl kept.jsonl || fail "an input changed"
[ -z "$(ls -d no* *.tmp* *.partial same/test* 2> /dev/null)" ] || fail "left behind: $(ls -d no* *.tmp* *.partial same/test*)"

# Ctrl-C leaves no file, whole or half, and what stood there before.
python3 -c '
import random
words = [str(i) * 2 for i in range(3000)]
with open("large.jsonl", "w") as out:
    for i in range(60000): out.write("{\"prompt\": \"%s\"}\n" % " ".join(random.choices(words, k=60)))'
echo before > old.jsonl
"$temper" data dedup large.jsonl --near 0.8 --output old.jsonl > stopped.log 2>&1 & run=$!
comes_true sh -c 'ls | grep -q "old.jsonl.tmp"' || fail "dedup did not begin"
kill -INT $run; wait $run; status=$?
[ $status = 130 ] && [ "$(cat old.jsonl)" = before ] && [ "$(ls | grep -c old.jsonl)" = 1 ] || fail "stopped: status $status, $(ls | grep old.jsonl): $(cat stopped.log)"
exit $bad
