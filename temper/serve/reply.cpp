#include "temper/serve/reply.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "temper/base/error.h"

namespace temper::serve {
namespace {

std::string new_id(bool chat) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = chat ? "chatcmpl-" : "cmpl-";
  for (int i = 0; i < 24; ++i) id += "0123456789abcdef"[random() % 16];
  return id;
}

int64_t count_characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string event(const ReplyJson& json) { return "data: " + to_text(json) + "\n\n"; }

}  // namespace

std::string to_text(const ReplyJson& reply) {
  return reply.dump(-1, ' ', false, ReplyJson::error_handler_t::replace);
}

std::string error_text(int status, const std::string& message) {
  const char* const type = status == 401   ? "authentication_error"
                           : status == 404 ? "not_found_error"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  return to_text({{"error", {{"message", message}, {"type", type}, {"code", status}}}});
}

Reply::Reply(CompletionRequest request, std::string model,
             std::vector<std::vector<int32_t>> prompts, std::shared_ptr<const Tokenizer> tokenizer,
             std::string weights)
    : request_(std::move(request)),
      model_(std::move(model)),
      weights_(std::move(weights)),
      id_(new_id(request_.chat)),
      created_(std::time(nullptr)),
      prompts_(std::move(prompts)),
      tokenizer_(std::move(tokenizer)),
      choices_(prompts_.size() * static_cast<size_t>(request_.num_samples)) {
  for (Choice& choice : choices_)
    if (tokenizer_) choice.decoder.emplace(*tokenizer_);
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

// What the token adds to the text; of a special token its name.
std::string Reply::token_text(Choice& choice, int32_t id) const {
  if (request_.tokens_as_ids || !tokenizer_) return temper::str("token_id:", id);
  return tokenizer_->is_special(id) ? tokenizer_->decode({&id, 1}) : choice.decoder->push(id);
}

ReplyJson Reply::logprobs(const Piece& piece) {
  if (!request_.logprobs) return nullptr;
  Choice& choice = choices_[static_cast<size_t>(piece.choice)];
  ReplyJson content = ReplyJson::array(), tokens = content, values = content, top = content,
            offsets = content;
  for (size_t i = 0; i < piece.tokens.size(); ++i) {
    const std::string text = token_text(choice, piece.tokens[i]);
    const float value = piece.logprobs[i];
    if (request_.chat) {
      ReplyJson token{{"token", text}, {"logprob", value}, {"bytes", nullptr}};
      token["top_logprobs"] = request_.top_logprob ? ReplyJson::array({token}) : ReplyJson::array();
      content.push_back(std::move(token));
      continue;
    }
    tokens.push_back(text);
    values.push_back(value);
    top.push_back(ReplyJson{{text, value}});
    offsets.push_back(choice.characters);
    choice.characters += count_characters(text);
  }
  if (request_.chat) return {{"content", std::move(content)}};
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", request_.top_logprob ? std::move(top) : ReplyJson(nullptr)},
          {"text_offset", std::move(offsets)}};
}

ReplyJson Reply::choice(const Piece& piece, bool chunk) {
  Choice& choice = choices_[static_cast<size_t>(piece.choice)];
  new_tokens_ += static_cast<int64_t>(piece.tokens.size());
  ReplyJson out{{"index", piece.choice}};
  if (request_.chat && chunk)
    out["delta"] = {{"content", piece.text}};
  else if (request_.chat)
    out["message"] = {{"role", "assistant"}, {"content", piece.text}};
  else
    out["text"] = piece.text;
  out["logprobs"] = logprobs(piece);
  out["finish_reason"] = !piece.finished ? ReplyJson(nullptr)
                         : piece.stopped ? ReplyJson("stop")
                                         : ReplyJson("length");
  if (request_.return_token_ids) {
    out["token_ids"] = piece.tokens;
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
  return out + "data: [DONE]\n\n";
}

}  // namespace temper::serve
