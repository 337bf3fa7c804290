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
#include "temper/generate/sampling/option_table.h"
#include "temper/grammar/spec.h"
#include "temper/ops/layers/attention.h"

namespace temper {

template <>
inline constexpr std::array enum_names<ops::CacheDtype> = {"float32", "float16", "bfloat16"};

}  // namespace temper

namespace temper::generate {

// {"11": "-5"}. Throws ConfigError naming the key.
LogitBias read_logit_bias(const std::map<std::string, std::string>& bias, const std::string& key);

// At most one of them; null: none. The keys name them in errors. Throws ConfigError.
std::shared_ptr<const grammar::Spec> grammar_spec(const GrammarChoice& given,
                                                  const std::string& schema_key,
                                                  const std::string& regex_key,
                                                  const std::string& grammar_key);

constexpr const char* name_of(ops::CacheDtype dtype) {
  return enum_names<ops::CacheDtype>[static_cast<size_t>(dtype)];
}

}  // namespace temper::generate
