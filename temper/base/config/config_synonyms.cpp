#include "temper/base/config/config_synonyms.h"

#include <algorithm>
#include <string>

namespace temper {
namespace {

std::span<const KeySynonym> synonyms_in_use;

}  // namespace

void use_key_synonyms(std::span<const KeySynonym> sorted) { synonyms_in_use = sorted; }

const KeySynonym* find_key_synonym(std::string_view name) {
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  const auto found =
      std::lower_bound(synonyms_in_use.begin(), synonyms_in_use.end(), std::string_view(plain),
                       [](const KeySynonym& s, std::string_view n) { return s.name < n; });
  return found != synonyms_in_use.end() && found->name == plain ? &*found : nullptr;
}

}  // namespace temper
