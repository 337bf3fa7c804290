#!/usr/bin/env python3
"""Makes tests/golden/config_mutations.json: what transformers makes of every key of every family's config changed alone.

    python tests/golden/make_config_mutations.py [NAME...]       (torch 2.13, transformers 5.24)

The models are those of tests/golden/models; their weights stay. Changed are, one at a time, or two where one means
nothing alone: every key of config.json and of the family's config class, each removed, null and set to other values;
every key of the rotary parameters, and whole objects of them under both of their names; the keys of config_v4.json that
config.json does not have; and keys that other families have (FOREIGN, and what their classes have). Left out is what
changes a parameter's name or shape or lacks one, which the weights give away, and what transformers refuses.

changes               set: values by JSON pointer, unset: pointers; of a multimodal model they are in text_config
rows                  whose log-probabilities are in `moved`, of the 37 of a model's expected.json
foreign               a value of each key that some family has
models.NAME.FILE      FILE is config.json or config_v4.json
  moved               by the index of a change: log-probabilities of the rows, in millionths
  same                indices of changes that move no log-probability by more than MOVED
  foreign             keys of `foreign` that move nothing (those that do are in `moved`)
"""
import copy
import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).resolve().parent
MODELS = HERE / "models"
ROWS = (9, 21, 36)  # late in the first sequence, its last, the last of the third
MOVED = 2e-6  # in the log-probability of any token
MULTIMODAL = ("gemma3", "gemma4", "mistral3", "qwen3_5")
# Not of the model: names, formats, and what a forward pass returns.
NOT_CHANGED = {"model_type", "architectures", "dtype", "torch_dtype", "transformers_version", "auto_map", "return_dict",
               "quantization_config", "_name_or_path", "vision_config", "audio_config", "text_config", "id2label",
               "label2id", "problem_type", "rope_parameters", "rope_scaling", "per_layer_config", "output_hidden_states",
               "output_attentions", "is_encoder_decoder", "_experts_implementation", "_attn_implementation"}
ACTIVATIONS = ["gelu", "relu", "gelu_pytorch_tanh", "silu", "gelu_new", "relu2"]
VALUES = dict(hidden_act=ACTIVATIONS, hidden_activation=ACTIVATIONS, rms_norm_eps=[0.05, 0.5], layer_norm_eps=[0.05, 0.5],
              norm_eps=[0.05, 0.5], attn_logit_softcapping=[1.5, 4.0], final_logit_softcapping=[1.5, 4.0],
              query_pre_attn_scalar=[4, 64], sliding_window=[3, 8, 100, None], use_sliding_window=[True, False],
              max_window_layers=[0, 1], sliding_window_pattern=[2, 3], use_bidirectional_attention=[True, False, "all"],
              no_rope_layers=[[1, 1, 0, 0], [0, 0, 0, 0], [0, 1], []], no_rope_layer_interval=[2, 3], mlp_only_layers=[[]],
              layer_types=[], max_position_embeddings=[64, 256], attention_multiplier=[0.1, 1.0], rope_theta=[77.0, 12345],
              partial_rotary_factor=[0.5, 0.75, 0.25], clip_qkv=[0.5], full_attn_idxs=[[0, 1]], rope_interleave=[True, False],
              original_max_position_embeddings=[8, 64], swiglu_limit=[0.5, 3.0], swiglu_alpha=[1.0, 2.0],
              routed_scaling_factor=[0.5, 2.5], attention_k_eq_v=[True], alpha=[1.0, 50.0], factor=[1.0, 3.0],
              long_factor=[[2.0, 3.0, 4.0]], short_factor=[[1.0, 1.5, 2.5]], rope_type=["default", "linear", "nonsense"],
              truncate=[True, False], attention_factor=[0.7, 1.3], mscale=[0.5], mscale_all_dim=[0.5],
              llama_4_scaling_beta=[0.1, 1.0], is_causal=[False, True])
# Keys that files have, or that some family of transformers reads.
FOREIGN = dict(is_causal=False, rope_theta=77.0, partial_rotary_factor=0.5, rope_local_base_freq=50.0, use_qk_norm=True,
               sliding_window_pattern=2, original_max_position_embeddings=8, rotary_pct=0.5, attention_chunk_size=4,
               qk_norm=True, rope_interleaved=True, seq_length=16, mup_width_multiplier=2.0, attention_sink=True,
               query_pre_attn_scalar=4, residual_dropout=0.3, embd_pdrop=0.3, resid_pdrop=0.3, attention_dropout=0.3,
               use_bidirectional_attention=True, attn_temperature_tuning=True, floor_scale=4, attn_scale=0.5,
               attention_multiplier=0.1, softcap=2.0, parallel_attn=True, use_parallel_residual=True, n_mtp=1)


