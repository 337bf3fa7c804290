// What a client reads: OpenAI's JSON of completions and chat completions, whole or in chunks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/serve/reasoning.h"
#include "temper/serve/reply_json.h"
#include "temper/serve/request.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/token_logprobs.h"
#include "temper/text/chat/tool_calls.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::serve {

inline constexpr const char* kDone = "data: [DONE]\n\n";  // the last event of a stream

class Reply {
 public:
  // prompts: the tokens of each. tokenizer: null where the model has none; texts are empty then.
  // weights: names them, as `system_fingerprint`. calls, reasoning: how the chat template writes
  // calls of tools, and reasoning.
  Reply(CompletionRequest request, std::string model, std::vector<std::vector<int32_t>> prompts,
        std::shared_ptr<const Tokenizer> tokenizer, std::string weights,
        ToolCallFormat calls = ToolCallFormat::kHermes, const ReasoningMarks& reasoning = {});

  // How reasoning and answer are told apart from the first piece on.
  const ReasoningSplitter& reasoning_at_beginning() const { return reasoning_; }

  const CompletionRequest& request() const { return request_; }
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
    std::optional<TokenTexts> texts;
    ReasoningSplitter reasoning;
    std::vector<int32_t> tokens;  // so far, of a turn that may call tools
    std::string text;             // of its answer so far, likewise
    size_t shown = 0;             // of that text
    bool begun = false;
  };
  ReplyJson head(bool chunk) const;
  ReplyJson usage() const;
  ReplyJson choice(Piece piece, bool chunk);
  ReplyJson logprobs(Choice& choice, const Piece& piece) const;
  void echo_prompt(Choice& choice, Piece& piece) const;
  void add_turn(Choice& choice, const Piece& piece, bool chunk, ReplyJson& out) const;
  void add_calls(Choice& choice, const Piece& piece, const std::string& answer, bool chunk,
                 ReplyJson& turn, ReplyJson& out) const;
  bool may_call() const { return request_.chat && !request_.tools.is_null() && tokenizer_; }

  CompletionRequest request_;
  std::string model_, weights_, id_;
  int64_t created_;  // Unix time
  std::vector<std::vector<int32_t>> prompts_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ToolCallFormat calls_;
  ReasoningSplitter reasoning_;  // at the beginning of a turn
  std::vector<Choice> choices_;
  int64_t new_tokens_ = 0;
};

}  // namespace temper::serve
