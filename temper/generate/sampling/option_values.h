// Options of a request from what users write.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/grammar/spec.h"
#include "temper/ops/layers/attention.h"

namespace temper {

template <>
inline constexpr std::array enum_names<ops::CacheDtype> = {"float32", "float16", "bfloat16"};

}  // namespace temper

namespace temper::generate {

// {"11": "-5"}: token ids and what is added to their logits. Throws ConfigError naming the key.
std::vector<std::pair<int32_t, float>> read_logit_bias(
    const std::map<std::string, std::string>& bias, const std::string& key);

// A file of a JSON schema, a regular expression, a file of a grammar.
struct GrammarChoice {
  std::optional<std::string> json_schema, regex, grammar;
};
// At most one of them; null: none. The keys name them in errors. Throws ConfigError.
std::shared_ptr<const grammar::Spec> grammar_spec(const GrammarChoice& given,
                                                  const std::string& schema_key,
                                                  const std::string& regex_key,
                                                  const std::string& grammar_key);

constexpr const char* name_of(ops::CacheDtype dtype) {
  return enum_names<ops::CacheDtype>[static_cast<size_t>(dtype)];
}

}  // namespace temper::generate
