#include "temper/grammar/token_bytes.h"

#include <algorithm>
#include <unordered_map>

#include "temper/base/error.h"

namespace temper::grammar {

TokenBytes token_bytes(const Tokenizer& tokenizer, int64_t vocabulary) {
  check<ConfigError>(
      tokenizer.decodes_in_parts(),
      "a grammar needs a tokenizer that decodes token by token; this one decodes the "
      "text as a whole");
  TokenBytes out;
  out.bytes.resize(static_cast<size_t>(vocabulary));
  std::unordered_map<std::string, int32_t> later;  // bytes -> the first token that adds them
  for (int32_t id = 0; id < vocabulary; ++id) {
    std::string& bytes = out.bytes[static_cast<size_t>(id)];
    bytes = tokenizer.bytes_of(id);
    if (!bytes.empty()) later.emplace(bytes, id);
  }
  std::vector<int32_t> first_as(out.bytes.size());
  bool differ = false;
  for (int32_t id = 0; id < vocabulary; ++id) {
    const size_t i = static_cast<size_t>(id);
    const std::string first = tokenizer.bytes_of(id, true);
    const auto same = later.find(first);
    first_as[i] = first == out.bytes[i] ? id
                  : first.empty()       ? TokenBytes::kNothing
                  : same == later.end() ? TokenBytes::kNoOther
                                        : same->second;
    differ = differ || first_as[i] != id;
  }
  if (differ) out.first_as = std::move(first_as);
  return out;
}

}  // namespace temper::grammar
