#include "temper/text/chat/dialogue.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "temper/base/error.h"
#include "temper/text/chat/image_parts.h"
#include "temper/text/chat/message_parts.h"
#include "temper/text/tokenizer/common_prefix.h"

namespace temper {
namespace {

// Stands for the assistant's words: no template changes it, and no one says it.
constexpr const char* kWords = "temperAssistantWords7f3a";
constexpr size_t kFirstCallId = 100'000'000;  // nine digits, as Mistral's templates want

std::string without_space(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') out += c;
  return out;
}

bool has_tool_message(const Json& messages) {
  return std::any_of(messages.begin(), messages.end(),
                     [](const Json& m) { return m.value("role", Json()) == "tool"; });
}

Json as_parts(Json content) {
  if (content.is_array()) return content;
  return Json::array({{{"type", "text"}, {"text", std::move(content)}}});
}

// Contents one after the other: texts, or parts where one of them has an image.
Json join(Json a, const Json& b) {
  if (a.is_string() && b.is_string())
    return a.get_ref<const std::string&>() + b.get_ref<const std::string&>();
  a = as_parts(std::move(a));
  for (const Json& part : as_parts(b)) a.push_back(part);
  return a;
}

// Tools' answers as the user's words, those that stand together in one message.
Json as_user_messages(const Json& answers) {
  Json out = Json::array();
  bool joins = false;
  for (const Json& message : answers) {
    const bool tool = message.value("role", Json()) == "tool";
    if (!tool) {
      out.push_back(message);
    } else {
      const bool has_images = !placed_images(Json::array({message})).empty();
      const Json said =
          has_images ? message["content"] : Json(joined_contents(Json::array({message})));
      const Json text = join(join("```tool_output\n", said), "\n```");
      if (joins)
        out.back()["content"] = join(join(out.back()["content"], "\n"), text);
      else
        out.push_back({{"role", "user"}, {"content", text}});
    }
    joins = tool;
  }
  return out;
}

// The text that the template writes after kWords where the assistant says that last.
std::string behind_words(const std::string& text) {
  const size_t found = text.rfind(kWords);
  check<DataError>(found != std::string::npos,
                   "the chat template leaves out what the assistant says");
  return text.substr(found + std::string_view(kWords).size());
}

}  // namespace

std::vector<int32_t> closing_tokens(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  const Json messages = Json::array(
      {{{"role", "user"}, {"content", "?"}}, {{"role", "assistant"}, {"content", kWords}}});
  return tokenizer.encode(behind_words(chat.render(messages, Json(), false)));
}

std::vector<int32_t> after_end_token(const Tokenizer& tokenizer, std::vector<int32_t> tail,
                                     int32_t end) {
  const auto found = std::find(tail.begin(), tail.end(), end);
  if (found == tail.end()) return tail;
  const std::vector<int32_t> before(tail.begin(), found);
  if (without_space(tokenizer.decode(before)).empty()) tail.erase(tail.begin(), found + 1);
  return tail;
}

std::string joined_contents(const Json& messages) {
  std::string text;
  for (const Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || content->is_null()) continue;
    const std::optional<std::string> joined =
        content->is_array() ? text_of_parts(*content) : std::nullopt;
    check<DataError>(content->is_string() || joined, "messages: found a content that is not text, ",
                     dump_json(*content).substr(0, 80));
    text += joined ? *joined : content->get_ref<const std::string&>();
  }
  return text;
}

Dialogue::Dialogue(std::shared_ptr<const Tokenizer> tokenizer,
                   std::shared_ptr<const ChatTemplate> chat, Json messages, Json tools,
                   std::vector<int32_t> prompt, Tokenizer::Quotes quotes)
    : tokenizer_(std::move(tokenizer)),
      chat_(std::move(chat)),
      quotes_(quotes),
      messages_(std::move(messages)),
      tools_(std::move(tools)),
      tokens_(std::move(prompt)) {
  if (!chat_) return;
  format_ = tool_call_format(chat_->source(tools_));
  rendered_ = render(messages_);
  begins_.push_back({rendered_.size(), tokens_.size()});
}

std::string Dialogue::render(const Json& messages) const {
  return chat_->render(messages, tools_, true);
}

std::vector<int32_t> Dialogue::encode(std::string_view text) const {
  return tokenizer_->encode_first(text, SIZE_MAX, quotes_);
}

// The text that the template writes after a turn of the assistant, for any words.
std::string Dialogue::tail_of(const Json& answers) const {
  Json messages = messages_;
  messages.push_back({{"role", "assistant"}, {"content", kWords}});
  for (const Json& message : answers) messages.push_back(message);
  return behind_words(render(messages));
}

Dialogue::Rendering Dialogue::plain(const std::string& words, const Json& answers) const {
  Rendering r;
  r.messages = messages_;
  r.messages.push_back({{"role", "assistant"}, {"content", words}});
  for (const Json& message : answers) r.messages.push_back(message);
  r.text = render(r.messages);
  r.tail = tail_of(answers);
  if (!r.text.starts_with(rendered_) || !r.text.ends_with(r.tail) ||
      r.text.size() < rendered_.size() + r.tail.size())
    return r;
  const std::string_view written = std::string_view(r.text).substr(
      rendered_.size(), r.text.size() - rendered_.size() - r.tail.size());
  r.linear = without_space(written) == without_space(words);
  return r;
}

