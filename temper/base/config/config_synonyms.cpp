#include "temper/base/config/config_synonyms.h"

#include <algorithm>
#include <string>
#include <vector>

namespace temper {
namespace {

std::span<const KeySynonym> synonyms_in_use;

const KeySynonym* synonym_named(std::string_view name) {
  const auto found = std::ranges::lower_bound(synonyms_in_use, name, {}, &KeySynonym::name);
  return found != synonyms_in_use.end() && found->name == name ? &*found : nullptr;
}

// "a.b.c", "b.c", "c".
std::vector<std::string_view> ends_of(std::string_view path) {
  std::vector<std::string_view> ends{path};
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
    ends.push_back(path.substr(dot + 1));
  return ends;
}

// Of the sections that the path's key is in, the inner ones first.
const KeySynonym* synonym_of_section(std::string_view path) {
  for (size_t dot = path.rfind('.'); dot != path.npos && dot > 0; dot = path.rfind('.', dot - 1))
    for (const std::string_view section : ends_of(path.substr(0, dot)))
      if (const KeySynonym* found = synonym_named(std::string(section) + ".*")) return found;
  return nullptr;
}

const KeySynonym* synonym_of_beginning(std::string_view key) {
  const auto found = std::ranges::find_if(synonyms_in_use, [&](const KeySynonym& synonym) {
    const std::string_view name = synonym.name;
    return name.ends_with('*') && !name.ends_with(".*") &&
           key.starts_with(name.substr(0, name.size() - 1));
  });
  return found != synonyms_in_use.end() ? &*found : nullptr;
}

}  // namespace

void use_key_synonyms(std::span<const KeySynonym> sorted) { synonyms_in_use = sorted; }

const KeySynonym* find_key_synonym(std::string_view path) {
  std::string plain(path);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  const std::vector<std::string_view> ends = ends_of(plain);
  const KeySynonym* found = nullptr;
  for (size_t i = 0; i + 1 < ends.size() && !found; ++i) found = synonym_named(ends[i]);
  if (!found) found = synonym_of_section(plain);
  if (!found) found = synonym_named(ends.back());
  if (!found) found = synonym_of_beginning(ends.back());
  if (!found && ends.size() > 1) found = synonym_of_beginning(ends[ends.size() - 2]);
  return found;
}

}  // namespace temper
