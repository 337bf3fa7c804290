# Recipes for clusters: the Slurm script runs under a stand-in for srun, the Kubernetes manifest says one thing
# throughout.
# Part of `make test`.
source "$(dirname "$0")/common.sh" "$1"
recipes=${TEMPER_SOURCE_DIR:?}/configs/cluster
export OMP_NUM_THREADS=1
bash -n "$recipes/slurm.sh" || fail "slurm.sh is no shell script"

small_model
for i in 1 2 3 4 5 6 7 8; do echo "{\"input_ids\": [$i, 5, 6, 7, $i, 9]}"; done > rows.jsonl
echo "{output_dir: one, model: {path: model}, data: {train: rows.jsonl}, train: {max_steps: 2, batch_size: 4}, metrics: {sinks: [jsonl]}}" > run.yaml
mkdir bin
cat > bin/scontrol <<'S'
#!/bin/bash
[ "$1 $2 $3" = "show hostnames host[1-2]" ] && printf '127.0.0.1\nhost2\n'
S
cat > bin/srun <<'S'
#!/bin/bash
# srun OPTIONS PROGRAM ARGUMENTS: two tasks.
while [[ $1 = -* ]]; do shift; done
export SLURM_NTASKS=2
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & 
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" && wait $!
S
chmod +x bin/*
"$temper" sft run.yaml > one.log 2>&1 || fail "one rank: $(cat one.log)"
PATH=$PWD/bin:$PATH SLURM_JOB_NODELIST='host[1-2]' SLURM_JOB_ID=$$ SLURM_CPUS_PER_TASK=1 SLURM_NTASKS_PER_NODE=2 TEMPER=$temper \
  bash "$recipes/slurm.sh" sft run.yaml output_dir=two mesh.fsdp=2 > two.log 2>&1 || fail "two tasks: $(cat two.log)"
grep -q "fsdp: 2" two/config.yaml || fail "the arguments did not reach the ranks"
python3 "$TEMPER_SOURCE_DIR/tests/e2e/same_losses.py" one/metrics.jsonl two/metrics.jsonl || fail "two tasks have other losses"
bash "$recipes/slurm.sh" > /dev/null 2>&1
[ $? = 2 ] || fail "slurm.sh without arguments"

# What must agree in the manifest. (Its schema was checked with kubernetes-validate when it was written.)
python3 -c 'import yaml' 2> /dev/null || { echo "skipped: no PyYAML to read kubernetes.yaml with"; exit $bad; }
python3 - "$recipes/kubernetes.yaml" <<'P' || fail kubernetes.yaml
import sys, yaml
service, job = list(yaml.safe_load_all(open(sys.argv[1])))
assert (service["apiVersion"], service["kind"]) == ("v1", "Service") and (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
spec, pod = job["spec"], job["spec"]["template"]["spec"]
assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
labels = spec["template"]["metadata"]["labels"]
assert all(labels[k] == v for k, v in service["spec"]["selector"].items())
assert pod["subdomain"] == service["metadata"]["name"] and pod["restartPolicy"] == "Never"
container = pod["containers"][0]
env = {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}
assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == int(env["WORLD_SIZE"])
assert env["RANK"]["fieldRef"]["fieldPath"] == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
# The host name of an indexed Job's pod is JOB-INDEX; the headless service makes JOB-INDEX.SERVICE of it.
assert env["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
assert int(env["MASTER_PORT"]) == service["spec"]["ports"][0]["port"]
assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
product = int([a for a in container["args"] if a.startswith("mesh.fsdp=")][0].split("=")[1])
assert int(env["WORLD_SIZE"]) % product == 0
mounts = {m["name"] for m in container["volumeMounts"]}
assert mounts == {v["name"] for v in pod["volumes"]}
P
exit $bad
