#include "temper/text/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/text/token_boundaries.h"

namespace temper {
namespace {
constexpr int32_t kNotTrained = -100;
using Spans = std::vector<std::pair<size_t, size_t>>;  // byte ranges of the text, ascending, apart

Json first_messages(const Json& messages, size_t n) {
  Json out = Json::array();
  for (size_t i = 0; i < n; ++i) out.push_back(messages[i]);
  return out;
}

bool is_assistant(const Json& message) { return message.at("role") == "assistant"; }

// Renders beginnings of one conversation and finds their ends in the whole.
class Prefixes {
 public:
  Prefixes(const ChatTemplate& chat, const Json& messages, const Json& tools,
           const std::string& whole)
      : chat_(chat), messages_(messages), tools_(tools), whole_(whole) {}

  // The end of the first n messages; with the generation prompt, the place where the assistant
  // begins to speak.
  size_t end_of(size_t n, bool generation_prompt) const {
    std::string prefix;
    try {
      const Json first = first_messages(messages_, n);
      prefix = chat_.render_with_spans(first, tools_, generation_prompt).text;
    } catch (const DataError& e) {
      fail(n, generation_prompt, str("cannot be rendered by themselves (", e.what(), ")"));
    }
    if (!whole_.starts_with(prefix)) {
      fail(n, generation_prompt, "render differently by themselves than within the whole");
    }
    return prefix.size();
  }

 private:
  [[noreturn]] static void fail(size_t n, bool generation_prompt, const std::string& cause) {
    throw DataError(str(
        "messages: cannot tell what the assistant says in message ", generation_prompt ? n + 1 : n,
        ": this chat template does not write message by message: the first ", n, " messages",
        generation_prompt ? " and the generation prompt " : " ", cause,
        ". Use a chat template with {% generation %} blocks around what the assistant says, rows "
        "that end with the turn to train, or train_on: all"));
  }

  const ChatTemplate& chat_;
  const Json& messages_;
  const Json& tools_;
  const std::string& whole_;
};

// The assistant's turns among the messages from `first` on.
Spans turns(const Prefixes& prefixes, const Json& messages, size_t first) {
  Spans spans;
  for (size_t i = first; i < messages.size(); ++i) {
    if (!is_assistant(messages[i])) continue;
    const size_t begin = prefixes.end_of(i, true), end = prefixes.end_of(i + 1, false);
    check<DataError>(begin <= end, "messages: message ", i + 1,
                     " ends before the generation prompt of its turn does: this chat template does "
                     "not write its generation prompt before what the assistant says");
    spans.emplace_back(begin, end);
  }
  return spans;
}

Spans generation_spans(const jinja::Rendered& rendered) {
  check<DataError>(!rendered.has_unplaced_generation,
                   "the chat template has a {% generation %} block inside a macro, a call or a "
                   "captured block, where its place in the text is not known; move it out, or set "
                   "train_on: all");
  return rendered.generations;
}

std::vector<int32_t> labels_of(const Tokenizer& tokenizer, const TokenizedConversation& c,
                               const Spans& spans) {
  std::vector<int32_t> labels(c.tokens.size(), kNotTrained);
  TokenBoundaries boundaries(tokenizer, c.text, c.tokens);
  for (const auto& [begin, end] : spans) {
    const size_t from = boundaries.tokens_before(begin), to = boundaries.tokens_before(end);
    for (size_t i = from; i < to; ++i) labels[i] = c.tokens[i];
  }
  return labels;
}

// What is left of spans from byte `begin` on.
Spans clipped(const Spans& spans, size_t begin) {
  Spans out;
  for (const auto& [from, to] : spans) {
    if (to > begin) out.emplace_back(std::max(from, begin), to);
  }
  return out;
}
}  // namespace

TokenizedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                            const Json& messages, const Json& tools,
                                            TrainOn train_on, bool add_generation_prompt) {
  check<DataError>(messages.is_array() && !messages.empty(),
                   "messages: expected a list of at least one message");
  jinja::Rendered rendered = chat.render_with_spans(messages, tools, add_generation_prompt);
  TokenizedConversation c;
  c.text = std::move(rendered.text);
  c.tokens = tokenizer.encode(c.text);
  if (train_on == TrainOn::kAll) {
    c.labels = c.tokens;
    return c;
  }
  const Prefixes prefixes(chat, messages, tools, c.text);
  size_t first = 0;  // message from which turns are trained
  if (train_on == TrainOn::kCompletion) {
    first = messages.size();
    while (first > 0 && !is_assistant(messages[first - 1])) --first;
    first -= first > 0;
  }
  Spans spans;
  if (!chat.has_generation(tools)) {
    spans = turns(prefixes, messages, first);
  } else {
    spans = generation_spans(rendered);
    if (first > 0) spans = clipped(spans, prefixes.end_of(first, false));
  }
  c.labels = labels_of(tokenizer, c, spans);
  return c;
}

TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer,
                                                 std::string_view prompt,
                                                 std::string_view completion, TrainOn train_on,
                                                 std::optional<int32_t> eos) {
  TokenizedConversation c;
  c.text = std::string(prompt) + std::string(completion);
  c.tokens = tokenizer.encode(prompt);
  const auto prompt_size = static_cast<std::ptrdiff_t>(c.tokens.size());
  auto rest = tokenizer.encode(completion);
  if (eos && (rest.empty() || rest.back() != *eos)) rest.push_back(*eos);
  c.tokens.insert(c.tokens.end(), rest.begin(), rest.end());
  c.labels = c.tokens;
  if (train_on != TrainOn::kAll) {
    std::fill(c.labels.begin(), c.labels.begin() + prompt_size, kNotTrained);
  }
  return c;
}

TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer,
                                                 const ChatTemplate& chat,
                                                 const Json& prompt_messages,
                                                 const Json& completion_messages, const Json& tools,
                                                 TrainOn train_on) {
  check<DataError>(
      prompt_messages.is_array() && completion_messages.is_array() && !completion_messages.empty(),
      "prompt and completion: expected two lists of messages");
  Json messages = prompt_messages;
  for (const Json& message : completion_messages) messages.push_back(message);
  jinja::Rendered rendered = chat.render_with_spans(messages, tools, false);
  TokenizedConversation c;
  c.text = std::move(rendered.text);
  c.tokens = tokenizer.encode(c.text);
  if (train_on == TrainOn::kAll) {
    c.labels = c.tokens;
    return c;
  }
  const Prefixes prefixes(chat, messages, tools, c.text);
  const size_t begin = prefixes.end_of(prompt_messages.size(), true);
  Spans spans{{begin, c.text.size()}};
  if (train_on == TrainOn::kAssistant) {
    spans = chat.has_generation(tools) ? clipped(generation_spans(rendered), begin)
                                       : turns(prefixes, messages, prompt_messages.size());
  }
  c.labels = labels_of(tokenizer, c, spans);
  return c;
}

}  // namespace temper
