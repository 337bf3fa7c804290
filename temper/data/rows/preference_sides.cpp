#include "temper/data/rows/preference_sides.h"

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/data/rows/row_fields.h"
#include "temper/text/chat/message_parts.h"

namespace temper::data {
namespace {

size_t common_beginning(const Json& a, const Json& b) {
  size_t same = 0;
  while (same < a.size() && same < b.size() && a[same] == b[same]) ++same;
  return same;
}

Json from(const Json& list, size_t begin, size_t end) {
  Json out = Json::array();
  for (size_t i = begin; i < end; ++i) out.push_back(list[i]);
  return out;
}

// What both begin with alike becomes the prompt, as TRL's extract_prompt(): of texts it ends before
// a space that the answers begin with, and never within a character.
void extract_prompt(PreferenceSides& sides, const std::string& where) {
  if (sides.chosen.is_array()) {
    const size_t same = common_beginning(sides.chosen, sides.rejected);
    sides.prompt = from(sides.chosen, 0, same);
    sides.chosen = from(sides.chosen, same, sides.chosen.size());
    sides.rejected = from(sides.rejected, same, sides.rejected.size());
    check<DataError>(same > 0, where,
                     ": the row has no `prompt`, and `chosen` and `rejected` have no message in "
                     "common that could be it");
    return;
  }
  const std::string chosen = sides.chosen.get<std::string>(),
                    rejected = sides.rejected.get<std::string>();
  size_t same = 0;
  while (same < chosen.size() && same < rejected.size() && chosen[same] == rejected[same]) ++same;
  while (same > 0 && same < chosen.size() && (chosen[same] & 0xc0) == 0x80) --same;
  check<DataError>(
      same > 0, where,
      ": the row has no `prompt`, and `chosen` and `rejected` begin with nothing in "
      "common that could be it; data.columns (--columns) renames fields, as in {prompt: "
      "question}");
  if (chosen[same - 1] == ' ') --same;
  sides.prompt = chosen.substr(0, same);
  sides.chosen = chosen.substr(same);
  sides.rejected = rejected.substr(same);
}

bool is_conversation(const Json& value) { return value.is_array() || value.is_object(); }

// A completion that is one message stands for a list of it.
Json listed(Json value) { return value.is_object() ? Json::array({std::move(value)}) : value; }

// A text prompt before messages: the conversation's first question, which the sides may repeat.
void join_text_prompt(PreferenceSides& sides, const std::string& where) {
  const auto begins_with_prompt = [&](const Json& messages) {
    if (messages.size() < 2 || !messages[0].is_object() || !messages[0].contains("content"))
      return false;
    const Json& content = messages[0]["content"];
    return content == sides.prompt ||
           (content.is_array() && text_of_parts(content) == sides.prompt.get<std::string>());
  };
  if (begins_with_prompt(sides.chosen) && begins_with_prompt(sides.rejected))
    return extract_prompt(sides, where);
  sides.prompt = Json::array({{{"role", "user"}, {"content", sides.prompt}}});
}

void check_not_empty(const Json& value, const char* field, const std::string& where) {
  const bool text = value.is_string(), list = value.is_array();
  check<DataError>(text || list, where, ": `", field, "` must be text or messages");
  check<DataError>(text ? !value.get_ref<const std::string&>().empty() : !value.empty(), where,
                   ": `", field, "` is empty");
}

void check_is_there(const Json& row, const char* field, const char* what,
                    const std::string& where) {
  check<DataError>(row.contains(field), where, ": the ", what, " has no `", field, "`, only ",
                   field_names(row));
  check<DataError>(!row[field].is_null(), where, ": `", field, "` is null");
}

PreferenceSides paired_sides(const Json& row, bool ids, const std::string& where) {
  const char* const names[] = {ids ? "prompt_ids" : "prompt", ids ? "chosen_ids" : "chosen",
                               ids ? "rejected_ids" : "rejected"};
  for (const char* name : {names[1], names[2]}) check_is_there(row, name, "pair", where);
  PreferenceSides sides{Json(), listed(row[names[1]]), listed(row[names[2]]), ids};
  check<DataError>(sides.chosen != sides.rejected, where, ": `", names[1], "` and `", names[2],
                   "` are equal: such a pair prefers nothing");
  check_not_empty(sides.chosen, names[1], where);
  check_not_empty(sides.rejected, names[2], where);
  check<DataError>(sides.chosen.type() == sides.rejected.type(), where,
                   ": `chosen` and `rejected` must both be text or both be messages");
  const bool has_prompt = row.contains(names[0]) && !row[names[0]].is_null();
  if (has_prompt) sides.prompt = row[names[0]];
  check<DataError>(has_prompt || !ids, where, ": the pair has no `prompt_ids`, only ",
                   field_names(row));
  if (!has_prompt)
    extract_prompt(sides, where);
  else if (!ids && sides.prompt.is_string() && is_conversation(sides.chosen))
    join_text_prompt(sides, where);
  check_not_empty(sides.chosen, names[1], where);
  check_not_empty(sides.rejected, names[2], where);
  return sides;
}

// A table's cells are text.
std::optional<bool> truth_of(const Json& label) {
  if (label.is_boolean()) return label.get<bool>();
  const std::string text =
      label.is_string() ? ascii_lower(label.get_ref<const std::string&>()) : "";
  if (label == 1 || text == "true" || text == "1") return true;
  if (label == 0 || text == "false" || text == "0") return false;
  return {};
}

PreferenceSides unpaired_sides(const Json& row, bool ids, const std::string& where) {
  const char* const completion = ids ? "completion_ids" : "completion";
  const char* const prompt = ids ? "prompt_ids" : "prompt";
  for (const char* name : {prompt, completion}) check_is_there(row, name, "row", where);
  const std::optional<bool> label = truth_of(row["label"]);
  check<DataError>(label.has_value(), where, ": `label` must be true or false");
  PreferenceSides sides{row[prompt], Json(), Json(), ids};
  Json& side = *label ? sides.chosen : sides.rejected;
  side = listed(row[completion]);
  check_not_empty(side, completion, where);
  return sides;
}

}  // namespace

PreferenceSides preference_sides(const Json& row, bool unpaired, const std::string& where) {
  if (unpaired && row.contains("label"))
    return unpaired_sides(row, row.contains("completion_ids"), where);
  const bool ids = row.contains("chosen_ids") || row.contains("rejected_ids");
  const bool pair = ids || row.contains("chosen") || row.contains("rejected");
  check<DataError>(pair, where, ": the row has ", field_names(row),
                   "; expected prompt, chosen and rejected, or prompt_ids, chosen_ids and "
                   "rejected_ids",
                   unpaired                ? ", or prompt, completion and label"
                   : row.contains("label") ? " (rows with a `label` are for preference.loss: kto)"
                                           : "",
                   "; data.columns (--columns) renames fields, as in {chosen: better}");
  return paired_sides(row, ids, where);
}

}  // namespace temper::data
