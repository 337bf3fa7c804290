#include "temper/serve/request.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/images/image_fields.h"
#include "temper/serve/body.h"
#include "temper/serve/request_options.h"
#include "temper/text/chat/message_parts.h"

namespace temper::serve {
namespace {

// Limit on a request's template variables: the server keeps a compiled template for each set of
// them.
constexpr size_t kMostVariableBytes = size_t{64} << 10;

bool is_id_list(const Json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const Json& id : value)
    if (!id.is_number_integer()) return false;
  return true;
}

// More cost memory before their tokens are counted.
constexpr size_t kMostImages = 1024;
void count_image(size_t& images) {
  check<DataError>(++images <= kMostImages, "more than ", kMostImages, " images");
}

void take_image(const std::string& uri, CompletionRequest& out) {
  out.has_images = true;
  out.image_bytes += std::ssize(uri);
}

// The images that the ids, or placeholders, of a prompt stand for.
void read_images(Members& members, CompletionRequest& out) {
  const Json* const images = members.find("images");
  if (!images || images->is_null() || *images == Json::array()) return;
  if (!images->is_array() || out.prompts.size() != 1)
    wrong("images", *images, "a list of data: URIs, with one prompt");
  size_t number = 0;
  for (const Json& one : *images) {
    count_image(number);
    if (!one.is_string() || !is_data_uri(one.get_ref<const std::string&>()))
      wrong("images", one, "an image as a data: URI");
    take_image(one.get_ref<const std::string&>(), out);
  }
  out.images.assign(images->begin(), images->end());
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

// The server fetches nothing, and reads no files of its own for a client.
Json read_image_part(const Json& part) {
  constexpr const char* kExpected =
      R"({"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}})";
  Json url = part.value("image_url", Json());
  if (url.is_object()) url = url.value("url", Json());
  if (part["type"] != "image_url" || !url.is_string()) wrong("messages", part, kExpected);
  if (!is_data_uri(url.get_ref<const std::string&>()))
    wrong("messages", part, std::string("an image as a data: URI, ") + kExpected);
  return {{"type", "image_url"}, {"image_url", {{"url", std::move(url)}}}};
}

// A content is a text, or parts: texts, which some templates read, and images.
void read_content(Json& message, CompletionRequest& out, size_t& images) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null() || content->is_string()) return;
  if (!content->is_array())
    wrong("messages", *content, "a `content` that is a text or a list of parts");
  for (Json& part : *content) {
    if (data::is_image(part)) {
      count_image(images);
      part = read_image_part(part);
      take_image(part["image_url"]["url"].get_ref<const std::string&>(), out);
    } else if (!text_of_parts(Json::array({part}))) {
      wrong("messages", *content, R"(parts {"type": "text", "text": ...} or "image_url")");
    }
  }
}

// Clients send the arguments of calls as text; templates know them as objects.
void parse_arguments(Json& message) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    // Some clients send an empty text as the arguments of a call that has none.
    const std::string text = function["arguments"].get<std::string>();
    try {
      function["arguments"] =
          text.empty() ? Json::object() : parse_json(text, "arguments", BigIntegers::kKept);
    } catch (const DataError&) {
      wrong("messages", call, "a tool call whose `arguments` are JSON");
    }
  }
}

Json read_messages(Members& members, CompletionRequest& out) {
  const Json* given = members.find("messages");
  check<DataError>(given, "`messages`: missing, expected a list of messages");
  if (!given->is_array() || given->empty())
    wrong("messages", *given, "a list of messages, not empty");
  Json messages = *given;
  size_t images = 0;
  for (Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      wrong("messages", message, R"({"role": ..., "content": ...})");
    read_content(message, out, images);
    parse_arguments(message);
  }
  return messages;
}

// vLLM's and SGLang's variables of the template, such as {"enable_thinking": false}.
void read_template_variables(Members& members, CompletionRequest& out) {
  const Json* given = members.find("chat_template_kwargs");
  if (given && !given->is_object())
    wrong("chat_template_kwargs", *given, "an object of the chat template's variables");
  if (given && !given->empty()) {
    out.template_variables = *given;
    // What the server itself gives to the template.
    for (const char* name : {"add_generation_prompt", "messages", "tools"})
      if (out.template_variables.erase(name) > 0)
        out.ignored.push_back(temper::str("chat_template_kwargs.", name));
    if (out.template_variables.empty()) out.template_variables = Json();
  }
  const Json* effort = members.find("reasoning_effort");
  if (effort) {
    if (!effort->is_string()) wrong("reasoning_effort", *effort, "a text");
    if (out.template_variables.is_null()) out.template_variables = Json::object();
    if (!out.template_variables.contains("reasoning_effort"))
      out.template_variables["reasoning_effort"] = *effort;
  }
  if (out.template_variables.is_null()) return;
  const size_t size = dump_json(out.template_variables).size();
  check<DataError>(size <= kMostVariableBytes, "`",
                   given ? "chat_template_kwargs" : "reasoning_effort", "`: found ", size,
                   " bytes, expected at most ", kMostVariableBytes);
}

