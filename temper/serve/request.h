// What a client asks for: the body of a request of OpenAI's completions or chat completions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/generate/request.h"

namespace temper::serve {

inline constexpr int64_t kMostChoices = 4096;    // prompts times n
inline constexpr int64_t kMostTopLogprobs = 20;  // vLLM's and OpenAI's

enum class ToolChoice { kAuto, kRequired, kNamed };

struct CompletionRequest {
  bool chat = false;
  std::string model;  // empty: not said
  // Each a text or a list of ids; of a chat one list of messages, whose parts are texts and
  // {"type": "image_url", "image_url": {"url": a data: URI}}, without other members.
  std::vector<Json> prompts;
  bool has_images = false;
  int64_t image_bytes = 0;   // of their data: URIs
  std::vector<Json> images;  // of the one prompt that is no chat: data: URIs
  Json tools;                // null: none
  Json template_variables;   // of the chat template, beside its own; null: none
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;  // of kNamed
  bool parallel_tool_calls = true;
  bool echo = false;  // the prompt's text comes before the completion's
  int64_t num_samples = 1;
  std::optional<int64_t> max_tokens;  // 0: with echo, the prompt alone
  std::optional<uint64_t> seed;
  generate::GenerationOptions options;  // without max_new_tokens and seed
  bool logprobs = false;
  bool return_token_ids = false, tokens_as_ids = false;
  bool stream = false, include_usage = false;
  std::vector<std::string> ignored;  // keys that are not known
};

// Parses a request; `defaults` are its values where it says nothing. Keys of OpenAI's that change
// nothing here are ignored, and so are unknown ones, which are listed in `ignored`. Keys that would
// change the completion and are not supported are errors unless they have their default. Throws
// DataError naming the key, what was found and what was expected.
CompletionRequest parse_request(std::string_view body, bool chat,
                                const generate::GenerationOptions& defaults = {});

// POST /update_weights_from_disk: other weights for the model.
struct ReloadRequest {
  std::string directory;  // of a model, or of an adapter
  std::string name;       // of these weights; by default the directory
};
ReloadRequest parse_reload(std::string_view body);

}  // namespace temper::serve
