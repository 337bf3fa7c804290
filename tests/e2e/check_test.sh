# temper check: it finds what would end a run, says so in one form, writes nothing, and plans the memory that the run
# takes.
source "$(dirname "$0")/common.sh" "$1"
source "$(dirname "$0")/checks.sh"
small_model
python3 - <<'P'
import json, random
random.seed(1)
ids = lambda n: [random.randrange(3, 61) for _ in range(n)]
with open("rows.jsonl", "w") as f:
    for i in range(32):
        row = ids(20 + i)
        f.write(json.dumps({"input_ids": row, "labels": [-100] * (len(row) if i % 8 == 0 else 5) + row[5:] * (i % 8 != 0)}) + "\n")
with open("pairs.jsonl", "w") as f:
    for i in range(8):
        f.write(json.dumps({"prompt_ids": ids(4), "chosen_ids": ids(5), "rejected_ids": ids(6)}) + "\n")
with open("prompts.jsonl", "w") as f:
    for i in range(8):
        f.write(json.dumps({"prompt_ids": ids(4), "answer": "1"}) + "\n")
P
cat > reward.py <<'P'
import json, sys
for line in sys.stdin:
    print(0.5 * min(2, len(json.loads(line)["completion_tokens"])), flush=True)  # no completion is empty
P
sft="model.path=model data.train=rows.jsonl output_dir=out train.batch_size=4"
check good.json 0 sft $sft
for name in config device model weights adapter mesh data.train lengths output_dir disk memory; do has good.json $name pass; done
has good.json labels warn "4 rows train nothing"
has good.json tokenizer warn "token ids"
python3 -c '
import json
r = json.load(open("good.json"))
rows = next(c for c in r["checks"] if c["name"] == "data.train")["values"]
assert rows["rows"] == 32 and rows["untrained"] == 4 and rows["tokens"] == sum(20 + i for i in range(32)), rows
assert sum(r["plan"]["parts"].values()) == r["plan"]["peak_bytes"] > 50e6, r["plan"]' || fail "numbers: $(cat good.json)"
[ ! -e out ] || fail "check made output_dir"

# A metric that no evaluation of the verb has is refused as the run refuses it.
for run in "sft data.train=rows.jsonl data.eval=rows.jsonl train.keep_best.metric=eval/lss" \
  "dpo data.train=pairs.jsonl data.eval=pairs.jsonl train.keep_best.metric=eval/kl" \
  "grpo data.train=prompts.jsonl data.eval=prompts.jsonl rewards=[exact] train.early_stopping.metric=eval/loss"; do
  "$temper" check $run model.path=model output_dir=metric > /dev/null 2> of_check; checked=$?
  "$temper" $run model.path=model output_dir=metric > /dev/null 2> of_run
  [ $? = 2 ] && [ $checked = 2 ] && cmp -s of_check of_run && grep -q 'which no evaluation of this run has' of_run || fail "$run: $(cat of_check of_run)"
done

# Under kto margin and accuracy are of pairs among the rows; the run refuses them where there is none, and so does check.
python3 - <<'P'
import json
with open("singles.jsonl", "w") as f:
    for i in range(8):
        f.write(json.dumps({"prompt_ids": [5, 6, 7 + i], "completion_ids": [9, 10 + i], "label": i % 2 == 0}) + "\n")
with open("both.jsonl", "w") as f:
    for i in range(8):
        f.write(json.dumps({"prompt_ids": [5, 6, 7 + i], "input_ids": [5, 6, 7 + i, 9], "labels": [-100, -100, -100, 9]}) + "\n")
P
kto="dpo preference.loss=kto data.train=singles.jsonl model.path=model output_dir=kto train.keep_best.metric=eval/margin"
check kto.json 2 $kto data.eval=singles.jsonl && has kto.json data.eval.pairs fail "no evaluation row is a pair"
"$temper" $kto data.eval=singles.jsonl > /dev/null 2> kto.log
[ $? = 2 ] && grep -q "no evaluation row is a pair" kto.log || fail "kto: $(cat kto.log)"
check kto.json 0 $kto data.eval=pairs.jsonl && has kto.json data.eval.pairs pass

