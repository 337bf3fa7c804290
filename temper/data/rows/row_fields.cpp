#include "temper/data/rows/row_fields.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper::data {

std::string field_names(const Json& row) {
  std::string out;
  for (const auto& [name, value] : row.items())
    out += (out.empty() ? "" : ", ") + printable_line(name);
  return "[" + out + "]";
}

void rename_columns(Json& row, const std::map<std::string, std::string>& columns,
                    const std::string& where) {
  const Json original = columns.empty() ? Json() : row;  // so that two fields can change places
  for (const auto& [name, in_file] : columns) {
    const Json* const value = find_field(original, in_file);
    check<DataError>(value != nullptr, where, ": data.columns maps `", name, "` to `", in_file,
                     "`, which the row does not have; found ", field_names(original));
    row[name] = *value;
  }
  // Tables hold a conversation as text.
  for (const char* field : {"messages", "conversations"}) {
    const auto text = row.find(field);
    if (text == row.end() || !text->is_string()) continue;
    const auto& json = text->get_ref<const std::string&>();
    if (json.find_first_not_of(" \t\r\n") == json.find('[') && json.find('[') != json.npos)
      *text = parse_json(json, temper::str(where, ": `", field, "`"));
  }
}

std::optional<Json> messages_in_text(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '[') return {};
  Json list = Json::parse(text, nullptr, false);  // no exceptions: most text is not JSON
  const bool messages =
      list.is_array() && !list.empty() &&
      std::all_of(list.begin(), list.end(), [](const Json& message) {
        return message.is_object() && ((message.contains("role") && message.contains("content")) ||
                                       (message.contains("from") && message.contains("value")));
      });
  return messages ? std::optional(std::move(list)) : std::nullopt;
}

bool has_text_messages(const Json& row, const std::map<std::string, std::string>& columns) {
  const auto is_text_messages = [&](const char* field) {
    const auto renamed = columns.find(field);
    const Json* const value = find_field(row, renamed == columns.end() ? field : renamed->second);
    return value && value->is_string() && messages_in_text(value->get_ref<const std::string&>());
  };
  constexpr std::array kFields{"prompt", "completion", "chosen", "rejected"};
  return std::any_of(kFields.begin(), kFields.end(), is_text_messages);
}

std::vector<int32_t> token_ids(const Json& list, const char* field, int64_t vocabulary,
                               const std::string& where, int64_t ignored) {
  check<DataError>(list.is_array(), where, ": `", field, "` must be a list of token ids");
  std::vector<int32_t> out;
  out.reserve(list.size());
  for (const Json& id : list) {
    // get() wraps: 2^64 - 100 would read as -100.
    const bool integer = id.is_number_integer() &&
                         (!id.is_number_unsigned() || id.get<uint64_t>() <= uint64_t{INT64_MAX});
    const int64_t value = integer ? id.get<int64_t>() : INT64_MIN;
    check<DataError>((value >= 0 && value < vocabulary) || (ignored < 0 && value == ignored), where,
                     ": `", field, "` holds ", dump_json(id), "; ids of this model are 0 to ",
                     vocabulary - 1,
                     ignored < 0 ? temper::str(", and ", ignored, " is not trained") : "");
    out.push_back(static_cast<int32_t>(value));
  }
  return out;
}

}  // namespace temper::data
