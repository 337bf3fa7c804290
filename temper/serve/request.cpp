#include "temper/serve/request.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"

namespace temper::serve {
namespace {

constexpr int64_t kUnbounded = INT64_MAX;

// Keys that change nothing here.
const std::set<std::string_view> kIgnored{
    "user",         "metadata",   "store",    "service_tier",     "parallel_tool_calls",
    "request_id",   "priority",   "n_probs",  "prompt_cache_key", "safety_identifier",
    "cache_prompt", "cache_salt", "verbosity"};

struct Default {
  const char *key, *value;  // JSON
};
// Keys that are obeyed in one way only.
constexpr Default kOnlyDefaults[] = {{"best_of", "1"},
                                     {"echo", "false"},
                                     {"suffix", "\"\""},
                                     {"frequency_penalty", "0"},
                                     {"presence_penalty", "0"},
                                     {"logit_bias", "{}"},
                                     {"response_format", R"({"type":"text"})"},
                                     {"modalities", R"(["text"])"},
                                     {"functions", "[]"},
                                     {"stop_token_ids", "[]"},
                                     {"min_tokens", "0"},
                                     {"use_beam_search", "false"},
                                     {"length_penalty", "1"},
                                     {"skip_special_tokens", "true"},
                                     {"spaces_between_special_tokens", "true"},
                                     {"include_stop_str_in_output", "false"},
                                     {"add_special_tokens", "true"},
                                     {"add_generation_prompt", "true"},
                                     {"continue_final_message", "false"},
                                     {"chat_template_kwargs", "{}"}};

// What an error quotes of a value.
std::string quoted(const Json& value) {
  constexpr size_t kLongest = 100;
  std::string text = dump_json(value);
  if (text.size() <= kLongest) return text;
  text.resize(kLongest);
  text.append("...");
  return text;
}

[[noreturn]] void wrong(std::string_view key, const Json& found, const std::string& expected) {
  throw DataError(temper::str("`", key, "`: found ", quoted(found), ", expected ", expected));
}

// The members of the body; each that is asked for is known.
class Members {
 public:
  explicit Members(const Json& body) : body_(body) {}

  // Null where it is absent or null.
  const Json* find(std::string_view key) {
    known_.insert(key);
    const auto it = body_.find(key);
    return it == body_.end() || it->is_null() ? nullptr : &*it;
  }
  bool flag(std::string_view key) {
    const Json* value = find(key);
    if (value && !value->is_boolean()) wrong(key, *value, "true or false");
    return value && value->get<bool>();
  }
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) {
    const Json* value = find(key);
    if (!value) return std::nullopt;
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
    const int64_t number = fits ? value->get<int64_t>() : 0;
    if (fits && number >= low && number <= high) return number;
    wrong(key, *value,
          high == kUnbounded ? temper::str("a whole number of at least ", low)
                             : temper::str("a whole number from ", low, " to ", high));
  }
  // `out` stays where the key is absent. above: low itself is no value.
  void number(std::string_view key, double& out, double low, double high, bool above,
              const char* expected) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_number()) wrong(key, *value, expected);
    const double number = value->get<double>();
    if (!std::isfinite(number) || number < low || number > high || (above && number == low))
      wrong(key, *value, expected);
    out = number;
  }
  std::string text(std::string_view key) {
    const Json* value = find(key);
    if (value && !value->is_string()) wrong(key, *value, "a string");
    return value ? value->get<std::string>() : "";
  }
  void check_rest() {
    for (const auto& [key, value] : kOnlyDefaults) {
      const Json* found = find(key);
      if (found && *found != parse_json(value, key))
        wrong(key, *found, temper::str(value, ": this server has nothing else"));
    }
    for (const auto& [key, value] : body_.items())
      check<DataError>(known_.contains(key) || kIgnored.contains(key), "`", key,
                       "`: no parameter of this name is known here");
  }

 private:
  const Json& body_;
  std::set<std::string_view> known_;
};

bool is_id_list(const Json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const Json& id : value)
    if (!id.is_number_integer()) return false;
  return true;
}

std::vector<Json> read_prompts(Members& members) {
  constexpr const char* kExpected = "a text, a list of token ids, or a list of these";
  const Json* prompt = members.find("prompt");
  check<DataError>(prompt, "`prompt`: missing, expected ", kExpected);
  if (prompt->is_string() || is_id_list(*prompt)) return {*prompt};
  if (!prompt->is_array() || prompt->empty()) wrong("prompt", *prompt, kExpected);
  for (const Json& one : *prompt)
    if (!one.is_string() && !is_id_list(one)) wrong("prompt", one, kExpected);
  return {prompt->begin(), prompt->end()};
}

// A content of parts as the text that templates know.
void join_parts(Json& message) {
  if (!message.contains("content") || !message["content"].is_array()) return;
  std::string text;
  for (const Json& part : message["content"]) {
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) wrong("messages", part, R"(parts {"type": "text", "text": ...})");
    text += part["text"].get_ref<const std::string&>();
  }
  message["content"] = text;
}

Json read_messages(Members& members) {
  const Json* given = members.find("messages");
  check<DataError>(given, "`messages`: missing, expected a list of messages");
  if (!given->is_array() || given->empty())
    wrong("messages", *given, "a list of messages, not empty");
  Json messages = *given;
  for (Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      wrong("messages", message, R"({"role": ..., "content": ...})");
    join_parts(message);
  }
  return messages;
}

