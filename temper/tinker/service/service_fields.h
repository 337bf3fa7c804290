// Fields that several routes of the Tinker API read.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>

#include "temper/http/server.h"
#include "temper/serve/asked.h"
#include "temper/tinker/futures.h"

namespace temper::tinker {

// Whose fault it is.
FailureCategory category_of(const std::exception& e);

inline std::optional<int64_t> seq_of(serve::Members& members) {
  return members.integer("seq_id", 1, INT32_MAX);
}

// Throws DataError where a request does not say the id of what it is about. giver: the request
// whose answer has it.
inline void check_named(const char* key, const std::string& id, const char* giver) {
  check<DataError>(!id.empty(), "`", key, "`: missing, expected the one that ", giver, " gave");
}

// The body's JSON object; an empty body is one without members. Throws DataError.
inline Json body_of(http::Exchange& exchange) {
  Json body = exchange.body().empty() ? Json::object() : parse_json(exchange.body(), "body");
  if (!body.is_object()) throw DataError("body: expected a JSON object");
  return body;
}

// What a client says of what it makes; null: nothing.
inline Json metadata_of(const Json* value) {
  constexpr const char* kKey = "user_metadata";
  constexpr size_t kMost = size_t{64} << 10;
  if (!value) return Json();
  if (!value->is_object()) serve::wrong(kKey, *value, "an object");
  const size_t size = dump_json(*value).size();
  check<DataError>(size <= kMost, "`", kKey, "`: found ", size, " bytes, expected at most ", kMost);
  return *value;
}

}  // namespace temper::tinker