// A rendering with the calls as `tool_calls`, which templates write in a notation of their own.
Dialogue::Rendering Dialogue::structured(const SpokenTurn& spoken, const std::string& end,
                                         const Json& answers) const {
  Rendering r;
  r.messages = messages_;
  Json calls = Json::array();
  for (const ToolCall& call : spoken.calls) {
    const std::string number = std::to_string(kFirstCallId + messages_.size() * 100 + calls.size());
    calls.push_back({{"type", "function"},
                     {"id", number},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  r.messages.push_back(
      {{"role", "assistant"}, {"content", spoken.content}, {"tool_calls", std::move(calls)}});
  const std::string spoken_text = chat_->render(r.messages, tools_, false);
  const Json& made = r.messages.back()["tool_calls"];
  Json ids = Json::array();
  for (const Json& call : made) ids.push_back(call["id"]);
  size_t answered = 0;
  for (const Json& message : answers) {
    r.messages.push_back(message);
    if (message.value("role", Json()) == "tool" && !message.contains("tool_call_id"))
      r.messages.back()["tool_call_id"] = ids[std::min(answered++, ids.size() - 1)];
  }
  r.text = render(r.messages);
  const size_t found = end.empty() ? std::string::npos : spoken_text.rfind(end);
  if (!r.text.starts_with(rendered_) || !r.text.starts_with(spoken_text) ||
      found == std::string::npos || found < rendered_.size())
    return r;
  r.tail = r.text.substr(found);
  r.linear = true;
  return r;
}

Dialogue::Rendering Dialogue::best(const std::string& words, const SpokenTurn& spoken,
                                   const std::string& end, const Json& answers) const {
  std::vector<Rendering> rewritten;
  std::string first_problem;
  // Mistral's templates want turns that alternate, unless their calls are given as such.
  const bool structured_first = format_ == ToolCallFormat::kMistral;
  for (const bool calls : {structured_first, !structured_first}) {
    if (calls && spoken.calls.empty()) continue;
    try {
      Rendering r = calls ? structured(spoken, end, answers) : plain(words, answers);
      if (r.linear) return r;
      rewritten.push_back(std::move(r));
    } catch (const DataError& e) {
      if (first_problem.empty()) first_problem = e.what();
    }
  }
  check<DataError>(!rewritten.empty(), first_problem);
  return std::move(rewritten.front());
}

Dialogue::Continuation Dialogue::go_on(std::span<const int32_t> turn, bool ended,
                                       const SpokenTurn& spoken, const Json& answers) {
  if (!chat_) return continue_line(turn, false, joined_contents(answers));
  const std::string words = tokenizer_->decode(turn.first(turn.size() - (ended ? 1 : 0)));
  const std::string end = ended ? tokenizer_->decode(turn.last(1)) : "";
  Rendering r;
  try {
    r = best(words, spoken, end, answers);
  } catch (const DataError&) {
    if (!has_tool_message(answers)) throw;
    r = best(words, spoken, end, as_user_messages(answers));
  }
  messages_ = std::move(r.messages);
  Continuation next = r.linear ? continue_line(turn, ended, r.tail) : branch(turn, r.text);
  rendered_ = std::move(r.text);
  begins_.push_back({rendered_.size(), tokens_.size()});
  return next;
}

Dialogue::Continuation Dialogue::continue_line(std::span<const int32_t> turn, bool ended,
                                               const std::string& tail) {
  Continuation next;
  tokens_.insert(tokens_.end(), turn.begin(), turn.end());
  next.kept = tokens_.size();
  next.tokens = encode(tail);
  if (ended) next.tokens = after_end_token(*tokenizer_, std::move(next.tokens), turn.back());
  tokens_.insert(tokens_.end(), next.tokens.begin(), next.tokens.end());
  return next;
}

// Tokenizes everything anew from the last turn of the policy whose context the template still
// writes as before; tokens that are then the same are kept.
Dialogue::Continuation Dialogue::branch(std::span<const int32_t> turn, const std::string& text) {
  const size_t same = common_prefix(rendered_, text);
  while (!begins_.empty() && begins_.back().byte > same) begins_.pop_back();
  const Begin from = begins_.empty() ? Begin{0, 0} : begins_.back();
  tokens_.insert(tokens_.end(), turn.begin(), turn.end());
  std::vector<int32_t> whole(tokens_.begin(), tokens_.begin() + static_cast<long>(from.token));
  const std::vector<int32_t> anew = encode(std::string_view(text).substr(from.byte));
  whole.insert(whole.end(), anew.begin(), anew.end());
  const size_t most = std::min(whole.size(), tokens_.size());
  Continuation next;
  next.kept = static_cast<size_t>(
      std::mismatch(whole.begin(), whole.begin() + static_cast<long>(most), tokens_.begin()).first -
      whole.begin());
  next.tokens.assign(whole.begin() + static_cast<long>(next.kept), whole.end());
  tokens_ = std::move(whole);
  return next;
}

}  // namespace temper
