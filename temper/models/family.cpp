#include "temper/models/family.h"

#include <algorithm>

#include "temper/models/decoder.h"
#include "temper/models/files/new_tokens.h"

namespace temper::models {
namespace {

Registry<Family>& table() {
  static Registry<Family> families("model family");
  return families;
}

}  // namespace

const Registry<Family>& families() { return table(); }

void register_family(const Family& family) {
  table().add({family.model_type, family, family.help, family.paper});
}

namespace {

// The known family whose name begins as `type` does for longest, of those the shortest name; "": no
// name begins alike.
std::string nearest_family(const std::string& type) {
  std::string nearest;
  size_t longest = 2;  // letters that two names share by chance
  for (const std::string& name : families().names()) {
    const auto differ = std::mismatch(name.begin(), name.end(), type.begin(), type.end());
    const auto shared = static_cast<size_t>(differ.first - name.begin());
    if (shared < longest || (shared == longest && name.size() >= nearest.size())) continue;
    longest = shared;
    nearest = name;
  }
  return longest > 2 ? nearest : "";
}

}  // namespace

int64_t vocabulary_of(const std::string& directory) {
  const HfConfig config = HfConfig::load(directory);
  return family_of(config).config(config).vocab_size;
}

const Family& family_of(const HfConfig& config) {
  const std::string type = config.model_type().substr(0, 80);  // a name from a file
  if (families().contains(type)) return families().find(type);
  std::string all;
  for (const std::string& name : families().names()) all += (all.empty() ? "" : ", ") + name;
  const std::string nearest = nearest_family(type);
  config.fail("model_type", str("unknown model family `", type, "`; expected one of ", all,
                                nearest.empty() ? "" : "; the nearest is `" + nearest + "`",
                                "; CONTRIBUTING.md says how to add a family"));
}

std::unique_ptr<Backbone> make_body(const HfConfig& config) {
  const Family& family = family_of(config);
  std::unique_ptr<Backbone> body = family.make(family.config(config));
  body->set_family(family);
  body->set_new_tokens(new_tokens_of(config.directory()));
  return body;
}

void restore_names(const Backbone& body, NamedTensors& tensors) {
  if (body.family() && body.family()->restore) body.family()->restore(tensors);
}

void unwrap_language_model(TensorMap& tensors, const HfConfig& config) {
  TensorMap plain;
  for (auto& [name, view] : tensors) {
    const auto is_of = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (config.multimodal() &&
        (is_of("visual.") || is_of("vision_model.") || is_of("connector.") ||
         is_of("vision_tower") || is_of("audio_tower") || is_of("multi_modal_projector") ||
         is_of("embed_vision") || is_of("embed_audio")))
      continue;
    std::string own = name;
    for (const auto& [body, head] : kLanguagePrefixes) {
      if (name.starts_with(body)) own = "model." + name.substr(std::string_view(body).size());
      if (*head != 0 && name.starts_with(std::string(head) + "lm_head."))
        own = name.substr(std::string_view(head).size());
    }
    plain[own] = std::move(view);
  }
  tensors = std::move(plain);
}

}  // namespace temper::models
