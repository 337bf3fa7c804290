#include "temper/serve/sessions/session.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/base/sha256.h"
#include "temper/data/images/image_fields.h"
#include "temper/models/vision/image_rows.h"
#include "temper/serve/asked.h"
#include "temper/text/chat/message_parts.h"

namespace temper::serve {
namespace {

constexpr const char* kConversation = "the prompt";  // in errors
constexpr int64_t kBytesOfToken = 8;                 // of messages and tools that count as a token
constexpr int64_t kNewTokens = 1024;  // of a request that names no number, as without a session

std::string without_outer_space(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The message with its images' URIs replaced by digests, which are as good to compare.
Json without_uris(Json message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return message;
  for (Json& part : *content)
    if (data::is_image(part)) part = {{"image", sha256_hex(dump_json(part))}};
  return message;
}

// Of messages and tools.
int64_t bytes_of_form(const Json& messages, const std::string& form) {
  Json told = Json::array();
  for (const Json& message : messages) told.push_back(without_uris(message));
  return static_cast<int64_t>(dump_json(told).size() + form.size());
}

// An answer as all clients send it back: some leave out what is empty, add fields, or write the
// calls' arguments with other space.
Json normalized(const Json& message) {
  if (message.value("role", Json()) != "assistant") return without_uris(message);
  Json content = message.value("content", Json());
  if (content.is_array()) content = text_of_parts(content).value_or("");
  Json calls = Json::array();
  const Json said = message.value("tool_calls", Json());
  for (const Json& call : said.is_array() ? said : Json::array()) {
    const Json function = call.is_object() ? call.value("function", Json()) : Json();
    if (function.is_object())
      calls.push_back({function.value("name", Json()), function.value("arguments", Json())});
  }
  return {{"role", "assistant"},
          {"content", content.is_string() ? without_outer_space(content.get<std::string>()) : ""},
          {"calls", std::move(calls)}};
}

Json normalized_all(const Json& messages) {
  Json out = Json::array();
  for (const Json& message : messages) out.push_back(normalized(message));
  return out;
}

bool is_at(const Json& part, const Json& messages, size_t from) {
  if (part.size() > messages.size() - from) return false;
  for (size_t i = 0; i < part.size(); ++i)
    if (part[i] != messages[from + i]) return false;
  return true;
}

// The messages after an answer. Calls of tools are numbered by the dialogue, and clients know them
// by other ids; a tool's message gets the name of its function, which some templates write.
Json answers_to(const Json& answer, const Json& messages, size_t from) {
  Json out = Json::array();
  const Json calls = answer.value("tool_calls", Json());
  for (size_t i = from; i < messages.size(); ++i) {
    Json message = messages[i];
    if (message.value("role", Json()) == "tool") {
      const Json id = message.value("tool_call_id", Json());
      for (const Json& call : calls.is_array() ? calls : Json::array()) {
        if (id.is_null() || !call.is_object() || call.value("id", Json()) != id) continue;
        const Json function = call.value("function", Json());
        if (function.is_object() && function.contains("name") && !message.contains("name"))
          message["name"] = function["name"];
      }
      message.erase("tool_call_id");
    }
    out.push_back(std::move(message));
  }
  return out;
}

// Places the images of messages behind earlier ones in them.
void place_answers(const data::TextFormat& format, Json& messages, data::RowImages& images) {
  Json row{{"messages", std::move(messages)}};
  for (data::RowImage& image : data::place_images(format, row, {"messages"}, kConversation))
    images.push_back(std::move(image));
  messages = std::move(row["messages"]);
}

// Of files that this keeps, beyond the first so many.
int64_t kept_bytes(const data::RowImages& images, size_t from) {
  int64_t bytes = 0;
  for (size_t i = from; i < images.size(); ++i) bytes += images[i].image->file_bytes();
  return bytes;
}

}  // namespace

void Session::check_request(const CompletionRequest& request) const {
  if (closed_) throw Refusal(410, "the session " + name_ + " has ended");
  if (!request.chat)
    throw Refusal(400, "a session records chat completions: expected /v1/chat/completions");
  if (request.options.grammar || request.tool_choice != ToolChoice::kAuto)
    throw Refusal(
        400,
        "a session does not support response_format, grammars and a required tool_choice: "
        "its completions are the policy's own");
  if (rules_.options && !request.template_variables.is_null())
    throw Refusal(400, "chat_template_kwargs and reasoning_effort: the run's config sets them");
}

// Throws Refusal unless the limit holds, and remembers that it did not.
void Session::limit(bool holds, int status, const std::string& why) {
  if (holds) return;
  limited_ = true;
  throw Refusal(status, "the session " + name_ + " is at its limit: " + why);
}

Session::Found Session::find(const Json& messages, const std::string& form) const {
  Found best;
  std::vector<size_t> ends(turns_.size(), 0);  // of turns that the messages continue; others 0
  for (size_t i = 0; i < turns_.size(); ++i) {
    const Conversation& c = conversations_[i];
    const int64_t parent = turns_[i].parent;
    const size_t begin = parent < 0 ? 0 : ends[static_cast<size_t>(parent)];
    if (!turns_[i].done || c.form != form || (parent >= 0 && begin == 0)) continue;
    const size_t answer = begin + c.added.size();
    if (answer >= messages.size() || !is_at(c.added, messages, begin)) continue;
    if (messages[answer] != c.answer) continue;
    ends[i] = answer + 1;
    if (ends[i] > best.messages) best = {static_cast<int64_t>(i), ends[i]};
  }
  return best;
}

Session::Conversation Session::begun(const CompletionRequest& request,
                                     const data::TextFormat& format, SessionTurn& turn) const {
  AskedPrompt asked = prompt_of(format, request, request.prompts.at(0));
  turn.context = std::move(asked.tokens);
  turn.images = std::move(asked.images);
  Conversation c;
  c.images = std::move(asked.placed);
  c.dialogue.emplace(format.tokenizer, format.chat, quoted(format, asked.messages),
                     quoted(format, shown_tools(request)), turn.context, quotes_of(format));
  return c;
}

Session::Conversation Session::continued(const Found& from, const data::TextFormat& format,
                                         const Json& messages, SessionTurn& turn) const {
  const SessionTurn& parent = turns_[static_cast<size_t>(from.turn)];
  const Conversation& before = conversations_[static_cast<size_t>(from.turn)];
  Conversation c;
  c.dialogue = before.dialogue;
  c.images = before.images;
  const std::vector<int32_t>& said = parent.said.tokens;
  const std::vector<int32_t>& stops = before.stop_token_ids;
  const bool ended =
      !said.empty() && (rules_.ends.contains(said.back()) ||
                        std::find(stops.begin(), stops.end(), said.back()) != stops.end());
  const std::span<const int32_t> words(said.data(), said.size() - (ended ? 1 : 0));
  const SpokenTurn spoken = parse_tool_calls(before.calls, format.tokenizer->decode(words));
  Json answers = answers_to(messages[from.messages - 1], messages, from.messages);
  place_answers(format, answers, c.images);
  const Dialogue::Continuation next =
      c.dialogue->go_on(said, ended, spoken, quoted(format, answers));
  turn.parent = from.turn;
  turn.kept = next.kept;
  turn.context = c.dialogue->tokens();
  turn.images = data::spans_of(format, c.images, turn.context, kConversation);
  turn.position = parent.position + std::ssize(said) + std::ssize(next.tokens);
  return c;
}

int64_t Session::most_new_tokens(const CompletionRequest& request, const SessionTurn& turn,
                                 int64_t most_positions) {
  const int64_t length = std::ssize(turn.context);
  limit(
      turn.parent >= 0 || length <= rules_.longest_prompt, 400,
      temper::str("the prompt has ", length, " tokens, expected at most ", rules_.longest_prompt));
  limit(turn.position < rules_.longest_completion, 400,
        temper::str("there are ", turn.position,
                    " tokens after the conversation's prompt, of at "
                    "most ",
                    rules_.longest_completion));
  limit(length < most_positions, 400,
        temper::str("the prompt has ", length, " tokens, and the model has ", most_positions,
                    " positions for prompt and completion"));
  const int64_t room = std::min(most_positions - length, rules_.longest_completion - turn.position);
  const int64_t asked = request.max_tokens.value_or(rules_.options ? room : kNewTokens);
  return std::clamp<int64_t>(asked, 1, room);
}

// The last word of the stream's key is not 0, as it is where the engine draws tokens.
uint64_t Session::seed_of(const SessionTurn& turn) const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by token
  const auto add = [&hash](uint32_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (const int32_t token : turn.context) add(static_cast<uint32_t>(token));
  for (const ImageSpan& span : turn.images)
    if (span.first == 0)
      for (const char digit : span.image->digest()) add(static_cast<unsigned char>(digit));
  return RandomStream(rules_.options->sampling.seed, RandomPurpose::kSampling,
                      static_cast<uint64_t>(rules_.key), static_cast<uint64_t>(rules_.number),
                      hash | 1)
      .bits64(static_cast<uint64_t>(turn.attempt));
}

Session::Begun Session::begin(const CompletionRequest& request, const data::TextFormat& format,
                              ToolCallFormat calls, uint64_t seed, int64_t most_positions,
                              int adapter) {
  const std::lock_guard lock(mutex_);
  check_request(request);
  data::chat_of(format, "a session");
  const int64_t samples = request.num_samples;
  limit(std::ssize(turns_) <= rules_.most_turns - samples, 403,
        temper::str("at most ", rules_.most_turns, " turns"));
  const Json messages = messages_of(format, request);
  const std::string form =
      dump_json(Json::array({request.tools, request.template_variables, adapter}));
  // Each turn keeps the messages and tools, also what the template shows nothing of, and the first
  // one that has an image the image.
  const auto check_kept = [&](int64_t tokens) {
    limit(tokens <= (rules_.most_tokens - tokens_) / samples, 403,
          temper::str("at most ", rules_.most_tokens, " tokens in all its turns"));
  };
  int64_t kept = bytes_of_form(messages, form) / kBytesOfToken;
  check_kept(kept);
  SessionTurn turn;
  const Json heard = normalized_all(messages);
  const Found found = find(heard, form);
  Conversation conversation =
      found.turn < 0 ? begun(request, format, turn) : continued(found, format, messages, turn);
  conversation.added = Json::array();
  for (size_t i = found.messages; i < heard.size(); ++i) conversation.added.push_back(heard[i]);
  const size_t known =
      found.turn < 0 ? 0 : conversations_[static_cast<size_t>(found.turn)].images.size();
  kept += kept_bytes(conversation.images, known) / kBytesOfToken;
  conversation.form = form;
  conversation.calls = calls;
  conversation.stop_token_ids = request.options.stop_token_ids;
  const int64_t most = most_new_tokens(request, turn, most_positions);
  const int64_t length = std::ssize(turn.context);
  check_kept(length + kept);
  for (const SessionTurn& other : turns_)
    turn.attempt +=
        other.choice == 0 && other.context == turn.context && other.images == turn.images;

  Begun out{std::ssize(turns_), {rules_.key, turn.context, samples, request.options, adapter}};
  out.asked.rows = models::external_rows(turn.images);
  out.asked.options.sampling.seed = seed;
  if (rules_.options) {
    out.asked.adapter = rules_.adapter;
    out.asked.options = *rules_.options;
    out.asked.options.stop = request.options.stop;
    out.asked.options.stop_token_ids = request.options.stop_token_ids;
    out.asked.options.top_logprobs = request.options.top_logprobs;
    out.asked.options.sampling.seed = seed_of(turn);
  }
  out.asked.options.stream = request.stream;
  out.asked.options.max_new_tokens = most;
  out.asked.options.min_new_tokens = std::min(out.asked.options.min_new_tokens, most);
  check_answer_size(request, {&out.asked, 1});
  tokens_ += (length + kept) * samples;
  for (turn.choice = 0; turn.choice < samples; ++turn.choice) {
    turns_.push_back(turn);
    conversations_.push_back(conversation);
  }
  ++open_requests_;
  changed_ = std::chrono::steady_clock::now();
  return out;
}

void Session::record(int64_t turn, generate::Completion said, const Json& answer,
                     const std::string& weights) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  SessionTurn& recorded = turns_.at(static_cast<size_t>(turn));
  tokens_ += std::ssize(said.tokens);
  recorded.said = std::move(said);
  recorded.weights = weights;
  recorded.done = true;
  conversations_[static_cast<size_t>(turn)].answer = normalized(answer);
}

void Session::end_request() {
  const std::lock_guard lock(mutex_);
  --open_requests_;
  changed_ = std::chrono::steady_clock::now();
}

void Session::reward(double reward) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Refusal(409, "the session " + name_ + " has ended");
  reward_ = reward;
  closed_ = true;
  changed_ = std::chrono::steady_clock::now();
}

