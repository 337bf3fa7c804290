#include "temper/text/chat/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/text/tokenizer/common_prefix.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "temper/text/tokenizer/token_boundaries.h"

namespace temper {
namespace {
// Limit on the text of all turns' paths together, in bytes, where turns are trained one by one:
// that text grows with the square of the conversation's length.
constexpr size_t kMaxPathBytes = size_t{256} << 20;

using Spans = std::vector<std::pair<size_t, size_t>>;  // byte ranges of the text, ascending, apart

// Why a conversation cannot be trained whole. Never leaves this file.
struct NotWhole {
  std::string why;
};

bool is_assistant(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// `weight` and `train` of a message: whether its turn is trained. Takes them out.
bool take_switch(Json& message, size_t number) {
  if (!message.is_object()) return true;
  bool trained = true;
  if (const auto weight = message.find("weight"); weight != message.end() && !weight->is_null()) {
    check<DataError>(*weight == 0 || *weight == 1, "messages: message ", number, ": `weight` is ",
                     dump_json(*weight), "; expected 0 or 1");
    trained = *weight == 1;
  }
  if (const auto train = message.find("train"); train != message.end() && !train->is_null()) {
    check<DataError>(train->is_boolean(), "messages: message ", number, ": `train` is ",
                     dump_json(*train), "; expected true or false");
    trained = trained && train->get<bool>();
  }
  message.erase("weight");
  message.erase("train");
  return trained;
}

// A conversation and the template that renders it.
class Conversation {
 public:
  Conversation(const ChatTemplate& chat, Json messages, const Json& tools)
      : chat_(chat), messages_(std::move(messages)), tools_(tools) {
    check<DataError>(messages_.is_array() && !messages_.empty(),
                     "messages: expected a list of at least one message");
    for (size_t i = 0; i < messages_.size(); ++i)
      trained_.push_back(take_switch(messages_[i], i + 1));
  }

  const ChatTemplate& chat() const { return chat_; }
  const Json& tools() const { return tools_; }
  size_t size() const { return messages_.size(); }
  bool is_turn(size_t i) const { return is_assistant(messages_[i]); }
  bool is_switched_off(size_t i) const { return !trained_[i]; }

  // The assistant's turns from message `first` on, those that are switched off left out or alone.
  std::vector<size_t> turns(size_t first, bool switched_off = false) const {
    std::vector<size_t> out;
    for (size_t i = first; i < size(); ++i)
      if (is_turn(i) && is_switched_off(i) == switched_off) out.push_back(i);
    return out;
  }

  jinja::Rendered whole(bool generation_prompt) const {
    return chat_.render_with_spans(messages_, tools_, generation_prompt);
  }
  // The first n messages by themselves.
  std::string beginning(size_t n, bool generation_prompt) const {
    Json first = Json::array();
    for (size_t i = 0; i < n; ++i) first.push_back(messages_[i]);
    return chat_.render_with_spans(first, tools_, generation_prompt).text;
  }

  // The messages before i and another answer in its place.
  std::string with_answer(size_t i, const char* content) const {
    Json first = Json::array();
    for (size_t k = 0; k < i; ++k) first.push_back(messages_[k]);
    first.push_back({{"role", "assistant"}, {"content", content}});
    return chat_.render_with_spans(first, tools_, false).text;
  }

 private:
  const ChatTemplate& chat_;
  Json messages_;
  const Json& tools_;
  std::vector<bool> trained_;
};

// Finds the ends of a conversation's beginnings in the whole.
class Prefixes {
 public:
  Prefixes(const Conversation& conversation, const std::string& whole)
      : conversation_(conversation), whole_(whole) {}

  // The end of the first n messages; with the generation prompt, the place where the assistant
  // begins to speak. Throws NotWhole.
  size_t end_of(size_t n, bool generation_prompt) const {
    std::string prefix;
    try {
      prefix = conversation_.beginning(n, generation_prompt);
    } catch (const DataError& e) {
      fail(n, generation_prompt, str("cannot be rendered by themselves (", e.what(), ")"));
    }
    if (!whole_.starts_with(prefix)) {
      fail(n, generation_prompt, "render differently by themselves than within the whole");
    }
    return prefix.size();
  }

  std::pair<size_t, size_t> turn(size_t i) const {
    const size_t begin = end_of(i, true), end = end_of(i + 1, false);
    if (begin > end)
      throw NotWhole{str("messages: message ", i + 1,
                         " ends before the generation prompt of its turn does: this chat template "
                         "does not write its generation prompt before what the assistant says")};
    return {begin, end};
  }

  Spans turns(const std::vector<size_t>& messages) const {
    Spans spans;
    for (const size_t i : messages) spans.push_back(turn(i));
    return spans;
  }

 private:
  [[noreturn]] static void fail(size_t n, bool generation_prompt, const std::string& cause) {
    throw NotWhole{str(
        "messages: cannot tell what the assistant says in message ", generation_prompt ? n + 1 : n,
        ": this chat template does not write message by message: the first ", n, " messages",
        generation_prompt ? " and the generation prompt " : " ", cause,
        ". Use a chat template with {% generation %} blocks around what the assistant says, "
        "data.conversation: turns, or train_on: all")};
  }

  const Conversation& conversation_;
  const std::string& whole_;
};

Spans generation_spans(const jinja::Rendered& rendered) {
  check<DataError>(!rendered.has_unplaced_generation,
                   "the chat template has a {% generation %} block inside a macro, a call or a "
                   "captured block, where its place in the text is not known; move it out, or set "
                   "train_on: all");
  return rendered.generations;
}

TokenizedConversation tokenized(const Tokenizer& tokenizer, std::string text, const Spans& spans,
                                const ConversationOptions& options) {
  TokenizedConversation c;
  c.tokens = tokenizer.encode_first(text, options.limit, options.quotes);
  c.labels.assign(c.tokens.size(), kNotTrained);
  TokenBoundaries boundaries(tokenizer, text, c.tokens, options.limit, options.quotes);
  for (const auto& [begin, end] : spans) {
    const size_t from = begin == 0 ? 0 : boundaries.tokens_before(begin);
    const size_t to = end == text.size() ? c.tokens.size() : boundaries.tokens_before(end);
    for (size_t i = from; i < to; ++i) c.labels[i] = c.tokens[i];
  }
  c.text =
      options.quotes == Tokenizer::Quotes::kMarked ? Tokenizer::unquoted(text) : std::move(text);
  return c;
}

// The parts of spans from byte `begin` on.
Spans clipped(const Spans& spans, size_t begin) {
  Spans out;
  for (const auto& [from, to] : spans) {
    if (to > begin) out.emplace_back(std::max(from, begin), to);
  }
  return out;
}

// Spans without the holes; both ascending.
Spans without(const Spans& spans, const Spans& holes) {
  Spans out;
  for (auto [from, to] : spans) {
    for (const auto& [begin, end] : holes) {
      if (end <= from || begin >= to) continue;
      if (begin > from) out.emplace_back(from, begin);
      from = std::min(end, to);
    }
    if (from < to) out.emplace_back(from, to);
  }
  return out;
}

// A conversation to tokenize. Its first `prompt` messages are a prompt.
struct Request {
  const Tokenizer& tokenizer;
  const Conversation& conversation;
  const ConversationOptions& options;
  std::optional<size_t> prompt;  // number of the prompt's messages; none: no prompt and completion

  TrainOn train_on() const {
    if (options.train_on != TrainOn::kAuto) return options.train_on;
    return prompt ? TrainOn::kCompletion : TrainOn::kAssistant;
  }
  // The message from which turns are trained.
  size_t first() const {
    if (prompt) return *prompt;
    if (train_on() != TrainOn::kCompletion) return 0;
    size_t last = conversation.size();
    while (last > 0 && !conversation.is_turn(last - 1)) --last;
    return last > 0 ? last - 1 : conversation.size();
  }
};

// Throws NotWhole.
Spans whole_spans(const Request& request, const jinja::Rendered& rendered) {
  const Conversation& conversation = request.conversation;
  const Prefixes prefixes(conversation, rendered.text);
  const size_t first = request.first();
  const bool marked = conversation.chat().has_generation(conversation.tools());
  Spans spans{{0, rendered.text.size()}};
  if (request.train_on() == TrainOn::kCompletion && request.prompt) {
    spans = {{prefixes.end_of(first, true), rendered.text.size()}};
    if (!marked) prefixes.turns(conversation.turns(first));  // each must be as it is when sampled
  } else if (request.train_on() != TrainOn::kAll) {
    if (!marked) return prefixes.turns(conversation.turns(first));
    spans = generation_spans(rendered);
    if (first > 0) spans = clipped(spans, prefixes.end_of(first, request.prompt.has_value()));
  }
  return without(spans, prefixes.turns(conversation.turns(0, true)));
}

bool is_space(std::string_view text) {
  return text.find_first_not_of(" \n\t\r") == std::string_view::npos;
}

// The path of one turn: the context that it is sampled after, and the turn's own text.
class Turn {
 public:
  Turn(const Conversation& conversation, size_t message)
      : conversation_(conversation),
        message_(message),
        context_(render(message, true)),
        text_(render(message + 1, false)) {}

  TokenizedConversation tokenize(const Tokenizer& tokenizer, const ConversationOptions& options) {
    if (!text_.starts_with(context_)) text_ = context_ + text_.substr(begin_of_turn());
    const size_t size = text_.size();
    return tokenized(tokenizer, std::move(text_), {{context_.size(), size}}, options);
  }

 private:
  std::string render(size_t n, bool generation_prompt) const {
    try {
      return conversation_.beginning(n, generation_prompt);
    } catch (const DataError& e) {
      throw DataError(str("messages: cannot tell what the assistant says in message ", message_ + 1,
                          ": the first ", n, " messages",
                          generation_prompt ? " and the generation prompt" : "",
                          " cannot be rendered by themselves (", e.what(), ")"));
    }
  }

  // Where the turn begins in a text that does not begin with the context: right behind the
  // generation prompt, or where there is none, behind the context's last bytes. That place must lie
  // behind the one where text and context part, so that it is no earlier turn's, and before
  // anything that depends on what the turn says.
  size_t begin_of_turn() const {
    constexpr size_t kTail = 8;
    const std::string before = render(message_, false);
    const bool prompted = context_.starts_with(before) && context_.size() > before.size();
    const std::string_view tail = std::string_view(context_).substr(
        prompted ? before.size() : context_.size() - std::min(kTail, context_.size()));
    const size_t said = begin_of_content();
    const size_t found = std::string_view(text_).substr(0, said).rfind(tail);
    const size_t begin = found + tail.size();
    const bool known = !tail.empty() && found != std::string::npos &&
                       begin > common_prefix(text_, context_) &&
                       (prompted || is_space(std::string_view(text_).substr(begin, said - begin)));
    check<DataError>(
        known, "messages: cannot tell what the assistant says in message ", message_ + 1,
        ": this chat template does not write the turn as it asks for it: the first ", message_ + 1,
        " messages have nowhere what the first ", message_,
        " and the generation prompt end with. Use a chat template that keeps what its generation "
        "prompt writes, one with {% generation %} blocks, or train_on: all");
    return begin;
  }

  // How far the text is the same whatever the assistant says in this turn.
  size_t begin_of_content() const {
    size_t same = text_.size();
    for (const char* content : {"x", "1"}) {
      try {
        same = std::min(same, common_prefix(text_, conversation_.with_answer(message_, content)));
      } catch (const DataError&) {
        // Answers in words are not allowed there.
      }
    }
    return same;
  }

  const Conversation& conversation_;
  size_t message_;
  std::string context_, text_;
};

// `whole` is the text of a conversation without a turn to train.
TrainedConversation turn_by_turn(const Request& request, std::string whole) {
  check<DataError>(request.train_on() != TrainOn::kAll,
                   "train_on: all trains a conversation as it is rendered whole; "
                   "data.conversation: turns needs train_on: auto, assistant or completion");
  const std::vector<size_t> turns = request.conversation.turns(request.first());
  if (turns.empty())
    return {false, {tokenized(request.tokenizer, std::move(whole), {}, request.options)}};
  TrainedConversation out;
  out.turn_by_turn = true;
  size_t bytes = 0;
  for (const size_t message : turns) {
    out.paths.push_back(
        Turn(request.conversation, message).tokenize(request.tokenizer, request.options));
    bytes += out.paths.back().text.size();
    check<DataError>(bytes <= kMaxPathBytes,
                     "messages: too long to be trained turn by turn: the texts of its turns have "
                     "more than ",
                     kMaxPathBytes >> 20, " MiB together");
  }
  return out;
}

TrainedConversation tokenize(const Request& request) {
  const Conversation& conversation = request.conversation;
  jinja::Rendered rendered = conversation.whole(request.options.add_generation_prompt);
  if (request.options.mode == ConversationMode::kTurns)
    return turn_by_turn(request, std::move(rendered.text));
  Spans spans;
  try {
    spans = whole_spans(request, rendered);
  } catch (const NotWhole& e) {
    if (request.options.mode == ConversationMode::kWhole || request.train_on() == TrainOn::kAll)
      throw DataError(e.why);
    return turn_by_turn(request, std::move(rendered.text));
  }
  return {false, {tokenized(request.tokenizer, std::move(rendered.text), spans, request.options)}};
}
}  // namespace

TrainedConversation tokenize_conversation(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                          const Json& messages, const Json& tools,
                                          const ConversationOptions& options) {
  const Conversation conversation(chat, messages, tools);
  return tokenize({tokenizer, conversation, options, std::nullopt});
}

TokenizedConversation tokenize_prompt_completion(const Tokenizer& tokenizer,
                                                 std::string_view prompt,
                                                 std::string_view completion, TrainOn train_on,
                                                 std::optional<int32_t> eos, size_t limit,
                                                 Tokenizer::Quotes quotes) {
  TokenizedConversation c;
  c.text = std::string(prompt) + std::string(completion);
  if (quotes == Tokenizer::Quotes::kMarked) c.text = Tokenizer::unquoted(c.text);
  c.tokens = encode_beginning(tokenizer, prompt, limit, quotes);
  const auto prompt_size = static_cast<std::ptrdiff_t>(c.tokens.size());
  auto rest = tokenizer.encode_first(completion, limit, quotes);
  if (eos && (rest.empty() || rest.back() != *eos)) rest.push_back(*eos);
  c.tokens.insert(c.tokens.end(), rest.begin(), rest.end());
  c.labels = c.tokens;
  if (train_on != TrainOn::kAll) {
    std::fill(c.labels.begin(), c.labels.begin() + prompt_size, kNotTrained);
  }
  return c;
}

TrainedConversation tokenize_prompt_completion(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                               const Json& prompt_messages,
                                               const Json& completion_messages, const Json& tools,
                                               const ConversationOptions& options) {
  check<DataError>(
      prompt_messages.is_array() && completion_messages.is_array() && !completion_messages.empty(),
      "prompt and completion: expected two lists of messages");
  Json messages = prompt_messages;
  for (const Json& message : completion_messages) messages.push_back(message);
  const Conversation conversation(chat, std::move(messages), tools);
  return tokenize({tokenizer, conversation, options, prompt_messages.size()});
}

}  // namespace temper
