// Whether the servers of a run can serve it, asked before it needs them.
#pragma once

#include <string>
#include <vector>

#include "temper/generate/remote/protocol.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::generate::remote {

// tokenizer: null: every id of the vocabulary may stand in a prompt.
ServerNeeds server_needs(const ServerSection& section, const RolloutSection& rollout, bool adapter,
                         int64_t vocabulary, const Tokenizer* tokenizer);

struct ServerReport {
  // kGone: it does not answer, is busy or has failed, and may be back when the run asks it.
  enum class State { kGood, kGone, kWrong };
  std::string url;
  State state = State::kGood;
  std::string model;    // the model's name on a good server
  std::string reason;   // why the server is not good
  std::string warning;  // that its log-probabilities are, or may be, not the policy's; empty: none
};
// Protocol::inspect() of every server, at the same time, in their order. Takes some seconds where
// one does not answer. Throws ConfigError for urls that are none and a key that is not there.
std::vector<ServerReport> check_servers(const ServerSection& section, const ServerNeeds& needs);

}  // namespace temper::generate::remote