void Session::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

Session::Record Session::record() const {
  Record out = state();
  const std::lock_guard lock(mutex_);
  out.turns = turns_;
  return out;
}

Session::Record Session::state() const {
  const std::lock_guard lock(mutex_);
  return {{}, reward_, closed_, limited_, open_requests_, std::ssize(turns_), changed_};
}

int64_t Session::num_tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

Json Session::to_json() const {
  const Record now = record();
  Json turns = Json::array();
  std::vector<int64_t> numbers(now.turns.size(), -1);  // among those that are done
  for (size_t i = 0; i < now.turns.size(); ++i) {
    const SessionTurn& t = now.turns[i];
    if (!t.done) continue;
    numbers[i] = std::ssize(turns);
    turns.push_back(
        {{"parent", t.parent < 0 ? Json() : Json(numbers[static_cast<size_t>(t.parent)])},
         {"prompt_token_ids", t.context},
         {"kept", t.kept},
         {"token_ids", t.said.tokens},
         {"logprobs", t.said.logprobs},
         {"weight_version", t.weights},
         {"text", t.said.text},
         {"finish_reason", t.said.stopped ? "stop" : "length"}});
  }
  return {{"id", name_},
          {"closed", now.closed},
          {"reward", now.reward ? Json(*now.reward) : Json()},
          {"turns", std::move(turns)}};
}

}  // namespace temper::serve
