// Fields of rows, read with what is wrong with them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"

namespace temper::data {

// data.columns: each of the format's fields takes the value of the file's field, or of a field of
// an object in it (`reward_model.ground_truth`); that one stays too. A conversation that is the
// JSON text of its messages becomes the messages. Throws DataError.
void rename_columns(Json& row, const std::map<std::string, std::string>& columns,
                    const std::string& where);

// "[prompt, answer]": the row's fields, for messages.
std::string field_names(const Json& row);

// The list of messages (of `role` and `content`, or ShareGPT's `from` and `value`) whose JSON the
// text is; nullopt: other text.
std::optional<Json> messages_in_text(const std::string& text);
// Whether the row's prompt, completion, chosen or rejected, under the name that `columns` gives, is
// such text. It is trained as plain text, brackets and all, which is rarely meant.
bool has_text_messages(const Json& row, const std::map<std::string, std::string>& columns);

// A list of ids in [0, vocabulary), or `ignored` (below 0) where that is allowed. Throws DataError.
std::vector<int32_t> token_ids(const Json& list, const char* field, int64_t vocabulary,
                               const std::string& where, int64_t ignored = 0);

}  // namespace temper::data
