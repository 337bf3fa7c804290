#include "temper/serve/asked.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "temper/data/images/row_images.h"
#include "temper/models/vision/image_rows.h"
#include "temper/serve/forced_calls.h"
#include "temper/text/chat/message_parts.h"
#include "temper/text/unicode.h"

namespace temper::serve {
namespace {

constexpr const char* kPromptName = "the prompt";  // in messages

// What is asked for; else OpenAI's 16 of a text, and of a chat as `temper chat`.
int64_t most_new_tokens(const ServerOptions& options, const CompletionRequest& request,
                        size_t prompt_tokens) {
  const int64_t length = static_cast<int64_t>(prompt_tokens);
  const int64_t room = options.most_positions - length;
  check<DataError>(room >= 1, "the prompt has ", length, " tokens, and the model has ",
                   options.most_positions, " positions for prompt and completion");
  check<DataError>(request.max_tokens.value_or(1) <= room, "the prompt has ", length,
                   " tokens and `max_tokens` is ", request.max_tokens.value_or(1),
                   ", and the model has ", options.most_positions, " positions for both");
  if (request.max_tokens) return std::max<int64_t>(1, *request.max_tokens);
  return std::min<int64_t>(room, request.chat ? 1024 : 16);
}

}  // namespace

// What images cost is known from their headers: it is limited before any is decoded.
void check_images(const ServerOptions& options, const ImageSpans& images) {
  int64_t pixels = 0;
  for (const ImageSpan& span : images)
    if (span.first == 0) pixels += span.image->size().width * span.image->size().height;
  check<DataError>(pixels <= options.most_image_pixels, "the images have ", pixels,
                   " pixels together, and this server takes ", options.most_image_pixels,
                   " of a request (--max-image-pixels)");
  options.decoded->check(images, kPromptName);
}

void check_images(const ServerOptions& options, const data::TextFormat& format,
                  const CompletionRequest& request) {
  if (!request.has_images) return;
  Json row{{"messages", request.prompts.at(0)}};
  ImageSpans images;
  for (data::RowImage& one : data::place_images(format, row, {"messages"}, kPromptName))
    images.push_back({0, 1, 0, std::move(one.image), nullptr});
  check_images(options, images);
}

void check_answer_size(const CompletionRequest& request, std::span<const generate::Request> asked) {
  constexpr double kMostAnswerBytes = 4294967296.0;
  // Of JSON in memory: of a token's text, of its log-probability, of each likely token beside it.
  constexpr double kText = 16, kLogprob = 100;
  const double of_token =
      kText +
      (request.logprobs ? kLogprob * (1 + static_cast<double>(request.options.top_logprobs)) : 0);
  double bytes = 0;
  for (const generate::Request& one : asked) {
    const auto prompt = static_cast<double>(request.echo ? one.prompt.size() : 0);
    bytes += of_token * static_cast<double>(one.num_samples) *
             (prompt + static_cast<double>(one.options.max_new_tokens));
  }
  check<DataError>(bytes <= kMostAnswerBytes, "`n`, `max_tokens`, `logprobs`: the answer may take ",
                   static_cast<int64_t>(bytes), " bytes, expected at most ",
                   static_cast<int64_t>(kMostAnswerBytes),
                   "; ask for fewer choices, tokens or log-probabilities at once");
}

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// The format of the model's prompts at this moment: a server may run for months, so a template that
// writes the date reads the clock for each request.
data::TextFormat format_of(const ServerOptions& options, const CompletionRequest& request,
                           const ServedModel& model) {
  data::TextFormat format = options.format;
  if (model.chat) format.chat = model.chat;
  if (format.chat && options.chat_with && !request.template_variables.is_null())
    format.chat = options.chat_with(model.adapter, request.template_variables);
  if (format.chat && options.reads_clock)
    format.chat = std::make_shared<const ChatTemplate>(format.chat->at_now());
  return format;
}

// Templates read the parameters that OpenAI's clients may leave out where a function has none.
Json shown_tools(const CompletionRequest& request) {
  Json tools = request.tools;
  if (tools.is_null()) return tools;
  for (Json& tool : tools) {
    Json& function = tool["function"];
    if (function.value("parameters", Json()).is_null())
      function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  return tools;
}

Json messages_of(const data::TextFormat& format, const CompletionRequest& request) {
  Json messages = request.prompts.at(0);
  join_unread_parts(messages, format.chat.get(), shown_tools(request));
  return data::with_system_prompt(format, messages);
}

AskedPrompt prompt_of(const data::TextFormat& format, const CompletionRequest& request,
                      const Json& prompt) {
  Json row;
  if (request.chat)
    row["messages"] = messages_of(format, request);
  else
    row[prompt.is_string() ? "prompt" : "tokens"] = prompt;
  if (!request.images.empty()) row["images"] = request.images;
  if (request.chat && !request.tools.is_null()) row["tools"] = shown_tools(request);
  data::RowImages images = data::place_images(format, row, {"messages"}, kPromptName);
  AskedPrompt out{data::prompt_tokens(format, row, kPromptName, SIZE_MAX, &images), {}, {}, {}};
  check<DataError>(!out.tokens.empty(), "the prompt has no tokens");
  out.images = data::spans_of(format, images, out.tokens, kPromptName);
  out.placed = std::move(images);
  if (request.chat) out.messages = std::move(row["messages"]);
  return out;
}

std::vector<int32_t> tokens_of(const data::TextFormat& format, const CompletionRequest& request,
                               const Json& prompt) {
  return prompt_of(format, request, prompt).tokens;
}

const ServedModel& model_of(const ServerOptions& options, const std::string& name) {
  if (name.empty() || options.any_model) return options.models.front();
  // A directory's last part names it, too.
  const std::string& base = options.models.front().name;
  std::string known;
  for (const ServedModel& model : options.models) {
    if (model.name == name) return model;
    known += (known.empty() ? "" : ", ") + model.name;
  }
  const auto& others = options.other_names;
  if (base.ends_with("/" + name) || std::find(others.begin(), others.end(), name) != others.end())
    return options.models.front();
  throw Refusal(404, temper::str("`model`: found ", printable(name), ", expected one of ", known));
}

std::vector<generate::Request> requests_of(const ServerOptions& options,
                                           const CompletionRequest& request,
                                           const ServedModel& model) {
  generate::GenerationOptions sampling = request.options;
  sampling.sampling.seed = request.seed ? *request.seed : random_seed();
  sampling.stream = request.stream;
  const data::TextFormat format = format_of(options, request, model);
  const std::string forced = forced_beginning(request, tool_calls_of(options, request, model));
  std::vector<generate::Request> out;
  for (const Json& prompt : request.prompts) {
    AskedPrompt asked = prompt_of(format, request, prompt);
    out.push_back({static_cast<int64_t>(out.size()), std::move(asked.tokens), request.num_samples,
                   sampling, model.adapter});
    out.back().rows = models::external_rows(asked.images);
    if (const auto id = forced.empty() ? std::nullopt : format.tokenizer->id_of(forced))
      out.back().prompt.push_back(*id);
    out.back().options.max_new_tokens = most_new_tokens(options, request, out.back().prompt.size());
    check_images(options, asked.images);
  }
  check_answer_size(request, out);
  return out;
}

ToolCallFormat tool_calls_of(const ServerOptions& options, const CompletionRequest& request,
                             const ServedModel& model) {
  if (options.tool_calls != ToolCallFormat::kAuto) return options.tool_calls;
  const auto& chat = model.chat ? model.chat : options.format.chat;
  return chat ? tool_call_format(chat->source(request.tools)) : ToolCallFormat::kHermes;
}

ReasoningMarks reasoning_of(const ServerOptions& options, const CompletionRequest& request,
                            const ServedModel& model) {
  const auto& chat = model.chat ? model.chat : options.format.chat;
  const bool free = !request.options.grammar && request.tool_choice == ToolChoice::kAuto;
  const bool splits = options.splits_reasoning && request.chat && chat && free;
  return splits ? reasoning_marks(chat->source(request.tools)) : ReasoningMarks();
}

}  // namespace temper::serve
