// What a request asks of the engine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/data/images/row_images.h"
#include "temper/image/image_span.h"
#include "temper/serve/reasoning.h"
#include "temper/serve/request.h"
#include "temper/serve/server.h"
#include "temper/text/chat/tool_calls.h"

namespace temper::serve {

// A request that cannot be answered, with HTTP's status.
class Refusal : public Error {
 public:
  Refusal(int code, const std::string& message) : Error(message), status(code) {}
  int status;
};

// The model that the request names; the first where it names none. Throws Refusal (404).
const ServedModel& model_of(const ServerOptions& options, const std::string& name);

// The format of the model's prompts for this request: with the template that its variables ask for,
// at this moment.
data::TextFormat format_of(const ServerOptions& options, const CompletionRequest& request,
                           const ServedModel& model);

// The request's tools as templates read them; null: none.
Json shown_tools(const CompletionRequest& request);

// A chat's messages as its template reads them, behind the server's system prompt where they have
// none.
Json messages_of(const data::TextFormat& format, const CompletionRequest& request);

// The tokens of one of the request's prompts, and which of them stand for images, whose headers
// alone are read. Throws DataError.
struct AskedPrompt {
  std::vector<int32_t> tokens;
  ImageSpans images;
  data::RowImages placed;
  Json messages;  // of a chat: as the template read them, with the images in place
};
AskedPrompt prompt_of(const data::TextFormat& format, const CompletionRequest& request,
                      const Json& prompt);
// Of a request without images.
std::vector<int32_t> tokens_of(const data::TextFormat& format, const CompletionRequest& request,
                               const Json& prompt);

// Decodes a request's images that the server sees for the first time, unless they are too large
// together. Throws DataError.
void check_images(const ServerOptions& options, const ImageSpans& images);
// The same of a chat before its prompt is known.
void check_images(const ServerOptions& options, const data::TextFormat& format,
                  const CompletionRequest& request);

// A seed for a request that has none.
uint64_t random_seed();

// Throws DataError where the answer to one request, all its choices at their longest, could take
// more than 4 GiB of memory.
void check_answer_size(const CompletionRequest& request, std::span<const generate::Request> asked);

// One request of each prompt, with its number as the index. Decodes images that it sees for the
// first time. Throws DataError for an invalid prompt, for images that are broken or too large, and
// if prompt and completion exceed the model's positions.
std::vector<generate::Request> requests_of(const ServerOptions& options,
                                           const CompletionRequest& request,
                                           const ServedModel& model);

// How the model's chat template writes calls of the request's tools.
ToolCallFormat tool_calls_of(const ServerOptions& options, const CompletionRequest& request,
                             const ServedModel& model);

// The marks around the model's reasoning. None where reasoning is not split off, or where a schema
// or grammar constrains the completion, which then holds no reasoning.
ReasoningMarks reasoning_of(const ServerOptions& options, const CompletionRequest& request,
                            const ServedModel& model);

}  // namespace temper::serve