void read_tools(Members& members, CompletionRequest& out) {
  const Json* tools = members.find("tools");
  if (tools && !tools->is_array()) wrong("tools", *tools, "a list of functions");
  const Json* choice = members.find("tool_choice");
  if (choice && *choice != "none" && *choice != "auto")
    wrong("tool_choice", *choice, "\"none\" or \"auto\"");
  if (tools && !tools->empty() && !(choice && *choice == "none")) out.tools = *tools;
}

void read_sampling(Members& members, generate::GenerationOptions& options) {
  generate::SamplingOptions& s = options.sampling;
  members.number("temperature", s.temperature, 0, 1e6, false, "a number of at least 0");
  members.number("top_p", s.top_p, 0, 1, true, "a number above 0 and at most 1");
  members.number("min_p", s.min_p, 0, 1, false, "a number from 0 to 1");
  members.number("repetition_penalty", s.repetition_penalty, 0, 1e6, true, "a number above 0");
  // -1: all, elsewhere.
  s.top_k = std::max<int64_t>(members.integer("top_k", -1, kUnbounded).value_or(0), 0);
  options.ignore_eos = members.flag("ignore_eos");
  const Json* stop = members.find("stop");
  if (!stop) return;
  const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
  constexpr size_t kMostStops = 64;
  if (!list.is_array() || list.size() > kMostStops)
    wrong("stop", *stop, temper::str("a text, or a list of at most ", kMostStops));
  for (const Json& text : list) {
    if (!text.is_string() || text.empty() || text == "")
      wrong("stop", text, "a text that is not empty");
    options.stop.push_back(text.get<std::string>());
  }
}

void read_seed(Members& members, CompletionRequest& out) {
  const Json* seed = members.find("seed");
  if (!seed) return;
  if (!seed->is_number_integer()) wrong("seed", *seed, "a whole number of 64 bits");
  out.seed = seed->is_number_unsigned() ? seed->get<uint64_t>()
                                        : static_cast<uint64_t>(seed->get<int64_t>());
}

// Of the vocabulary only the sampled token is recorded: 1 other is the most that can be asked for.
void read_logprobs(Members& members, CompletionRequest& out) {
  const Json* logprobs = members.find("logprobs");
  if (out.chat || (logprobs && logprobs->is_boolean())) {
    out.logprobs = members.flag("logprobs");
  } else if (logprobs) {
    out.top_logprob = *members.integer("logprobs", 0, 1) == 1;
    out.logprobs = true;
  }
  if (!out.chat) return;
  const auto top = members.integer("top_logprobs", 0, 1);
  check<DataError>(!top || *top == 0 || out.logprobs,
                   "`top_logprobs`: found 1 without \"logprobs\": true");
  out.top_logprob = top == 1;
}

void read_stream(Members& members, CompletionRequest& out) {
  out.stream = members.flag("stream");
  const Json* options = members.find("stream_options");
  if (!options) return;
  if (!options->is_object() || !out.stream)
    wrong("stream_options", *options, "an object, together with \"stream\": true");
  const Json usage = options->value("include_usage", Json());
  if (!usage.is_null() && !usage.is_boolean())
    wrong("stream_options", *options, R"({"include_usage": true or false})");
  out.include_usage = usage == true;
}

}  // namespace

// SGLang's keys that say how, and not what, change nothing here.
ReloadRequest parse_reload(std::string_view body) {
  const Json json = parse_json(body, "the request's body");
  check<DataError>(json.is_object(), "the request's body: found ", quoted(json),
                   ", expected a JSON object");
  Members members(json);
  ReloadRequest out;
  out.directory = members.text("model_path");
  check<DataError>(!out.directory.empty(), "`model_path`: missing, expected a directory");
  out.name = members.text("weight_version");
  if (out.name.empty()) out.name = out.directory;
  for (const char* key : {"load_format", "flush_cache", "abort_all_requests", "torch_empty_cache"})
    members.find(key);
  members.check_rest();
  return out;
}

CompletionRequest parse_request(std::string_view body, bool chat) {
  const Json json = parse_json(body, "the request's body");
  check<DataError>(json.is_object(), "the request's body: found ", quoted(json),
                   ", expected a JSON object");
  Members members(json);
  CompletionRequest out;
  out.chat = chat;
  out.model = members.text("model");
  out.max_tokens = members.integer("max_tokens", 1, generate::kMostNewTokens);
  if (chat) {
    out.prompts = {read_messages(members)};
    read_tools(members, out);
    // The newer name.
    if (const auto most = members.integer("max_completion_tokens", 1, generate::kMostNewTokens))
      out.max_tokens = most;
  } else {
    out.prompts = read_prompts(members);
  }
  out.num_samples = members.integer("n", 1, kMostChoices).value_or(1);
  const int64_t prompts = static_cast<int64_t>(out.prompts.size());
  check<DataError>(prompts <= kMostChoices / out.num_samples, prompts, " prompts with `n` ",
                   out.num_samples, " each: expected at most ", kMostChoices, " completions");
  read_sampling(members, out.options);
  read_seed(members, out);
  read_logprobs(members, out);
  read_stream(members, out);
  out.return_token_ids = members.flag("return_token_ids");
  out.tokens_as_ids = members.flag("return_tokens_as_token_ids");
  members.check_rest();
  return out;
}

}  // namespace temper::serve
