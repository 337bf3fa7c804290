// Tools that the policy calls (`environment.tools`): a program is started for each call, and what
// it writes is the tool's message. By themselves they are an environment whose episodes end with
// the first turn that calls none; beside another one they answer their calls, and the other says
// when an episode ends. Tools of an MCP server are answered by that one process, for all episodes.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>

#include "temper/env/config.h"
#include "temper/env/host.h"
#include "temper/env/mcp_server.h"
#include "temper/env/tool_run.h"

namespace temper::env {

class ToolHost : public Host {
 public:
  // inner: the environment beside them; null: none. The section outlives this. Throws ConfigError
  // as McpServer does, and for two tools of one name.
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
  struct Tool {
    ToolSection section;
    McpServer* server;  // null: its program answers
  };
  struct Call {
    int64_t episode;
    size_t number;  // index of the call in the turn
    const Tool* tool;
  };
  // Calls that servers have not answered, by server and number.
  using Asked = std::map<std::pair<McpServer*, int64_t>, Call>;
  struct Running {
    Call call;
    std::unique_ptr<ToolRun> run;
  };

  void add_tool(ToolSection section, McpServer* server, const std::string& key);
  const Tool* find(const std::string& name) const;
  bool can_start() const;
  void start_calls();
  void ask_servers();
  void answer(const Call& call, ToolRun::Result result);
  void finish(int64_t episode);
  bool finish_inner(Reply& reply);

  const EnvironmentSection& section_;
  std::vector<std::unique_ptr<McpServer>> servers_;
  std::vector<std::unique_ptr<Tool>> tools_;
  Json definitions_;
  std::unique_ptr<Host> inner_;
  std::map<int64_t, Episode> episodes_;
  std::deque<Call> waiting_;
  std::list<Running> running_;
  Asked asked_;
  std::vector<Reply> answered_;
};

}  // namespace temper::env