void read_seed(Members& members, CompletionRequest& out) {
  const Json* seed = members.find("seed");
  if (!seed) return;
  if (!seed->is_number_integer()) wrong("seed", *seed, "a whole number of 64 bits");
  out.seed = seed->is_number_unsigned() ? seed->get<uint64_t>()
                                        : static_cast<uint64_t>(seed->get<int64_t>());
}

void read_logprobs(Members& members, CompletionRequest& out) {
  const Json* logprobs = members.find("logprobs");
  if (out.chat || (logprobs && logprobs->is_boolean())) {
    out.logprobs = members.flag("logprobs");
  } else if (logprobs) {
    out.options.top_logprobs = *members.integer("logprobs", 0, kMostTopLogprobs);
    out.logprobs = true;
  }
  if (!out.chat) return;
  const int64_t top = members.integer("top_logprobs", 0, kMostTopLogprobs).value_or(0);
  check<DataError>(top == 0 || out.logprobs, "`top_logprobs`: found ", top,
                   " without \"logprobs\": true");
  out.options.top_logprobs = top;
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

// Every answer, and every turn of a session, carries it.
constexpr size_t kLongestVersion = 256;

// SGLang's keys that say how, and not what, change nothing here.
ReloadRequest parse_reload(std::string_view body) {
  const Json json = parse_json(body, "the request's body");
  check<DataError>(json.is_object(), "the request's body: found ", quoted(json),
                   ", expected a JSON object");
  Members members(json);
  ReloadRequest out;
  out.directory = members.text("model_path");
  check<DataError>(!out.directory.empty(), "`model_path`: missing, expected a directory");
  check<DataError>(out.directory.find('\0') == std::string::npos,
                   "`model_path`: found a NUL, expected a directory");
  out.name = members.text("weight_version");
  check<DataError>(out.name.size() <= kLongestVersion, "`weight_version`: found ", out.name.size(),
                   " bytes, expected at most ", kLongestVersion);
  if (out.name.empty()) out.name = out.directory;
  for (const char* key : {"load_format", "flush_cache", "abort_all_requests", "torch_empty_cache"})
    members.find(key);
  members.check_no_rest();
  return out;
}

CompletionRequest parse_request(std::string_view body, bool chat,
                                const generate::GenerationOptions& defaults) {
  const Json json = parse_json(body, "the request's body");
  check<DataError>(json.is_object(), "the request's body: found ", quoted(json),
                   ", expected a JSON object");
  Members members(json);
  CompletionRequest out;
  out.chat = chat;
  out.options = defaults;
  out.model = members.text("model");
  out.echo = !chat && members.flag("echo");
  out.max_tokens = members.integer("max_tokens", out.echo ? 0 : 1, generate::kMostNewTokens);
  if (chat) {
    out.prompts = {read_messages(members, out)};
    read_tools(members, out);
    read_template_variables(members, out);
    // The newer name.
    if (const auto most = members.integer("max_completion_tokens", 1, generate::kMostNewTokens))
      out.max_tokens = most;
  } else {
    out.prompts = read_prompts(members);
    read_images(members, out);
  }
  out.num_samples = members.integer("n", 1, kMostChoices).value_or(1);
  const int64_t prompts = static_cast<int64_t>(out.prompts.size());
  check<DataError>(prompts <= kMostChoices / out.num_samples, prompts, " prompts with `n` ",
                   out.num_samples, " each: expected at most ", kMostChoices, " completions");
  read_sampling(members, generate::Api::kOpenAi, out.options);
  read_structure(members, out);
  read_seed(members, out);
  read_logprobs(members, out);
  out.options.prompt_logprobs = out.echo && out.logprobs;
  read_stream(members, out);
  out.return_token_ids = members.flag("return_token_ids");
  out.tokens_as_ids = members.flag("return_tokens_as_token_ids");
  for (std::string& key : members.rest()) out.ignored.push_back(std::move(key));
  return out;
}

}  // namespace temper::serve
