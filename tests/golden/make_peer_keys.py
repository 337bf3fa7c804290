#!/usr/bin/env python3
"""Writes the configuration keys of other trainers, one a line: temper/cli/synonyms/peers/NAME.txt.

    python tests/golden/make_peer_keys.py --trl TRL --transformers TRANSFORMERS --peft PEFT --verl VERL --axolotl AXOLOTL \
        --tunix TUNIX

TRL, TRANSFORMERS and PEFT are the packages' folders (trl 1.16, transformers 5.24, peft 0.21), the others checkouts of the
repositories (verl 1dda039b, axolotl 067b021c, tunix c7d8950f). Sources are parsed, not imported. A name that is missing
says so by an exception.

trl       the fields of all classes of configuration and of its command line's arguments, with transformers'
          TrainingArguments and PEFT's LoraConfig, without prefixes: a file has them at its top level
verl      the paths of its composed configurations (actor_rollout_ref.actor.optim.lr)
axolotl   the fields of its schemas; those of models that are a value of another field, as ParamConfig is, have its path
tunix     the paths of its two base configurations, and the fields of the classes that these fill
"""
import argparse
import ast
from pathlib import Path

import yaml

PEERS = Path(__file__).resolve().parents[2] / "temper/cli/synonyms/peers"
parser = argparse.ArgumentParser()
for name in ("trl", "transformers", "peft", "verl", "axolotl", "tunix"):
    parser.add_argument("--" + name, type=Path, required=True)
peers = parser.parse_args()


def fields(path, classes=None):
    """The annotated fields of a file's classes, of all or of the named ones: {class: [field, ..]}."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef) or (classes and node.name not in classes):
            continue
        found[node.name] = [s.target.id for s in node.body
                            if isinstance(s, ast.AnnAssign) and not s.target.id.startswith("_")]
    if classes and set(found) != set(classes):
        raise ValueError(f"{path}: found {sorted(found)}, expected {sorted(classes)}")
    return found


def names(path, *classes):
    return {name for group in fields(path, classes).values() for name in group}


def paths(tree, prefix=""):
    """The paths of a tree's values; an empty map is a value."""
    if not isinstance(tree, dict) or not tree:
        return {prefix}
    return {path for key, value in tree.items() if key not in ("_target_", "defaults", "hydra")
            for path in paths(value, f"{prefix}.{key}" if prefix else str(key))}


def write(name, keys):
    PEERS.mkdir(exist_ok=True)
    (PEERS / f"{name}.txt").write_text("".join(key + "\n" for key in sorted(keys)))


trl = names(peers.transformers / "training_args.py", "TrainingArguments")
trl |= names(peers.peft / "tuners/lora/config.py", "LoraConfig")
for file in [*peers.trl.glob("trainer/*_config.py"), *peers.trl.glob("experimental/*/*_config.py")]:
    for group in fields(file).values():
        trl |= set(group)
trl |= names(peers.trl / "scripts/utils.py", "ScriptArguments", "DatasetConfig", "DatasetMixtureConfig")
write("trl", trl)

verl = set()
config = peers.verl / "verl/trainer/config"
for file in [*config.glob("_generated_*.yaml"), config / "sft_trainer_engine.yaml"]:
    verl |= paths(yaml.safe_load(file.read_text()))
for section, file in (("model", "hf_model"), ("engine", "fsdp"), ("optim", "fsdp")):  # what sft_trainer_engine composes
    verl |= paths(yaml.safe_load((config / section / f"{file}.yaml").read_text()), section)
write("verl", verl)

# The sections that hold the models which are values of fields; the others are the top level's.
SECTIONS = dict(EBFTConfig="ebft", TRLConfig="trl", VllmConfig="vllm", QATConfig="qat", PTQConfig="quantization",
                DynamicCheckpointConfig="dynamic_checkpoint", SelectiveCheckpointingConfig="selective_checkpointing",
                FSDPConfig="fsdp_config", SpecialTokensConfig="special_tokens", SFTDataset="datasets",
                PretrainingDataset="pretraining_dataset", DPODataset="datasets", KTODataset="datasets",
                StepwiseSupervisedDataset="datasets", SyntheticDataset="datasets", UserDefinedPrompterType="datasets.type",
                UserDefinedDPOType="datasets.type", UserDefinedKTOType="datasets.type", RoleBoundarySpec="role_boundaries",
                LoftQConfig="peft.loftq_config", PeftConfig="peft", LrGroup="lr_groups")
axolotl = set()
for file in (peers.axolotl / "src/axolotl/utils/schemas").glob("*.py"):
    for group, members in fields(file).items():
        axolotl |= {f"{SECTIONS[group]}.{member}" if group in SECTIONS else member for member in members}
write("axolotl", axolotl)

tunix = set()
for file in ("base_config.yaml", "base_agentic_config.yaml"):
    tunix |= paths(yaml.safe_load((peers.tunix / "tunix/cli" / file).read_text()))
for section, file, classes in (
        ("rollout_config", "common/configs.py", ["RolloutConfig"]),
        ("training_config", "common/configs.py", ["TrainingConfig"]),
        ("rl_training_config", "common/configs.py", ["RLTrainingConfig"]),
        ("grpo_config", "rl/algorithm_config.py", ["AlgorithmConfig"]),
        ("grpo_config", "rl/grpo/grpo_learner.py", ["GRPOConfig"]),
        ("grpo_config", "rl/grpo/dapo_learner.py", ["DAPOConfig"]),
        ("grpo_config", "rl/grpo/drgrpo_learner.py", ["DrGRPOConfig"]),
        ("ppo_config", "rl/ppo/ppo_learner.py", ["PPOConfig"]),
        ("agentic_grpo_config", "rl/agentic/agentic_rl_learner.py", ["AgenticRLConfig"]),
        ("agentic_grpo_config", "rl/agentic/agentic_grpo_learner.py", ["GRPOConfig"]),
        ("training_config.checkpointing_options", "sft/checkpoint_options.py", ["CheckpointingOptions"]),
        ("training_config.metrics_logging_options", "sft/metrics_logger.py", ["MetricsLoggerOptions"]),
        ("training_config.profiler_options", "sft/profiler.py", ["ProfilerOptions"]),
        ("training_config.perf_metrics_options", "perf/metrics.py", ["PerfMetricsOptions"])):
    tunix |= {f"{section}.{name}" for name in names(peers.tunix / "tunix" / file, *classes)}
write("tunix", tunix)
