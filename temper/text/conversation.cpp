#include "temper/text/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper {
namespace {

using Span = std::pair<size_t, size_t>;  // bytes [first, second) of the text

Json first_messages(const Json& messages, size_t count) {
  Json prefix = Json::array();
  for (size_t i = 0; i < count; ++i) prefix.push_back(messages[i]);
  return prefix;
}

// What a prefix of the conversation renders to, which must be a prefix of the whole text.
size_t prefix_length(const ChatTemplate& chat, const Json& messages, size_t count, const Json& tools, bool generation_prompt,
                     const std::string& text, size_t message) {
  const std::string prefix = chat.render(first_messages(messages, count), tools, generation_prompt);
  check<DataError>(text.starts_with(prefix), "messages[", message, "]: the chat template renders the turns up to here differently once later ones follow, so "
                   "which tokens to train is not known; use a template with {% generation %} blocks, or data.train_on: all");
  return prefix.size();
}

std::vector<Span> assistant_spans(const ChatTemplate& chat, const Json& messages, const Json& tools, bool last_only, const std::string& text) {
  std::vector<Span> spans;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i]["role"] != "assistant") continue;
    const size_t begin = prefix_length(chat, messages, i, tools, true, text, i);
    const size_t end = prefix_length(chat, messages, i + 1, tools, false, text, i);
    check<DataError>(begin <= end, "messages[", i, "]: the chat template's generation prompt is no prefix of the assistant's turn");
    if (last_only) spans.clear();
    spans.emplace_back(begin, end);
  }
  return spans;
}

// The number of tokens that begin before each byte position in `bounds`, ascending.
std::vector<size_t> tokens_before(const Tokenizer& tokenizer, const std::string& text, const std::vector<int32_t>& tokens,
                                  const std::vector<size_t>& bounds) {
  std::vector<size_t> counts;
  std::vector<size_t> begin;  // of each token, by decoding: only where encoding the prefix does not settle it
  for (const size_t bound : bounds) {
    const std::vector<int32_t> prefix = tokenizer.encode(std::string_view(text).substr(0, bound));
    if (prefix.size() <= tokens.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin())) {
      counts.push_back(prefix.size());
      continue;
    }
    if (begin.empty()) {
      StreamDecoder decoder(tokenizer, false);
      size_t at = 0;
      for (const int32_t token : tokens) {
        begin.push_back(at);
        at += decoder.push(token).size();
      }
    }
    counts.push_back(static_cast<size_t>(std::lower_bound(begin.begin(), begin.end(), bound) - begin.begin()));
  }
  return counts;
}

TokenizedConversation label(const Tokenizer& tokenizer, std::string text, const std::vector<Span>& spans) {
  TokenizedConversation out;
  out.tokens = tokenizer.encode(text);
  out.labels.assign(out.tokens.size(), -100);
  std::vector<size_t> bounds;
  for (const Span& span : spans) {
    bounds.push_back(span.first);
    bounds.push_back(span.second);
  }
  const std::vector<size_t> counts = tokens_before(tokenizer, text, out.tokens, bounds);
  for (size_t s = 0; s < spans.size(); ++s)
    for (size_t i = counts[2 * s]; i < counts[2 * s + 1]; ++i) out.labels[i] = out.tokens[i];
  out.text = std::move(text);
  return out;
}

}  // namespace

TokenizedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat, const Json& messages,
                                            const Json& tools, TrainOn train_on, bool add_generation_prompt) {
  jinja::Rendered rendered = chat.render_with_spans(messages, tools, add_generation_prompt);
  if (train_on == TrainOn::kAll) return label(tokenizer, rendered.text, {{0, rendered.text.size()}});
  if (chat.has_generation(tools) && !rendered.has_unplaced_generation) {
    if (train_on == TrainOn::kCompletion && rendered.generations.size() > 1)
      rendered.generations.erase(rendered.generations.begin(), rendered.generations.end() - 1);
    return label(tokenizer, rendered.text, rendered.generations);
  }
  const std::vector<Span> spans = assistant_spans(chat, messages, tools, train_on == TrainOn::kCompletion, rendered.text);
  return label(tokenizer, std::move(rendered.text), spans);
}

TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt,
                                                 std::string_view completion, TrainOn train_on, std::optional<int32_t> eos) {
  TokenizedConversation out;
  out.text = std::string(prompt) + std::string(completion);
  out.tokens = tokenizer.encode(prompt);
  const size_t prompt_tokens = out.tokens.size();
  std::vector<int32_t> rest = tokenizer.encode(completion);
  if (eos && (rest.empty() || rest.back() != *eos)) rest.push_back(*eos);
  out.tokens.insert(out.tokens.end(), rest.begin(), rest.end());
  out.labels = out.tokens;
  if (train_on != TrainOn::kAll) std::fill(out.labels.begin(), out.labels.begin() + static_cast<ptrdiff_t>(prompt_tokens), -100);
  return out;
}

TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                 const Json& prompt_messages, const Json& completion_messages,
                                                 const Json& tools, TrainOn train_on) {
  check<DataError>(prompt_messages.is_array() && completion_messages.is_array(), "`prompt` and `completion` must be lists of messages");
  Json messages = prompt_messages;
  for (const Json& message : completion_messages) messages.push_back(message);
  std::string text = chat.render(messages, tools, false);
  size_t begin = 0;
  if (train_on != TrainOn::kAll) begin = prefix_length(chat, messages, prompt_messages.size(), tools, true, text, prompt_messages.size());
  const size_t end = text.size();
  return label(tokenizer, std::move(text), {{begin, end}});
}

}  // namespace temper
