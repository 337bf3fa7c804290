// Fields that several routes of the Tinker API read.
#pragma once

#include <cstdint>
#include <optional>

#include "temper/serve/asked.h"

namespace temper::tinker {

inline std::optional<int64_t> seq_of(serve::Members& members) {
  return members.integer("seq_id", 1, INT32_MAX);
}

inline Json object_or_null(const Json* value, const char* key) {
  if (!value) return Json();
  if (!value->is_object()) serve::wrong(key, *value, "an object");
  return *value;
}

}  // namespace temper::tinker
