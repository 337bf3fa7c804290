#include "temper/data/rows/prompt_row.h"

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/images/row_images.h"
#include "temper/data/read/source_format.h"

namespace temper::data {
namespace {

// The name of the field with the conversation that is the prompt; null: the prompt is text or ids.
const char* conversation_field(const Json& row) {
  for (const char* ids : {"prompt_ids", "tokens"})
    if (row.contains(ids)) return nullptr;
  const char* const field = row.contains("prompt") ? "prompt" : "messages";
  return row.contains(field) && row[field].is_array() ? field : nullptr;
}

bool is_answer(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// The messages before the assistant's final turns.
Json without_answer(const Json& messages, const char* field, const std::string& where) {
  Json asked = messages;
  while (!asked.empty() && is_answer(asked.back())) asked.erase(asked.size() - 1);
  check<DataError>(!asked.empty() || messages.empty(), where, ": `", field,
                   "` has turns of the assistant alone, expected a turn that they answer");
  return asked;
}

constexpr int64_t kLargeRow = int64_t{256} << 10;  // bytes of a line
constexpr size_t kMostKept = size_t{64} << 20;     // bytes of their prompts' tokens together

// The kept tokens of large rows' prompts. Truncation keeps the end of a prompt, so all of it has to
// be tokenized: once, and not every time that the row is drawn.
class LargePrompts {
 public:
  struct Prompt {
    std::vector<int32_t> tokens;
    bool truncated = false;
  };
  std::optional<Prompt> find(const RowOrder::Drawn& drawn) {
    const std::lock_guard lock(mutex_);
    const auto found = prompts_.find({drawn.file, drawn.row});
    return found == prompts_.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const RowOrder::Drawn& drawn, Prompt prompt) {
    const std::lock_guard lock(mutex_);
    const size_t size = prompt.tokens.size() * sizeof(int32_t);
    if (bytes_ + size > kMostKept) return;
    if (prompts_.emplace(std::pair(drawn.file, drawn.row), std::move(prompt)).second)
      bytes_ += size;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<const RowSet*, int64_t>, Prompt> prompts_;
  size_t bytes_ = 0;
};

// `known`: what was kept of the prompt when the row was read before, or null.
std::optional<PromptRow> read_asked(const PromptFormat& format, Json row, const std::string& where,
                                    const LargePrompts::Prompt* known, bool* truncated) {
  PromptRow out;
  out.group = group_of(format, row, where);
  row = normalized_row(format, std::move(row), where);
  out.where = where;
  // Truncation keeps the end of a prompt, so all of it is tokenized.
  const size_t limit = format.overlong == Overlong::kDrop ? tokens_needed(format) : SIZE_MAX;
  const char* const field = conversation_field(row);
  Json placed = row;
  RowImages images =
      place_images(format, placed, field ? std::vector{field} : std::vector<const char*>(), where);
  const auto tokens = [&](const Json& asked) {
    return known ? known->tokens : prompt_tokens(format, asked, where, limit, &images);
  };
  if (field) {
    placed[field] = without_answer(placed[field], field, where);
    out.has_answer = placed[field].size() < row[field].size();
    images = images_in(placed[field], images);
    out.tokens = tokens(placed);
    out.messages = std::make_shared<const Json>(with_system_prompt(format, placed[field]));
    out.chat = format.chat;
  } else {
    out.tokens = tokens(placed);
  }
  const ImagePlaces places(format, images);
  check<DataError>(!out.tokens.empty(), where, ": the prompt has no tokens");
  const int64_t length = static_cast<int64_t>(out.tokens.size());
  if (known) *truncated = known->truncated;
  if (length > format.max_length) {
    if (format.overlong == Overlong::kDrop) return std::nullopt;
    check_truncates(format, where, "the prompt has ", length);
    const int64_t all = places.count(out.tokens);
    out.tokens.erase(out.tokens.begin(), out.tokens.end() - format.max_length);
    *truncated = true;
    if (places.count(out.tokens) < all) return std::nullopt;
  }
  out.images = spans_of(format, images, out.tokens, where);
  out.fields = std::make_shared<const Json>(std::move(row));
  return out;
}

}  // namespace

std::optional<PromptRow> read_prompt_row(const PromptFormat& format, Json row,
                                         const std::string& where, bool* truncated) {
  return read_asked(format, std::move(row), where, nullptr, truncated);
}

Loader<PromptRow>::Read prompt_reader(PromptFormat format) {
  return [format = std::move(format), large = std::make_shared<LargePrompts>()](
             const RowOrder::Drawn& drawn, LoaderState& state) {
    const bool is_large = drawn.file->row_bytes(drawn.row) >= kLargeRow;
    const auto known = is_large ? large->find(drawn) : std::nullopt;
    bool truncated = false;
    const PromptFormat own = of_source(format, *drawn.file, drawn.row);
    const Json json = drawn.file->row(drawn.row);
    std::optional<PromptRow> row =
        read_asked(own, json, drawn.file->where(drawn.row), known ? &*known : nullptr, &truncated);
    state.truncated += truncated;
    if (row) add_notices(state, own, json, drawn);
    if (row && is_large && !known) large->keep(drawn, {row->tokens, truncated});
    return row;
  };
}

}  // namespace temper::data
