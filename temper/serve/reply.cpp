#include "temper/serve/reply.h"

#include <algorithm>
#include <ctime>

#include "temper/base/error.h"
#include "temper/serve/tool_turn.h"

namespace temper::serve {
namespace {

constexpr size_t kPromptEnd = 16;  // last tokens of a prompt that may begin the reasoning

std::string event(const ReplyJson& json) { return "data: " + to_text(json) + "\n\n"; }

ReplyJson call_json(const SpokenCalls::Call& call) {
  return {{"id", new_id("call_")},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

Reply::Reply(CompletionRequest request, std::string model,
             std::vector<std::vector<int32_t>> prompts, std::shared_ptr<const Tokenizer> tokenizer,
             std::string weights, ToolCallFormat calls, const ReasoningMarks& reasoning)
    : request_(std::move(request)),
      model_(std::move(model)),
      weights_(std::move(weights)),
      id_(new_id(request_.chat ? "chatcmpl-" : "cmpl-")),
      created_(std::time(nullptr)),
      prompts_(std::move(prompts)),
      tokenizer_(std::move(tokenizer)),
      calls_(calls),
      choices_(prompts_.size() * static_cast<size_t>(request_.num_samples)) {
  if (reasoning && tokenizer_ && !prompts_.empty()) {
    const std::vector<int32_t>& prompt = prompts_.front();
    const size_t looked_at = std::min(prompt.size(), kPromptEnd);
    const std::string end =
        tokenizer_->decode({prompt.end() - static_cast<ptrdiff_t>(looked_at), prompt.end()});
    reasoning_ = ReasoningSplitter(reasoning, is_within_reasoning(reasoning, end));
  }
  for (Choice& choice : choices_) {
    choice.texts.emplace(tokenizer_.get(), request_.tokens_as_ids);
    choice.reasoning = reasoning_;
  }
}

ReplyJson Reply::head(bool chunk) const {
  const char* const object = !request_.chat ? "text_completion"
                             : chunk        ? "chat.completion.chunk"
                                            : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", weights_}};
}

ReplyJson Reply::usage() const {
  int64_t prompt_tokens = 0;
  for (const auto& prompt : prompts_) prompt_tokens += static_cast<int64_t>(prompt.size());
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", new_tokens_},
          {"total_tokens", prompt_tokens + new_tokens_}};
}

ReplyJson Reply::logprobs(Choice& choice, const Piece& piece) const {
  if (!request_.logprobs) return nullptr;
  if (request_.chat) return chat_logprobs(*choice.texts, piece);
  return completion_logprobs(*choice.texts, piece, request_.options.top_logprobs > 0,
                             request_.echo && !choice.begun);
}

// Puts the prompt before the first piece of a choice.
void Reply::echo_prompt(Choice& choice, Piece& piece) const {
  if (!request_.echo || choice.begun) return;
  const size_t number = static_cast<size_t>(piece.choice / request_.num_samples);
  const std::vector<int32_t>& prompt = prompts_[number];
  const Json& given = request_.prompts[number];
  piece.text = (given.is_string() ? given.get<std::string>()
                : tokenizer_      ? tokenizer_->decode(prompt)
                                  : std::string()) +
               piece.text;
  if (!piece.of_prompt) return;
  piece.tokens.insert(piece.tokens.begin(), prompt.begin(), prompt.end());
  std::vector<float> logprobs{0};
  logprobs.insert(logprobs.end(), piece.of_prompt->logprobs.begin(),
                  piece.of_prompt->logprobs.end());
  piece.logprobs.insert(piece.logprobs.begin(), logprobs.begin(), logprobs.end());
  std::vector<generate::TopLogprobs> top(1);
  top.insert(top.end(), piece.of_prompt->top.begin(), piece.of_prompt->top.end());
  piece.top.insert(piece.top.begin(), top.begin(), top.end());
}

// The text of a chat's piece: reasoning, answer, or the calls of tools in it.
void Reply::add_turn(Choice& choice, const Piece& piece, bool chunk, ReplyJson& out) const {
  ReplyJson turn = ReplyJson::object();
  if (!chunk) turn["role"] = "assistant";
  ReasoningSplitter::Parts said = choice.reasoning.next(piece.text, piece.finished);
  turn["content"] = said.answer;
  if (!said.reasoning.empty()) {
    turn["reasoning_content"] = said.reasoning;
    if (said.answer.empty()) turn["content"] = nullptr;
  }
  if (may_call()) add_calls(choice, piece, said.answer, chunk, turn, out);
  out[chunk ? "delta" : "message"] = std::move(turn);
}

void Reply::add_calls(Choice& choice, const Piece& piece, const std::string& answer, bool chunk,
                      ReplyJson& turn, ReplyJson& out) const {
  choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  choice.text += answer;
  SpokenCalls said;
  size_t shown = shown_before_calls(request_, calls_, choice.text);
  if (piece.finished) {
    said = spoken_calls(request_, calls_, *tokenizer_, choice.tokens, reasoning_, choice.text);
    if (said.calls.empty()) shown = choice.text.size();
  }
  const size_t before = std::min(choice.shown, shown);
  if (chunk) {
    // The content between and after calls that was not sent yet.
    std::string rest = choice.text.substr(before, shown - before);
    if (!said.calls.empty() && said.content.size() > shown) rest += said.content.substr(shown);
    turn["content"] =
        rest.empty() && turn.contains("reasoning_content") ? ReplyJson(nullptr) : ReplyJson(rest);
  } else if (piece.finished) {
    turn["content"] =
        said.content.empty() && !said.calls.empty() ? ReplyJson(nullptr) : ReplyJson(said.content);
  }
  choice.shown = std::max(choice.shown, shown);
  for (size_t i = 0; i < said.calls.size(); ++i) {
    ReplyJson call = call_json(said.calls[i]);
    if (chunk) call["index"] = i;
    turn["tool_calls"].push_back(std::move(call));
  }
  if (!said.calls.empty()) out["finish_reason"] = "tool_calls";
}

ReplyJson Reply::choice(Piece piece, bool chunk) {
  Choice& choice = choices_[static_cast<size_t>(piece.choice)];
  if (request_.max_tokens == 0)  // the one that was sampled is not asked for
    piece = {.choice = piece.choice, .of_prompt = piece.of_prompt, .finished = piece.finished};
  new_tokens_ += static_cast<int64_t>(piece.tokens.size());
  ReplyJson out{{"index", piece.choice}};
  const std::vector<int32_t> tokens = piece.tokens;
  echo_prompt(choice, piece);
  out["finish_reason"] = !piece.finished ? ReplyJson(nullptr)
                         : piece.stopped ? ReplyJson("stop")
                                         : ReplyJson("length");
  if (request_.chat)
    add_turn(choice, piece, chunk, out);
  else
    out["text"] = piece.text;
  out["logprobs"] = logprobs(choice, piece);
  if (request_.return_token_ids) {
    out["token_ids"] = tokens;
    if (!choice.begun)
      out["prompt_token_ids"] = prompts_[static_cast<size_t>(piece.choice / request_.num_samples)];
  }
  choice.begun = true;
  return out;
}

std::string Reply::whole(const std::vector<Piece>& pieces) {
  ReplyJson out = head(false), choices = ReplyJson::array();
  for (const Piece& piece : pieces) choices.push_back(choice(piece, false));
  out["choices"] = std::move(choices);
  out["usage"] = usage();
  if (request_.return_token_ids && prompts_.size() == 1) out["prompt_token_ids"] = prompts_[0];
  return to_text(out);
}

std::string Reply::events(const Piece& piece) {
  std::string out;
  if (request_.chat && !choices_[static_cast<size_t>(piece.choice)].begun) {
    ReplyJson first = head(true);
    first["choices"] = ReplyJson::array({{{"index", piece.choice},
                                          {"delta", {{"role", "assistant"}, {"content", ""}}},
                                          {"logprobs", nullptr},
                                          {"finish_reason", nullptr}}});
    out = event(first);
  }
  ReplyJson json = head(true);
  json["choices"] = ReplyJson::array({choice(piece, true)});
  return out + event(json);
}

std::string Reply::last_events() const {
  std::string out;
  if (request_.include_usage) {
    ReplyJson json = head(true);
    json["choices"] = ReplyJson::array();
    json["usage"] = usage();
    out = event(json);
  }
  return out + kDone;
}

}  // namespace temper::serve