def auto_class(name):
    return transformers.AutoModelForImageTextToText if name in MULTIMODAL else transformers.AutoModelForCausalLM


def log_probabilities(model, sequences):
    parts = []
    for ids in sequences:
        x = torch.tensor([ids])
        logits = model(input_ids=x, use_cache=False).logits[0, :-1]
        parts.append(torch.log_softmax(logits.float(), -1).gather(1, x[0, 1:, None])[:, 0])
    return torch.cat(parts).double()


class Golden:
    def __init__(self, name):
        self.name, self.directory = name, MODELS / name
        self.sequences = json.loads((self.directory / "expected.json").read_text())["sequences"]
        model = self.pretrained(self.directory)
        self.weights = model.state_dict()
        self.shapes = {k: v.shape for k, v in self.weights.items()}
        self.logp = log_probabilities(model, self.sequences)

    def pretrained(self, directory):
        model, loading = auto_class(self.name).from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                               output_loading_info=True)
        assert not loading["missing_keys"], loading  # which it would draw at random
        return model.eval()

    @torch.no_grad()
    def of(self, config, tied_anew):
        """Log-probabilities, or None where transformers refuses the config, or the weights are not its."""
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch)
            (scratch / "config.json").write_text(json.dumps(config))
            try:
                made = auto_class(self.name).from_config(transformers.AutoConfig.from_pretrained(scratch),
                                                         attn_implementation="eager").float().eval()
                if {k: v.shape for k, v in made.state_dict().items()} != self.shapes:
                    return None
                if tied_anew:
                    (scratch / "model.safetensors").symlink_to(self.directory / "model.safetensors")
                    made = self.pretrained(scratch)
                else:
                    made.load_state_dict(self.weights)
                found = log_probabilities(made, self.sequences)
            except Exception:  # of any kind: what it does not take is not compared
                return None
        return found if found.isfinite().all() else None


def text_of(config):
    return config["text_config"] if isinstance(config.get("text_config"), dict) else config


def changed(config, change):
    config = copy.deepcopy(config)
    for pointer, value in change.get("set", {}).items():
        inner = text_of(config)
        *path, last = pointer.split("/")[1:]
        for key in path:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[last] = copy.deepcopy(value)
    for pointer in change.get("unset", []):
        *path, last = pointer.split("/")[1:]
        inner = text_of(config)
        for key in path:
            inner = inner.get(key, {}) if isinstance(inner, dict) else {}
        inner.pop(last, None)
    return config


def other_values(key, value):
    if key in VALUES:
        return VALUES[key]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value // 2] if value > 1 else [value + 1]
    if isinstance(value, float):
        return [value * 0.5, value * 2 + 0.1] if value else [0.3]
    if isinstance(value, str):
        return ["other"]
    if isinstance(value, list):
        return [value[::-1], []]
    return [True, 3, 0.5]


def layer_lists(types):
    kinds = [k for k in ("full_attention", "sliding_attention") if k in types] or ["full_attention"]
    if "sliding_attention" in kinds or all(t == "full_attention" for t in types):
        kinds = ["full_attention", "sliding_attention"]
        for kind in kinds:
            yield [kind] * len(types)
        yield [kinds[t == kinds[0]] for t in types]
        yield [kinds[i % 2] for i in range(len(types))]
        yield ["sliding_attention"] + ["full_attention"] * (len(types) - 1)
    yield types[::-1]


