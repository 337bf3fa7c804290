// What one client's chat completions sampled, as a tree of turns. A request whose messages begin
// with an earlier request's and its answer continues that turn: its context is the earlier one's
// tokens and the tokens that were sampled, and only what follows them is tokenized
// (text/chat/dialogue.h). Retries and branches of the client are further turns after the same one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "temper/data/images/row_images.h"
#include "temper/data/rows/text_format.h"
#include "temper/generate/request.h"
#include "temper/serve/request.h"
#include "temper/text/chat/dialogue.h"
#include "temper/text/chat/tool_calls.h"

namespace temper::serve {

struct SessionRules {
  int64_t most_turns = 1024;               // requests times `n`
  int64_t most_tokens = int64_t{1} << 20;  // contexts and sampled tokens of all turns together
  int64_t longest_prompt = INT64_MAX;      // tokens before the first turn of a conversation
  int64_t longest_completion = INT64_MAX;  // tokens that follow them, as far as any turn's last
  std::set<int32_t> ends;                  // end tokens

  // Set in a training run: what requests say of temperature, truncation, penalties and seed is
  // ignored, so that what is sampled is the policy's. Random numbers depend on these, on the
  // session's number, on the context and on how often the session has asked with it: never on when
  // requests arrive.
  std::optional<generate::GenerationOptions> options;
  int64_t key = 0, number = 0;
  int adapter = 0;
};

struct SessionTurn {
  int64_t parent = -1;           // the turn that it continues; -1: it begins a conversation
  size_t kept = 0;               // number of tokens of the parent's context and of its own that
                                 // `context` begins with
  std::vector<int32_t> context;  // what it follows
  ImageSpans images = {};        // in the context
  int64_t position = 0;          // tokens between the conversation's prompt and this turn
  int64_t attempt = 0,
          choice = 0;         // earlier requests with this context; number among the request's
  generate::Completion said;  // tokens, logprobs, kept, text, stopped
  std::string weights;        // names those that sampled it, all of it
  bool done = false;          // false: it is being sampled, or its client has left
};

class Session {
 public:
  Session(std::string name, SessionRules rules)
      : name_(std::move(name)), rules_(std::move(rules)) {}

  const std::string& name() const { return name_; }

  // A request begins: one turn for each of its `n` samples. `format` has the template, `seed` is
  // that of a session without options of its own. Of images the headers alone are read. Throws
  // Refusal, DataError for a conversation that cannot be rendered.
  struct Begun {
    int64_t turn;  // the first one
    generate::Request asked;
  };
  Begun begin(const CompletionRequest& request, const data::TextFormat& format,
              ToolCallFormat calls, uint64_t seed, int64_t most_positions, int adapter);
  // A sample is complete, `answer` is what the client sees of it: {content, tool_calls}. weights:
  // names those that sampled it. Nothing happens after the end.
  void record(int64_t turn, generate::Completion said, const Json& answer,
              const std::string& weights);
  // The request with this turn is answered, or its client has left.
  void end_request();

  // Gives the session's reward, which ends it: later requests are refused. Throws Refusal (409)
  // where it has ended.
  void reward(double reward);
  void close();

  // What was recorded, as it is now. The turns are in order of their beginnings.
  struct Record {
    std::vector<SessionTurn> turns;
    std::optional<double> reward;
    bool closed = false;
    bool limited = false;  // a request was refused for one of the rules' limits
    int64_t open_requests = 0;
    int64_t begun = 0;  // number of turns, those included that are not done
    std::chrono::steady_clock::time_point changed;  // when it last began or answered a request
  };
  Record record() const;
  Record state() const;  // without the turns
  int64_t num_tokens() const;
  Json to_json() const;

 private:
  // What a turn needs so that others can continue it.
  struct Conversation {
    std::string form;  // tools and template variables, which those of a continuation equal
    Json added;        // normalized messages that follow the parent's answer
    Json answer;       // normalized
    std::optional<Dialogue> dialogue;  // before the turn
    data::RowImages images;            // of its messages, in order
    ToolCallFormat calls = ToolCallFormat::kHermes;
    std::vector<int32_t> stop_token_ids;
  };
  struct Found {
    int64_t turn = -1;    // none
    size_t messages = 0;  // how many messages it and its answer are
  };
  Found find(const Json& messages, const std::string& form) const;
  void check_request(const CompletionRequest& request) const;
  Conversation begun(const CompletionRequest& request, const data::TextFormat& format,
                     SessionTurn& turn) const;
  Conversation continued(const Found& from, const data::TextFormat& format, const Json& messages,
                         SessionTurn& turn) const;
  int64_t most_new_tokens(const CompletionRequest& request, const SessionTurn& turn,
                          int64_t most_positions);
  void limit(bool holds, int status, const std::string& why);
  uint64_t seed_of(const SessionTurn& turn) const;

  const std::string name_;
  const SessionRules rules_;
  mutable std::mutex mutex_;
  std::vector<SessionTurn> turns_;
  std::vector<Conversation> conversations_;  // by turn
  int64_t tokens_ = 0, open_requests_ = 0;
  std::optional<double> reward_;
  bool closed_ = false, limited_ = false;
  std::chrono::steady_clock::time_point changed_ = std::chrono::steady_clock::now();
};

}  // namespace temper::serve
