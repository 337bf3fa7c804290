// JSON values with insertion order kept (templates and tools see it), parsed from hostile text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace temper {

using Json = nlohmann::ordered_json;

// Parses one JSON document in O(n log n) time. Nesting is bounded (512) so that no input exhausts
// the stack, and text must be valid UTF-8. Where a key occurs twice in an object the last value
// stands in the first one's place, as in Python. Looking up a key takes time linear in the object's
// members. Throws DataError("WHERE: ...") with the position and the cause; `where` is "FILE:LINE"
// or a file's path.
//
// An integer beyond 64 bits becomes the nearest double, or under kKept a binary value that holds
// its decimal digits, which dump_json() and chat templates print as they were.
enum class BigIntegers { kDoubles, kKept };
Json parse_json(std::string_view text, std::string_view where,
                BigIntegers big = BigIntegers::kDoubles);

// Reads and parses a whole file of at most `max_bytes`; errors name the path.
Json read_json_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

// One line of JSON without insignificant space. Invalid UTF-8 is replaced by U+FFFD rather than
// thrown.
std::string dump_json(const Json& value);

// The value that a field has, or, where the object has no field of that name, the one that a path
// within it ("meta.domain") leads to; null where there is none, or where it is no object.
const Json* find_field(const Json& row, std::string_view name);

// Shortest decimal that reads back to the same float32; nan and +-inf become null.
std::string float_to_json(float value);

}  // namespace temper
