// Records what is sampled for one request of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "temper/serve/reasoning.h"
#include "temper/serve/request.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/sessions/session.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::serve {

class SessionRecorder {
 public:
  // turn: the request's first one. From here to its end the request is open in the session.
  SessionRecorder(std::shared_ptr<Session> session, int64_t turn, int64_t samples)
      : session_(std::move(session)), turn_(turn), said_(static_cast<size_t>(samples)) {}
  ~SessionRecorder() { session_->end_request(); }
  SessionRecorder(const SessionRecorder&) = delete;
  SessionRecorder& operator=(const SessionRecorder&) = delete;

  // How the client's answer is made of tokens, and what names the weights that sample them: as in
  // Reply. Called before add().
  void set_form(const CompletionRequest& request, std::shared_ptr<const Tokenizer> tokenizer,
                ToolCallFormat calls, ReasoningSplitter at_beginning, const std::string& weights);
  // Adds what a choice grew by. The turn is in the session before the client has its answer.
  void add(const Piece& piece);

 private:
  Json answer(const generate::Completion& said) const;

  const std::shared_ptr<Session> session_;
  const int64_t turn_;
  std::vector<generate::Completion> said_;  // by choice
  CompletionRequest request_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ToolCallFormat calls_ = ToolCallFormat::kHermes;
  ReasoningSplitter at_beginning_;
  std::string weights_;
};

}  // namespace temper::serve
