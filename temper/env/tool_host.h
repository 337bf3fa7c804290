// Tools that the policy calls (`environment.tools`): a program is started for each call, and what
// it writes is the tool's message. By themselves they are an environment whose episodes end with
// the first turn that calls none; beside another one they answer their calls, and the other says
// when an episode ends.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>

#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/env/tool_run.h"

namespace temper::env {

class ToolHost : public Host {
 public:
  // inner: the environment beside them; null: none. The section outlives this.
  ToolHost(const EnvironmentSection& section, std::unique_ptr<Host> inner);

  void reset(int64_t episode, const Json& row) override;
  void step(int64_t episode, const Turn& turn) override;
  void close(int64_t episode) override;
  void add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const override;
  void advance(std::vector<Reply>& replies) override;

 private:
  struct Episode {
    Turn turn;
    std::vector<std::string> answers;  // answers to the turn's calls
    size_t unanswered = 0;
    bool stepped = false;  // its reset is answered
    Reply reply;
  };
  struct Call {
    int64_t episode;
    size_t number;  // index of the call in the turn
    const ToolSection* tool;
  };
  struct Running {
    Call call;
    std::unique_ptr<ToolRun> run;
  };

  void start_calls();
  void answer(const Call& call, ToolRun::Result result);
  void finish(int64_t episode);
  bool finish_inner(Reply& reply);

  const EnvironmentSection& section_;
  Json definitions_;
  std::unique_ptr<Host> inner_;
  std::map<int64_t, Episode> episodes_;
  std::deque<Call> waiting_;
  std::list<Running> running_;
  std::vector<Reply> answered_;
};

}  // namespace temper::env
