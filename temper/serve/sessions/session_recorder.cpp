#include "temper/serve/sessions/session_recorder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "temper/serve/tool_turn.h"

namespace temper::serve {

void SessionRecorder::set_form(const CompletionRequest& request,
                               std::shared_ptr<const Tokenizer> tokenizer, ToolCallFormat calls,
                               ReasoningSplitter at_beginning, const std::string& weights) {
  request_.tools = request.tools;
  request_.chat = request.chat;
  tokenizer_ = std::move(tokenizer);
  calls_ = calls;
  at_beginning_ = std::move(at_beginning);
  weights_ = weights;
}

void SessionRecorder::add(const Piece& piece) {
  generate::Completion& said = said_.at(static_cast<size_t>(piece.choice));
  said.tokens.insert(said.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  said.logprobs.insert(said.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
  said.kept.insert(said.kept.end(), piece.kept.begin(), piece.kept.end());
  said.text += piece.text;
  if (!piece.finished) return;
  said.stopped = piece.stopped;
  const Json content = answer(said);
  session_->record(turn_ + piece.choice, std::move(said), content, weights_);
}

Json SessionRecorder::answer(const generate::Completion& said) const {
  ReasoningSplitter splitter = at_beginning_;
  Json out{{"role", "assistant"}, {"content", splitter.next(said.text, true).answer}};
  if (request_.tools.is_null()) return out;
  const SpokenCalls spoken = spoken_calls(request_, calls_, *tokenizer_, said.tokens, at_beginning_,
                                          out["content"].get<std::string>());
  out["content"] = spoken.content;
  for (const SpokenCalls::Call& call : spoken.calls)
    out["tool_calls"].push_back(
        {{"function",
          {{"name", call.name},
           {"arguments", parse_json(call.arguments, "arguments", BigIntegers::kKept)}}}});
  return out;
}

}  // namespace temper::serve
