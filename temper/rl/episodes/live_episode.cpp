#include "temper/rl/episodes/live_episode.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::rl {
namespace {

// The messages of a row's prompt. A text is one turn of the user; ids, which no template could
// render again, give none.
Json messages_of(const data::PromptRow& row) {
  if (row.messages) return *row.messages;
  for (const char* field : {"prompt_ids", "tokens"})
    if (row.fields->contains(field)) return Json::array();
  return Json::array({{{"role", "user"}, {"content", row.fields->value("prompt", Json())}}});
}

Json joined(const Json& row_tools, const Json& added) {
  Json tools = row_tools.is_string() && !row_tools.get_ref<const std::string&>().empty()
                   ? parse_json(row_tools.get<std::string>(), "tools")
                   : row_tools;
  if (!added.is_array()) return tools;
  if (!tools.is_array()) tools = Json::array();
  for (const Json& tool : added) tools.push_back(tool);
  return tools;
}

// The system prompt is the config's, which may spell control tokens on purpose.
Json quoted_but_system_prompt(const data::PromptFormat& format, const Json& messages) {
  Json out = quoted(format, messages);
  if (!format.system_prompt.empty() && !out.empty() &&
      messages[0].value("content", Json()) == format.system_prompt)
    out[0] = messages[0];
  return out;
}

ToolCallFormat call_format(env::CallFormat asked, const Dialogue& dialogue) {
  switch (asked) {
    case env::CallFormat::kAuto:
      break;
    case env::CallFormat::kHermes:
      return ToolCallFormat::kHermes;
    case env::CallFormat::kLlama:
      return ToolCallFormat::kLlama;
    case env::CallFormat::kGemma:
      return ToolCallFormat::kGemma;
    case env::CallFormat::kMistral:
      return ToolCallFormat::kMistral;
  }
  return dialogue.call_format();
}

}  // namespace

// Those that the row's prompt has.
static data::RowImages images_of(const ImageSpans& spans) {
  data::RowImages images;
  for (const ImageSpan& span : spans) {
    if (span.first == 0) images.push_back({span.image, 0, {}});
    images.back().tokens += span.count;
  }
  return images;
}

const ChatTemplate* episode_template(const data::PromptFormat& format, const data::PromptRow& row) {
  return messages_of(row).empty() ? nullptr : format.chat.get();
}

LiveEpisode::LiveEpisode(const data::PromptFormat& format, const data::PromptRow& row,
                         const env::Observation& first)
    : images_(images_of(row.images)),
      prompt_images_(row.images),
      tokenizer_(format.tokenizer),
      quotes_(quotes_of(format)),
      vocabulary_(format.vocabulary),
      prompt_(row.tokens) {
  sees_.images = format.images;
  Json messages = quoted_but_system_prompt(format, messages_of(row));
  const bool templated = episode_template(format, row) != nullptr;
  const Json tools =
      quoted(format, templated ? joined(data::tools_of(*row.fields), first.tools) : Json());
  const Json begun = quoted(format, place(first.messages));
  if (!templated) {
    const std::vector<int32_t> added = encode(joined_contents(begun));
    prompt_.insert(prompt_.end(), added.begin(), added.end());
  } else if (!begun.empty() || first.tools.is_array()) {
    for (const Json& message : begun) messages.push_back(message);
    prompt_ = encode(format.chat->render(messages, tools, true));
    prompt_images_ = find_images(prompt_);
  }
  const int64_t length = static_cast<int64_t>(prompt_.size());
  if (length > format.max_length) {
    check<PromptTooLong>(format.overlong == data::Overlong::kTruncate, row.where,
                         ": with what the environment adds the prompt has ", length,
                         " tokens; data.max_length is ", format.max_length);
    prompt_.erase(prompt_.begin(), prompt_.end() - format.max_length);
    check<PromptTooLong>(
        prompt_images_.empty() || prompt_images_.front().begin >= length - format.max_length,
        row.where, ": data.max_length, ", format.max_length, ", cuts an image");
    prompt_images_ = spans_within(prompt_images_, length - format.max_length, length);
  }
  check_ids(prompt_);
  completion_ = GrowingCompletion(prompt_.size());
  dialogue_.emplace(tokenizer_, templated ? format.chat : nullptr, std::move(messages), tools,
                    prompt_, quotes_);
  context_images_ = prompt_images_;
}

// The messages of the environment, with their images in place.
Json LiveEpisode::place(Json messages) {
  Json row = {{"messages", std::move(messages)}};
  for (data::RowImage& image : data::place_images(sees_, row, {"messages"}, "its answer"))
    images_.push_back(std::move(image));
  return std::move(row["messages"]);
}

ImageSpans LiveEpisode::find_images(const std::vector<int32_t>& tokens) const {
  return data::spans_of(sees_, images_, tokens, "its conversation");
}

std::vector<int32_t> LiveEpisode::encode(std::string_view text) const {
  return tokenizer_->encode_first(text, SIZE_MAX, quotes_);
}

// A model may have fewer ids than its tokenizer.
void LiveEpisode::check_ids(const std::vector<int32_t>& tokens) const {
  for (const int32_t token : tokens)
    check<DataError>(token < vocabulary_, "token ", token, ", `", tokenizer_->token_of(token),
                     "`, is not one of the model's ", vocabulary_);
}

env::Turn LiveEpisode::add_turn(const generate::Completion& turn, bool ended,
                                env::CallFormat format) {
  text_ = tokenizer_->decode(completion_.tokens().tokens, true) + turn.text;
  completion_.add_turn(turn);
  turn_ = turn.tokens;
  ended_ = ended;
  const std::span<const int32_t> words(turn_.data(), turn_.size() - (ended ? 1 : 0));
  spoken_ = parse_tool_calls(call_format(format, *dialogue_), tokenizer_->decode(words));
  return {turn.text, spoken_.calls, spoken_.problems};
}

bool LiveEpisode::add_answer(const Json& messages, int64_t most) {
  const Dialogue::Continuation next =
      dialogue_->go_on(turn_, ended_, spoken_, quoted(*tokenizer_, quotes_, place(messages)));
  const int64_t kept = static_cast<int64_t>(next.kept), count = std::ssize(next.tokens);
  if (count > most) return false;
  check_ids(next.tokens);
  context_images_ = find_images(dialogue_->tokens());
  completion_.add_answer(next, spans_within(context_images_, kept, kept + count));
  return true;
}

}  // namespace temper::rl