def ropes(pairs):
    """Whole objects of rotary parameters."""
    yarn = dict(rope_type="yarn", factor=4.0)
    yield {}
    yield dict(rope_theta=77.0)
    yield dict(rope_type="default", rope_theta=77.0)
    yield dict(rope_type="default", rope_theta=77.0, partial_rotary_factor=0.5)
    yield dict(rope_type="linear", factor=3.0)
    yield dict(type="linear", factor=3.0, rope_theta=77.0)
    yield dict(rope_type="dynamic", factor=3.0)
    yield dict(rope_type="dynamic", factor=3.0, alpha=50.0)
    yield yarn
    yield yarn | dict(original_max_position_embeddings=16)
    yield yarn | dict(original_max_position_embeddings=16, beta_fast=3, beta_slow=0.5, truncate=False, rope_theta=77.0)
    yield yarn | dict(original_max_position_embeddings=16, attention_factor=0.7)
    yield yarn | dict(original_max_position_embeddings=16, mscale=0.8, mscale_all_dim=0.5)
    yield yarn | dict(original_max_position_embeddings=16, beta_fast=None, beta_slow=None, attention_factor=None)
    yield dict(rope_type="yarn", factor=None, original_max_position_embeddings=16)
    yield dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0)
    yield dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
    longrope = dict(rope_type="longrope", short_factor=[1.0 + 0.5 * i for i in range(pairs)],
                    long_factor=[2.0 + i for i in range(pairs)])
    yield longrope
    yield longrope | dict(factor=4.0)
    yield longrope | dict(original_max_position_embeddings=32)
    yield longrope | dict(attention_factor=0.7, original_max_position_embeddings=32)
    yield dict(rope_type="proportional", partial_rotary_factor=0.5)
    yield dict(rope_type="proportional", factor=2.0)
    nested = dict(full_attention=yarn | dict(original_max_position_embeddings=16, rope_theta=77.0),
                  sliding_attention=dict(rope_type="default", rope_theta=30.0))
    yield nested
    yield dict(full_attention=dict(rope_type="linear", factor=3.0))
    yield dict(sliding_attention=dict(rope_type="linear", factor=3.0))
    yield dict(full_attention=dict(rope_type="default", rope_theta=77.0), sliding_attention=None)


def own_keys(directory, config):
    """Keys of the file and of the class with the values that hold."""
    made = transformers.AutoConfig.from_pretrained(directory).get_text_config()
    keys = {k: made.__dict__.get(k) for k in made.__dataclass_fields__}
    keys.update(text_of(config))
    return {k: v for k, v in keys.items() if k not in NOT_CHANGED}


