// What a client reads: OpenAI's JSON of completions and chat completions, whole or in chunks.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "temper/serve/request.h"
#include "temper/serve/sampler_loop.h"
#include "temper/text/tokenizer.h"

namespace temper::serve {

// JSON whose floating-point numbers are float32, printed so that they read back to the same; those
// that are not finite are printed as null.
using ReplyJson = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       std::int64_t, std::uint64_t, float>;

std::string to_text(const ReplyJson& reply);
// {"error": {"message", "type", "code"}}
std::string error_text(int status, const std::string& message);

class Reply {
 public:
  // prompts: the tokens of each. tokenizer: null where the model has none; texts are empty then.
  // weights: names them, as `system_fingerprint`.
  Reply(CompletionRequest request, std::string model, std::vector<std::vector<int32_t>> prompts,
        std::shared_ptr<const Tokenizer> tokenizer, std::string weights);

  bool stream() const { return request_.stream; }
  int64_t num_choices() const { return static_cast<int64_t>(choices_.size()); }

  // Without streaming: of all pieces, one a choice, in order of choice.
  std::string whole(const std::vector<Piece>& pieces);
  // Streaming: the events (lines "data: ..." and an empty one) of a piece, and those behind the
  // last.
  std::string events(const Piece& piece);
  std::string last_events() const;

 private:
  struct Choice {
    std::optional<StreamDecoder> decoder;
    int64_t characters = 0;  // of the text before
    bool begun = false;
  };
  ReplyJson head(bool chunk) const;
  ReplyJson usage() const;
  ReplyJson logprobs(const Piece& piece);
  ReplyJson choice(const Piece& piece, bool chunk);
  std::string token_text(Choice& choice, int32_t id) const;

  CompletionRequest request_;
  std::string model_, weights_, id_;
  int64_t created_;  // Unix time
  std::vector<std::vector<int32_t>> prompts_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Choice> choices_;
  int64_t new_tokens_ = 0;
};

}  // namespace temper::serve
