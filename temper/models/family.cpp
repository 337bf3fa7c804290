#include "temper/models/family.h"

namespace temper::models {
namespace {

Registry<Family>::Entry entry(const Family& family) {
  return {family.model_type, family, family.help};
}

Registry<Family>& table() {
  static Registry<Family> families(
      "model family", {entry(llama_family()), entry(qwen2_family()), entry(qwen3_family()),
                       entry(gemma_family()), entry(gemma2_family()), entry(gemma3_text_family())});
  return families;
}

// Whether `*` of the pattern can stand for runs of characters so that it is the name.
bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && matches(pattern.substr(1), name.substr(1));
  for (size_t i = 0; i <= name.size(); ++i)
    if (matches(pattern.substr(1), name.substr(i))) return true;
  return false;
}

}  // namespace

const Registry<Family>& families() { return table(); }

void register_family(Family family) { table().add(entry(family)); }

const Family& family_of(const HfConfig& config) {
  return families().find(config.model_type(), config.where() + ": `model_type`");
}

void unwrap_language_model(TensorMap& tensors, const HfConfig& config) {
  TensorMap plain;
  for (auto& [name, view] : tensors) {
    if (config.multimodal() && (name.find("vision_tower") != std::string::npos ||
                                name.find("multi_modal_projector") != std::string::npos))
      continue;
    std::string own = name;
    for (const auto& [prefix, replacement] :
         {std::pair<std::string_view, std::string_view>{"language_model.model.", "model."},
          {"model.language_model.", "model."},
          {"language_model.lm_head.", "lm_head."}})
      if (name.starts_with(prefix)) {
        own = std::string(replacement) + name.substr(prefix.size());
        break;
      }
    plain[own] = std::move(view);
  }
  tensors = std::move(plain);
}

std::optional<Split> split_of(const Family& family, const std::string& parameter) {
  for (const ShardRule& rule : family.shards)
    if (matches(rule.pattern, parameter)) return rule.split;
  return std::nullopt;
}

}  // namespace temper::models