def changes_of(golden, config, keys, only_new):
    inner = text_of(config)
    plain = json.loads((golden.directory / "config.json").read_text())
    rotary_width = inner.get("qk_rope_head_dim") or inner.get("head_dim") or inner["hidden_size"] // inner["num_attention_heads"]
    if not only_new:
        for key, value in keys.items():
            pointer = "/" + key
            if key in inner:
                yield dict(unset=[pointer])
            lists = layer_lists(inner["layer_types"]) if key == "layer_types" and inner.get("layer_types") else ()
            for other in [None, *other_values(key, value), *lists]:
                if other != inner.get(key, value) or type(other) is not type(inner.get(key, value)) or other is None:
                    yield dict(set={pointer: other})
    else:
        for key, value in inner.items():
            if key in NOT_CHANGED or key in plain:
                continue
            yield dict(unset=["/" + key])
            for other in other_values(key, value):
                yield dict(set={"/" + key: other})
    section = "rope_parameters" if inner.get("rope_parameters") else "rope_scaling"
    found = inner.get(section) or {}
    nested = any(isinstance(v, dict) for v in found.values())
    for path, part in (((f"{section}/{k}", v) for k, v in found.items()) if nested else ((section, found),)):
        extra = dict(rope_theta=300.0, partial_rotary_factor=1.0, rope_type="default", factor=1.0, truncate=True,
                     original_max_position_embeddings=128, attention_factor=1.0, llama_4_scaling_beta=0.0, alpha=0.0)
        for key, value in (extra | part).items():
            pointer = f"/{path}/{key}"
            if key in part:
                yield dict(unset=[pointer])
            for other in other_values(key, value):
                if other != part.get(key):
                    yield dict(set={pointer: other})
    both = ["/rope_parameters", "/rope_scaling"]
    yield dict(unset=both)
    for pointer in both:
        yield dict(set={pointer: None})
        for rope in ropes(rotary_width // 2):
            # of another form they stand alone: beside the file's own keys, the longer list is tried
            yield dict(set={pointer: rope})
            if rope.get("rope_type") in ("yarn", "llama3", "longrope"):
                yield dict(set={pointer: rope, "/original_max_position_embeddings": 8
                                if rope["rope_type"] != "longrope" else 64})
            if rope.get("rope_type") in ("linear", "yarn") and "rope_theta" not in rope:
                yield dict(set={pointer: rope, "/rope_theta": 77.0})
                yield dict(set={pointer: rope, "/rope_theta": 77.0}, unset=[p for p in both if p != pointer])
            if "full_attention" in rope or "sliding_attention" in rope or rope.get("rope_type") == "linear":
                yield dict(set={pointer: rope}, unset=[p for p in both if p != pointer])
    for key, value in (("rope_theta", 77.0), ("partial_rotary_factor", 0.5), ("rope_local_base_freq", 50.0)):
        yield dict(set={"/" + key: value}, unset=both)
    if not only_new and "layer_types" not in keys:  # mistral becomes another family with them
        kinds = ["full_attention", "sliding_attention"]
        for types in layer_lists([kinds[i % 2] for i in range(inner["num_hidden_layers"])]):
            yield dict(set={"/layer_types": types})
            yield dict(set={"/layer_types": types, "/sliding_window": 5})
    if "sliding_window" in keys:
        for key, value in (("use_sliding_window", True), ("use_sliding_window", False), ("max_window_layers", 1),
                           ("sliding_window_pattern", 2), ("sliding_window", 3)):
            yield dict(set={"/" + key: value}, unset=["/layer_types"])
            if key != "sliding_window":
                yield dict(set={"/" + key: value, "/sliding_window": 5}, unset=["/layer_types"])
                yield dict(set={"/" + key: value, "/sliding_window": 5})
        if "use_sliding_window" in keys:
            yield dict(set={"/use_sliding_window": True, "/sliding_window": 5,
                            "/max_window_layers": 1}, unset=["/layer_types"])


class Table:
    """Changes, each with its index."""

    def __init__(self):
        self.list, self.index = [], {}

    def add(self, change):
        mark = json.dumps(change, sort_keys=True)
        if mark not in self.index:
            self.index[mark] = len(self.list)
            self.list.append(change)
        return self.index[mark]


def results(golden, file, own, foreign, table):
    base = json.loads((golden.directory / file).read_text())
    out = dict(moved={}, same=[], foreign=[])
    seen, left_out = [], 0
    for change, key in [(c, None) for c in own] + [(dict(set={"/" + k: v}), k) for k, v in foreign.items()]:
        config = changed(base, change)
        if change in seen or config == base:
            continue
        seen.append(change)
        found = golden.of(config, any("/tie_" in p for p in [*change.get("set", ()), *change.get("unset", ())]))
        if found is None:
            left_out += 1
        elif (found - golden.logp).abs().max().item() > MOVED:
            out["moved"][table.add(change)] = [round(found[row].item() * 1e6) for row in ROWS]
        elif key:
            out["foreign"].append(key)
        else:
            out["same"].append(table.add(change))
    print(golden.name, file, "tried", len(seen), "left out", left_out, "moved", len(out["moved"]), flush=True)
    return out


def main():
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    names = sorted(p.parent.name for p in MODELS.glob("*/expected.json") if "greedy" in p.read_text()
                   and "quantization_config" not in (p.parent / "config.json").read_text())
    configs = {name: json.loads((MODELS / name / "config.json").read_text()) for name in names}
    keys = {name: own_keys(MODELS / name, configs[name]) for name in names}
    foreign = dict(FOREIGN)
    for of_model in keys.values():
        for key, value in of_model.items():
            others = [v for v in other_values(key, value) if v is not None and v != value]
            if others and key not in foreign and key not in ("layer_types", "tie_word_embeddings", "vocab_size"):
                foreign[key] = others[0]
    table, models = Table(), {}
    for name in names:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        golden = Golden(name)
        models[name] = {}
        for file in ("config.json", "config_v4.json"):
            if (golden.directory / file).exists():
                base, first = json.loads((golden.directory / file).read_text()), file == "config.json"
                models[name][file] = results(golden, file, list(changes_of(golden, base, keys[name], not first)),
                                             {k: v for k, v in foreign.items() if first and k not in keys[name]}, table)
    dump = lambda value: json.dumps(value, separators=(",", ":"))
    lines = [f'"{name}":{{' + ",\n".join(f'"{f}":{dump(found)}' for f, found in models[name].items()) + "}" for name in models]
    (HERE / "config_mutations.json").write_text(
        f'{{"rows":{dump(ROWS)},\n"changes":[\n' + ",\n".join(map(dump, table.list)) + f'],\n"foreign":{dump(foreign)},\n"models":{{\n'
        + ",\n".join(lines) + "}}\n")
    print((HERE / "config_mutations.json").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
