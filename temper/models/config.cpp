#include "temper/models/config.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper {

template <>
inline constexpr std::array enum_names<models::ModelSection::Dtype> = {"float32", "bfloat16"};
template <>
inline constexpr std::array enum_names<models::ModelSection::Vision> = {"frozen", "projector",
                                                                        "train", "none"};
template <>
inline constexpr auto enum_names<models::StorageName> = [] {
  std::array<const char*, ops::kStorageNames.size() + 1> names{};
  std::copy(ops::kStorageNames.begin(), ops::kStorageNames.end(), names.begin());
  names.back() = models::kFileStorage;
  return names;
}();
template <>
inline constexpr auto enum_names<ops::Arithmetic> = ops::kArithmeticNames;
template <>
inline constexpr std::array enum_names<models::AdapterSection::Method> = {"none", "lora", "qlora"};

void config_detail::Traits<models::LayerPatterns>::read(const YamlNode& node,
                                                        const std::string& path, const Rule& rule,
                                                        models::LayerPatterns& value) {
  value.list.clear();
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind != YamlNode::Kind::kMap) fail(node, path, "a map of numbers, as in {down_proj: 8}");
  for (const YamlNode::Entry& entry : node.entries) {
    models::LayerPattern& pattern = value.list.emplace_back(entry.key, 0);
    read_value(entry.value, path + "." + entry.key, rule, pattern.value);
  }
}

YamlNode config_detail::Traits<models::LayerPatterns>::write(models::LayerPatterns& value) {
  if (value.list.empty()) return YamlNode::null();
  YamlNode map = YamlNode::map();
  for (const models::LayerPattern& p : value.list)
    map.entries.push_back({p.pattern, {}, write_value(p.value), {}});
  return map;
}

void config_detail::Traits<models::TrainTokens>::read(const YamlNode& node, const std::string& path,
                                                      const Rule& rule,
                                                      models::TrainTokens& value) {
  value = {};
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind == YamlNode::Kind::kList)
    return Traits<std::vector<std::string>>::read(node, path, rule, value.texts);
  std::string text;
  read_value(node, path, rule, text);
  value.all_new = text == "new";
  if (!value.all_new) fail(node, path, "new, or a list of tokens' texts");
}

YamlNode config_detail::Traits<models::TrainTokens>::write(models::TrainTokens& value) {
  if (value.all_new) return write_value(std::string("new"));
  return value.texts.empty() ? YamlNode::null()
                             : Traits<std::vector<std::string>>::write(value.texts);
}

}  // namespace temper

namespace temper::models {

std::vector<std::string> storage_names() {
  std::vector<std::string> names(ops::kStorageNames.begin(), ops::kStorageNames.end());
  names.emplace_back(kFileStorage);
  return names;
}

std::string storage_help() {
  std::string help;
  for (size_t i = 0; i < ops::kStorageNames.size(); ++i) {
    const std::string_view covers = ops::kWeightFormats[i].covers;
    help += temper::str(help.empty() || help.back() != ')' ? "" : ", ", ops::kStorageNames[i]);
    help += covers == ops::kWeightFormats[i + 1].covers ? " or " : temper::str(" (", covers, ")");
  }
  return temper::str(help, ", ", kFileStorage, " (quantized weights stay in their files' format)");
}

std::string four_bit_names() {
  std::string names;
  for (size_t i = 0; i < ops::kStorageNames.size(); ++i)
    if (const ops::FormatRow& row = ops::kWeightFormats[i]; row.bits == 4 && !row.of_files)
      names += temper::str(names.empty() ? "" : " or ", row.name);
  return names;
}

void ModelSection::fields(Fields& f) {
  f.add("path", path,
        "directory of a Hugging Face model, a .gguf file, or a model's id in the local cache; "
        "required",
        reads(InputFiles::kBase));
  f.add("tokenizer", tokenizer,
        "for a .gguf file: a directory with tokenizer.json, whose tokenizer and chat template "
        "replace the file's",
        reads(InputFiles::kTokenizer));
  f.add("new_tokens", new_tokens,
        "tokens to add to the vocabulary, not special, with ids after the last one; their rows of "
        "embedding and head begin as the mean of all other rows");
  f.add(
      "dtype", dtype,
      "dtype of weights in matrix products, and of frozen weights; sums, activations, master "
      "weights and optimizer state stay float32. Default: float32 on the CPU; elsewhere bfloat16, "
      "with arithmetic fast");
  f.add("arithmetic", arithmetic,
        "how matrices are multiplied; sums are float32. exact: by activations and gradients in "
        "float32; fast: bfloat16 weights by those rounded to bfloat16; amx: the same in the order "
        "of Intel's AMX, for quantized weights, too, fastest on processors that have it; integer: "
        "quantized weights, in the forward pass, by activations rounded to 8 bits");
  f.add("device", device,
        "device on which the model computes: auto, cpu, cuda or cuda:N; auto: a GPU where this "
        "program "
        "and machine have one, else the CPU",
        outside_digest());
  f.add(
      "backend", backend,
      "implementation of the operations: native (CPU kernels; results do not depend on the batch), "
      "aten (LibTorch's operators), or auto: what TEMPER_BACKEND names, else native on the CPU, "
      "aten elsewhere",
      outside_digest(one_of({"auto", "native", "aten"})));
  f.add("storage", storage,
        "storage format of the policy's frozen weights: " + storage_help() +
            "; the rest follows dtype, and so does a reference model or teacher of its own; null: "
            "file, or nf4 under qlora on a base that is not quantized");
  f.add("vision", vision,
        "of a model that reads images: frozen (only the language model trains), projector (what "
        "maps the vision tower's features to it, too), train (all), or none (the language model "
        "alone, read and written as a text model)");
}
void AdapterSection::fields(Fields& f) {
  f.add(
      "method", method,
      "none: full fine-tuning; lora; qlora: LoRA on a quantized base (in nf4, or in the format of "
      "quantized files)");
  f.add("rank", rank, "rank of the update", at_least(1));
  f.add("alpha", alpha, "the update is scaled by alpha / rank", above(0));
  f.add("dropout", dropout, "dropout probability on the adapter's input", fraction());
  f.add("target_modules", target_modules,
        "all-linear, names of linear layers, or one regular expression that matches whole paths, "
        "as in '.*layers\\.[01]\\..*_proj'",
        one_or_list());
  f.add("rank_pattern", rank_pattern,
        "ranks of layers by regular expressions that match the ends of their paths, as in "
        "{down_proj: 8}; the first match counts, other layers have adapter.rank",
        above(0));
  f.add("alpha_pattern", alpha_pattern, "as rank_pattern, for alpha", above(0));
  f.add("use_rslora", use_rslora, "scale by alpha / sqrt(rank)");
  f.add("use_dora", use_dora, "DoRA: train magnitude and direction of the weights separately");
  f.add("modules_to_save", modules_to_save,
        "modules that are fully trained and saved with the adapter: embed_tokens, lm_head",
        one_or_list());
  f.add("train_tokens", train_tokens,
        "tokens whose embeddings (and rows of a tied head) train beside the adapter, PEFT's "
        "trainable_token_indices: new, all of model.new_tokens, or a list of texts that are one "
        "token each");
  f.add("loraplus_ratio", loraplus_ratio,
        "LoRA+: ratio of the learning rates of B (and DoRA's magnitudes) and A", above(0));
  f.add("path", path,
        "a PEFT adapter to continue training; rank, alpha and modules are read from it",
        reads(InputFiles::kAdapter));
}

}  // namespace temper::models
