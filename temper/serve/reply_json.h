// JSON as answers have it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace temper::serve {

// JSON whose floating-point numbers are float32, printed so that they read back to the same; those
// that are not finite are printed as null.
using ReplyJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       std::int64_t, std::uint64_t, float>;

std::string to_text(const ReplyJson& reply);
// {"error": {"message", "type", "code"}}
std::string error_text(int status, const std::string& message);
// prefix and 24 random digits.
std::string new_id(const std::string& prefix);

}  // namespace temper::serve