# What is evaluated on_policy is a prompt, also where some training rows keep the file's completions.
distill="distill model.path=model data.train=both.jsonl data.eval=prompts.jsonl output_dir=on distill.teacher=model"
distill="$distill distill.strategy=on_policy distill.off_policy_fraction=0.5 rollout.max_new_tokens=4 train.max_steps=1"
check on.json 0 $distill && has on.json data.eval pass "8 rows"
"$temper" $distill > on.log 2>&1 || fail "on_policy: $(cat on.log)"

# Dropout of a config is not applied, and both check and the run say so.
cp -r model wet
python3 - <<'P'
import json
config = json.load(open("wet/config.json"))
json.dump(config | {"attention_dropout": 0.25}, open("wet/config.json", "w"))
P
check wet.json 0 sft $sft model.path=wet
has wet.json model warn "\`attention_dropout\` 0.25 is not applied"
"$temper" sft $sft model.path=wet output_dir=wet_out train.max_steps=1 > wet.log 2>&1 || fail "run: $(cat wet.log)"
grep -q "warning: .*attention_dropout" wet.log || fail "no word of dropout: $(cat wet.log)"

# So do they of a head that differs from the embeddings to which the config ties it, and the run keeps it.
cp -r model loose
python3 - <<'P'
import json, struct
raw = open("loose/model.safetensors", "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
tied = header["model.embed_tokens.weight"]
begin, end = tied["data_offsets"]
head = struct.pack("<f", 0.5) + data[begin + 4:end]
header["lm_head.weight"] = tied | {"data_offsets": [len(data), len(data) + len(head)]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("loose/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data + head)
P
check loose.json 0 sft $sft model.path=loose
has loose.json model warn "lm_head.weight differs from the embeddings"
"$temper" sft $sft model.path=loose output_dir=loose_out train.max_steps=1 > loose.log 2>&1 || fail "run: $(cat loose.log)"
grep -q "warning: .*keeps its own head" loose.log || fail "no word of the head: $(cat loose.log)"
grep -q '"tie_word_embeddings": false' loose_out/final/config.json || fail "$(cat loose_out/final/config.json)"
echo '{"tokens": [3, 4, 5]}' > row.jsonl
"$temper" score --model loose --input row.jsonl --output scores.jsonl 2> loose.log || fail "score: $(cat loose.log)"
grep -q "warning: .*keeps its own head" loose.log || fail "score says nothing of the head: $(cat loose.log)"
"$temper" score --model loose_out/final --input row.jsonl --output scores.jsonl 2> loose.log || fail "score: $(cat loose.log)"
[ ! -s loose.log ] || fail "what was saved is tied: $(cat loose.log)"
"$temper" check sft $sft > /dev/full 2> full.log
[ $? = 1 ] && grep -q "standard output: cannot write" full.log || fail "check on a full disk: $(cat full.log)"
"$temper" check sft $sft > table.txt || fail "the table"
grep -q "^pass  data.train" table.txt || fail "table: $(cat table.txt)"

# Each fault is found, by its own check, and the others are still made.
check bad.json 2 sft $sft data.max_length=oops && has bad.json config fail "data.max_length"
check bad.json 2 sft $sft model.path=nowhere && has bad.json model fail && has bad.json output_dir pass && has bad.json data.train warn "not checked"
check bad.json 2 sft $sft model.device=cuda && has bad.json device fail "model.device: found cuda" && has bad.json model pass && has bad.json memory pass
TEMPER_BACKEND=nonsense check bad.json 2 sft $sft && has bad.json device fail TEMPER_BACKEND && has bad.json memory pass
check bad.json 2 sft $sft output_dir=model && has bad.json output_dir fail "the directory of model.path"
cp -r model cut && head -c 3000 model/model.safetensors > cut/model.safetensors
check bad.json 2 sft $sft model.path=cut && has bad.json weights fail && has bad.json data.train pass
echo '{"input_ids": [1, 999]}' > wrong.jsonl
check bad.json 2 sft $sft data.train=wrong.jsonl && has bad.json data.train fail "wrong.jsonl:1"
check bad.json 2 sft $sft adapter.method=lora adapter.target_modules=[q_prj] && has bad.json adapter fail q_prj
tied="adapter.method=lora adapter.target_modules=[q_proj,lm_head]"
check some.json 0 sft $sft $tied --nproc 2 mesh.data=2 && has some.json adapter pass
check bad.json 2 sft $sft $tied --nproc 2 mesh.fsdp=2 && has bad.json adapter fail "leave lm_head out"
check bad.json 2 sft $sft $tied adapter.use_dora=true && has bad.json adapter fail "has no magnitudes"
check bad.json 2 sft $sft $tied adapter.dropout=0.1 && has bad.json adapter fail "has no dropout"
# Patterns of parameters are matched with what trains: an adapter's matrices, a reward model's score.
for pattern in 'train.freeze=[model.norm.*]' 'optimizer.groups=[{match: model.norm.*, weight_decay: 0}]'; do
  check some.json 0 sft $sft "$pattern"
  check bad.json 2 sft $sft adapter.method=lora "$pattern" && has bad.json adapter fail "\`model.norm.*\` matches no parameter that trains"
  check some.json 0 sft $sft adapter.method=lora "${pattern/norm/layers.0}"
  check bad.json 2 reward $sft data.train=pairs.jsonl "${pattern/model.norm.\*/lm_head*}" && has bad.json adapter fail "matches no parameter"
  check some.json 0 reward $sft data.train=pairs.jsonl "${pattern/model.norm.\*/score*}"
  check some.json 0 reward $sft data.train=pairs.jsonl adapter.method=lora "${pattern/model.norm.\*/score*}"
done
check bad.json 2 sft $sft --nproc 4 mesh.tensor=4 && has bad.json mesh fail
check bad.json 2 sft $sft --nproc 3 mesh.fsdp=2 && has bad.json mesh fail
# Two rows that train the end token alone, one without a trained token, one whose one token is no end token.
for end in "7, 2" "8, 2" 2 2 -100 9; do echo "{\"input_ids\": [5, 6, ${end/-100/7}], \"labels\": [-100, -100, $end]}"; done > ends.jsonl
check some.json 0 sft $sft data.train=ends.jsonl && has some.json labels warn "1 row trains nothing; 2 rows train the end token alone"
check some.json 0 sft $sft data.max_length=30 && has some.json lengths warn "are cut"
check some.json 0 sft $sft train.micro_batch_tokens=40 && has some.json lengths warn "pass of its own"
touch file && check bad.json 2 sft $sft output_dir=file && has bad.json output_dir fail

# Weights that hold NaN, rows twice, rows that are trained on and evaluated on, a reward that never differs.
python3 - <<'P'
import json, os, shutil, struct
shutil.copytree("model", "nan")
with open("nan/model.safetensors", "r+b") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(size))
    begin = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0]
    f.seek(8 + size + begin + 4 * 17)
    f.write(struct.pack("<f", float("nan")))
rows = open("rows.jsonl").read().splitlines(True)
open("twice.jsonl", "w").writelines(rows + rows[2:5])
open("seen.jsonl", "w").writelines([rows[7], '{"input_ids": [9, 9, 8]}\n'])
open("unseen.jsonl", "w").writelines(['{"input_ids": [9, 9, 8]}\n'])
P
has good.json data.duplicates pass
check bad.json 2 sft $sft model.path=nan && has bad.json weights fail '`model.layers.1.mlp.up_proj.weight` (value 17)'
check twice.json 0 sft $sft data.train=twice.jsonl && has twice.json data.duplicates warn "3 rows repeat an earlier one, and so are trained more often than others: twice.jsonl:33 equals twice.jsonl:3"
check seen.json 0 sft $sft data.eval=seen.jsonl && has seen.json data.overlap warn "1 of 2 evaluation rows are training rows, too: seen.jsonl:1 equals rows.jsonl:8"
check unseen.json 0 sft $sft data.eval=unseen.jsonl && has unseen.json data.overlap pass
check same.json 0 grpo model.path=model data.train=prompts.jsonl output_dir=out3 rl.group_size=2 'rewards=[{command: [sh, -c, "while read -r l; do echo 0.25; done"], name: same}]' \
  && has same.json rewards/same warn "never differs"

# A prompt that is the JSON text of messages is read literally, which a check and a run say.
echo '{"prompt": "[{\"role\": \"user\", \"content\": \"Hi\"}]", "input_ids": [5, 6, 7]}' > literal.jsonl
check literal.json 0 sft $sft data.train=literal.jsonl && has literal.json lengths warn "1 row has a field (prompt, completion, chosen or rejected) that is the JSON text of messages"
"$temper" sft $sft data.train=literal.jsonl output_dir=literal train.max_steps=1 > literal.log 2>&1 && grep -q "the JSON text of messages" literal.log || fail "a literal prompt: $(cat literal.log)"

# Pairs, rewards and references.
check dpo.json 0 dpo model.path=model data.train=pairs.jsonl output_dir=out2 && has dpo.json reference pass && has dpo.json data.train pass
# Pairs that are all cut to equal sides train nothing, but for orpo; a run says so, too.
for i in 1 2 3; do echo "{\"prompt_ids\": [$((5 + i)), 4], \"chosen_ids\": [7, 8], \"rejected_ids\": [7, 9]}"; done > equal.jsonl
equal="model.path=model data.train=equal.jsonl data.max_length=3 output_dir=equal train.max_steps=1"
for verb in dpo reward; do
  check bad.json 2 $verb $equal && has bad.json labels fail "none of the 3 rows trains a token; data.max_length 3 cuts all of them"
  "$temper" $verb $equal > equal.log 2>&1; [ $? = 2 ] && grep -q "rows so far trains a token; of the last ones: data.max_length 3 cuts" equal.log || fail "$verb of equal sides: $(cat equal.log)"
done
check some.json 0 orpo $equal && has some.json labels pass "6 of 9 tokens"
# The loss of routers, of a model that has none, and of a reward model.
for verb in sft dpo reward; do
  rows=pairs.jsonl; [ $verb = sft ] && rows=rows.jsonl
  router="model.path=model data.train=$rows output_dir=router train.router_aux_loss=0.01 train.max_steps=1"
  check bad.json 2 $verb $router && has bad.json router_aux_loss fail "train.router_aux_loss: the policy is no mixture of experts"
  "$temper" $verb $router > router.log 2>&1; [ $? = 2 ] && grep -q "train.router_aux_loss: the policy is no mixture of experts" router.log || fail "$verb: $(cat router.log)"
done
rl="model.path=model data.train=prompts.jsonl output_dir=out3 rl.group_size=2 rl.prompts_per_rollout=2 rollout.max_new_tokens=4"
check rl.json 0 grpo $rl 'rewards=[{command: [python3, reward.py], name: half}]' && has rl.json rewards/half pass 0.5 && has rl.json reference pass
check rl.json 2 grpo $rl 'rewards=[{command: [no-such-program], name: half}]' && has rl.json rewards/half fail no-such-program
check rl.json 2 grpo $rl 'rewards=[{command: [python3, scripts/no-reward.py], name: half}]' && has rl.json rewards/half fail 'the script `scripts/no-reward.py` of the command is not there'
check rl.json 2 grpo $rl 'rewards=[{command: [python3, reward.py], name: half}]' 'environment.openai.command=[python3, no-agent.py]' && has rl.json config fail 'the script `no-agent.py` of the command is not there'
check rl.json 2 grpo $rl 'rewards=[{command: [python3, -c, "raise SystemExit(3)"], name: half}]' && has rl.json rewards/half fail "status 3"
check rl.json 2 grpo $rl 'rewards=[{command: [sh, -c, "while read -r l; do echo 1; echo 2; done"], name: half}]' && has rl.json rewards/half fail "more than one line"
check rl.json 2 grpo $rl rl.replay=rows.jsonl && has rl.json rl.replay fail "rows.jsonl:1: no \`group\`"
echo '{"group": 0, "prompt_tokens": [3], "completion_tokens": [4], "reward": 1}' > replay.jsonl
check rl.json 0 grpo $rl rl.replay=replay.jsonl && has rl.json rl.replay pass "1 row"
check rl.json 2 grpo $rl rl.replay=replay.jsonl rl.dual_clip=0.5 && has rl.json config fail "rl.dual_clip"
check bad.json 2 distill $sft distill.teacher=model distill.temperature=1e30 && has bad.json config fail "distill.temperature"
check bad.json 2 distill $sft distill.teacher=model distill.strategy=attention_transfer 'distill.layers=[[0, 99]]' && has bad.json teacher fail "layer 99"
check some.json 0 distill $sft distill.teacher=model distill.strategy=feature_projection && has some.json teacher pass
check bad.json 2 sft $sft train.max_steps=9000000000000000000 && has bad.json disk fail
check rl.json 2 grpo $rl 'rewards=[{command: [python3, reward.py], name: half}]' rollout.stop_token_ids=[999] && has rl.json rollout fail "token 999"
check rl.json 2 grpo $rl 'rewards=[{command: [python3, reward.py], name: half}]' rollout.regex=a && has rl.json rollout fail tokenizer
check rl.json 2 grpo $rl 'rewards=[{command: [python3, reward.py], name: half}]' rollout.speculative=17 && has rl.json config fail rollout.speculative

# What the run's mesh does not do is refused here as well; servers are asked.
half='rewards=[{command: [python3, reward.py], name: half}]'
# A cache is too small where the run finds it so, and only there.
for form in "grpo $rl" "distill model.path=model distill.teacher=model distill.strategy=on_policy data.train=prompts.jsonl output_dir=out4 train.batch_size=2 rollout.max_new_tokens=70"; do
  reward=$half; [ "${form%% *}" = grpo ] || reward=
  need=$("$temper" $form ${reward:+"$reward"} rollout.cache_bytes=1000 2>&1 > /dev/null | sed -n 's/.* need \([0-9]*\) bytes.*/\1/p')
  [ "${need:-0}" -gt 0 ] || fail "$form: the run takes a cache of 1000 bytes"
  check rl.json 0 $form ${reward:+"$reward"} rollout.cache_bytes=$need && has rl.json rollout pass
  check rl.json 2 $form ${reward:+"$reward"} rollout.cache_bytes=$((need - 1)) && has rl.json rollout fail "need $need bytes"
done
# How many tokens a page of the cache holds depends on the processor.
echo "{\"prompt_ids\": [$(for _ in 1 2 3 4 5 6 7 8 9 10; do printf '%s,' "$(seq -s, 3 52)"; done)3], \"answer\": \"1\"}" > longer.jsonl
enough=$("$temper" grpo $rl "$half" rollout.cache_bytes=1000 2>&1 > /dev/null | sed -n 's/.* need \([0-9]*\) bytes.*/\1/p')
check rl.json 0 grpo $rl "$half" data.eval=prompts.jsonl rollout.cache_bytes=$enough
check rl.json 2 grpo $rl "$half" data.eval=longer.jsonl rollout.cache_bytes=$enough && has rl.json rollout fail "the longest prompt, 501 tokens"
"$temper" grpo $rl "$half" data.eval=longer.jsonl rollout.cache_bytes=$enough > run.log 2>&1 && fail "a run begins whose evaluation cannot be sampled"
grep -q "longer.jsonl:1: a prompt of 501 tokens .* need" run.log && [ ! -e out3/metrics.jsonl ] || fail "the run's cache: $(cat run.log)"
check rl.json 2 grpo $rl "$half" rollout.min_new_tokens=5 && has rl.json config fail "rollout.min_new_tokens"
servers='rollout.server.urls=[http://127.0.0.1:9]'
check bad.json 2 grpo $rl "$half" --nproc 2 mesh.fsdp=2 rl.max_staleness=1 && has bad.json config fail "rl.max_staleness"
check bad.json 2 grpo $rl "$half" --nproc 2 mesh.tensor=2 environment.name=grid_world && has bad.json config fail "environment"
check bad.json 2 ppo $rl "$half" rl.group_size=1 --nproc 2 mesh.tensor=2 adapter.method=lora ppo.share_base=true && has bad.json config fail "ppo.share_base"
check some.json 0 grpo $rl "$half" --nproc 3 'roles={rollout: [2]}' mesh.fsdp=2 && has some.json mesh pass "data 1, fsdp 2, tensor 1, and 1 with roles"
check bad.json 2 grpo $rl "$half" --nproc 4 'roles={rollout: [3]}' mesh.fsdp=2 && has bad.json mesh fail "3 ranks that train"
check bad.json 2 grpo $rl "$half" --nproc 3 'roles={rollout: [3]}' && has bad.json mesh fail "found rank 3"
check bad.json 2 grpo $rl "$half" --nproc 4 'roles={rollout: [1, 2, 3], tensor: 3}' && has bad.json mesh fail "roles.tensor"
check bad.json 2 sft $sft adapter.method=qlora --nproc 2 mesh.tensor=2 && has bad.json mesh fail "quantized"
check bad.json 2 ppo $rl "$half" rl.group_size=1 ppo.critic=model && has bad.json critic fail "no scalar head"
check bad.json 2 grpo $rl "$half" "$servers" rollout.server.weights_dir=prompts.jsonl && has bad.json rollout.server fail "prompts.jsonl is no directory"
check some.json 0 grpo $rl "$half" rollout.max_new_tokens=200000 && has some.json rollout warn "max_position_embeddings"
check bad.json 2 grpo $rl "$half" "$servers" && has bad.json rollout.server fail "http://127.0.0.1:9: "

# What a run leaves on the disk: rollouts too, of which a config may keep some, or pack them.
python3 - <<'P'
import json
with open("questions.jsonl", "w") as f:
    for i in range(8): f.write(json.dumps({"prompt_ids": [3 + (7 * i + j) % 58 for j in range(12)]}) + "\n")
P
disk="model.path=model data.train=questions.jsonl rl.group_size=4 rl.prompts_per_rollout=4 rollout.max_new_tokens=120 rollout.ignore_eos=true train.max_steps=6 metrics.sinks=[jsonl]"
for kept in all none "every 2" "last 2" packed; do
  keys=("rl.save_rollouts=$kept"); [ "$kept" = packed ] && keys=(rl.compress_rollouts=true)
  rm -rf disk; check disk.json 0 grpo $disk "$half" output_dir=disk "${keys[@]}"
  "$temper" grpo $disk "$half" output_dir=disk "${keys[@]}" > /dev/null 2> run.log || fail "rl.save_rollouts=$kept: $(cat run.log)"
  python3 - "$kept" <<'P' || fail "the disk of rl.save_rollouts=$kept: $(cat disk.json; find disk -type f | xargs ls -l)"
import json, os, sys
values = next(c for c in json.load(open("disk.json"))["checks"] if c["name"] == "disk")["values"]
names = sorted(os.listdir("disk/rollouts")) if os.path.isdir("disk/rollouts") else []
step = lambda *steps: ["step-%d.jsonl" % s for s in steps]
assert names == {"all": step(1, 2, 3, 4, 5, 6), "none": [], "every 2": step(2, 4, 6), "last 2": step(5, 6),
                 "packed": [n + ".zst" for n in step(1, 2, 3, 4, 5, 6)]}[sys.argv[1]], names
used = sum(os.path.getsize("disk/rollouts/" + n) for n in names)
assert abs(values["parts"]["rollouts"] - used) <= 0.05 * used, (values, used)
assert values["needed"] >= values["left"] == sum(values["parts"].values()), values
P
done
"$temper" grpo $disk output_dir=replayed rl.replay=disk/rollouts/step-1.jsonl.zst train.max_steps=1 > /dev/null 2>&1 || fail "a packed rollout file is not replayed"
check bad.json 2 grpo $rl "$half" "rl.save_rollouts=every" && has bad.json config fail "rl.save_rollouts: found every, expected all, none, every K or last K"

# The directory's state, and the resolved config, which names its verb.
"$temper" sft $sft train.max_steps=2 metrics.sinks=[jsonl] > /dev/null || fail "the run"
before=$(find out -type f -newer model | sort | xargs ls -l --time-style=full-iso)
check done.json 0 out/config.yaml && has done.json output_dir warn complete
check more.json 0 out/config.yaml train.max_steps=4 && has more.json output_dir warn "other settings"
check bad.json 2 dpo model.path=model data.train=pairs.jsonl output_dir=out && has bad.json output_dir fail "another verb"
check bad.json 2 dpo model.path=model data.train=pairs.jsonl output_dir=out9 resume=out/checkpoints/step-2 && has bad.json output_dir fail "another verb"
check bad.json 2 sft $sft resume=out && has bad.json output_dir fail "the newest checkpoint of out is out/checkpoints/step-2"
check native.json 0 out/config.yaml model.backend=native && has native.json output_dir warn "nothing would be trained"
grep -q "settings differ" native.json && fail "model.backend: native differs from auto: $(cat native.json)"
check other.json 0 sft $sft resume=never && has other.json output_dir warn
# Checkpoints that were damaged are found by their hashes; the newest whole one counts.
"$temper" sft $sft output_dir=hurt train.max_steps=4 train.save_every=2 > /dev/null 2>&1 || fail "a run with two checkpoints"
hurt() { python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(-3, 2); b = f.read(1); f.seek(-3, 2); f.write(bytes([b[0] ^ 1]))' "$1/policy.safetensors"; }
hurt hurt/checkpoints/step-4
check hurt.json 0 sft $sft output_dir=hurt train.max_steps=6 && has hurt.json output_dir warn "skipped a checkpoint: hurt/checkpoints/step-4/policy.safetensors"
check bad.json 2 sft $sft output_dir=hurt train.max_steps=6 resume=hurt/checkpoints/step-4 && has bad.json output_dir fail "resume=auto takes the newest whole one"
hurt hurt/checkpoints/step-2
check bad.json 2 sft $sft output_dir=hurt train.max_steps=6 && has bad.json output_dir fail "start over with resume=never"
[ "$before" = "$(find out -type f -newer model | sort | xargs ls -l --time-style=full-iso)" ] || fail "check wrote into output_dir"
"$temper" check nothing.yaml > /dev/null 2>&1
[ $? = 2 ] || fail "a config that is not there"
"$temper" check grp out/config.yaml 2>&1 | grep -q "unknown verb .grp" || fail "an unknown verb"

# Meshes, from config.json alone, of a model that fits no machine here.
mkdir huge
cat > huge/config.json <<'J'
{"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
 "num_attention_heads": 128, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": false}
J
"$temper" check sft model.path=huge train.recompute=blocks --json \
  --mesh devices=1024,memory=80GB,bandwidth=450GB/s,network=50GB/s,flops=989TFLOPS,sequence=8192,tokens=4M,bytes=2 > huge.json || fail "meshes: $(cat huge.json)"
python3 - <<'P' || fail "meshes of 405B"
import json
r = json.load(open("huge.json"))
parameters = next(c for c in r["checks"] if c["name"] == "model")["values"]["parameters"]
assert abs(parameters / 405.85e9 - 1) < 1e-3, parameters
meshes = r["meshes"]
assert all(m["data"] * m["fsdp"] * m["context"] * m["tensor"] == 1024 for m in meshes) and any(m["tensor"] == 8 for m in meshes)
assert not any(m["tensor"] == 16 for m in meshes)  # 8 key and value heads
# Every mesh computes the same: 8 operations a weight and token, with recomputation, and attention's.
least = 8 * parameters * 4e6 / 989e12 / 1024
assert all(0.95 * least < m["compute_seconds"] < 1.2 * least for m in meshes)
for m in meshes:
    assert m["step_seconds_at_least"] <= m["step_seconds_at_most"] * (1 + 1e-9)
    if m["fsdp"] == 1: assert m["sent_bytes"]["fsdp"] == 0
    if m["tensor"] == 1: assert m["sent_bytes"]["tensor"] == 0
whole = next(m for m in meshes if m["fsdp"] == 1024)
one = next(m for m in meshes if m["data"] == 1024)
assert abs(one["parts"]["weights"] / whole["parts"]["weights"] / 1024 - 1) < 0.01
assert abs(one["sent_bytes"]["data"] / (2 * 4 * parameters) - 1) < 0.01  # ZeRO's 2 Ψ
P
"$temper" check sft model.path=huge --mesh devices=8,flops=1GFLOPS | grep -q "does not fit" || fail "405B on 8 devices fits"
"$temper" check sft model.path=huge --mesh device=8 2>&1 | grep -q "did you mean .devices" || fail "--mesh device=8"
exit $bad
