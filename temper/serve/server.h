// `temper serve`: the routes of OpenAI's protocol over HTTP.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/data/rows/text_format.h"
#include "temper/http/server.h"
#include "temper/image/decoded.h"
#include "temper/serve/sampler_loop.h"
#include "temper/text/chat/tool_calls.h"

namespace temper::serve {

class Sessions;

struct ServedModel {
  std::string name;
  int adapter = 0;  // nn::Context::adapter
  // An adapter's own chat template; null: that of the options' format.
  std::shared_ptr<const ChatTemplate> chat = nullptr;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;      // 0: a free one
  std::string api_key;  // one or several, as http::AccessRules has them; empty: none
  std::vector<std::string> allowed_origins, allowed_hosts;  // as http::AccessRules
  std::vector<ServedModel> models;       // the first is used if a request names none
  std::vector<std::string> other_names;  // of the first model, in requests
  // The chat template of the model, or of an adapter (nn::Context::adapter), with additional
  // variables; empty: there is none.
  std::function<std::shared_ptr<const ChatTemplate>(int adapter, const Json& variables)> chat_with;
  data::TextFormat format;                     // of prompts and messages
  generate::GenerationOptions defaults;        // of what a request does not say
  std::string cache_dtype = "float32";         // of keys and values
  int64_t most_positions = 0;                  // of a prompt and its completion
  int64_t most_connections = 2048;             // at once
  int64_t most_connections_of_address = 1024;  // of these, from one IP address
  int64_t most_request_bytes = int64_t{64} << 20;
  int64_t most_image_pixels = 50'000'000;  // of a request's images together
  std::shared_ptr<DecodedImages> decoded = std::make_shared<DecodedImages>();
  ToolCallFormat tool_calls = ToolCallFormat::kAuto;  // format of the model's tool calls
  bool splits_reasoning = true;                       // a chat's reasoning is `reasoning_content`
  bool reads_clock = true;  // a template that writes the date does so anew for each request
  // Records the completions of requests that name a session, and has the routes of /v1/sessions.
  // Null: there are none.
  std::shared_ptr<Sessions> sessions;
  bool any_model = false;  // requests may name any model: the first one is used
  // Makes the model compute with the weights of a directory; nobody uses it meanwhile. Throws
  // ConfigError, DataError, and the model is then as it was. Empty: weights cannot be changed.
  std::function<void(const std::string& directory)> reload;
  // access_log: called with a line for each answered request; warn: with warnings, each once.
  // Empty: none.
  std::function<void(const std::string& line)> access_log, warn;

  // Requests of a run's ranks to each other (temper/workers): POST PATH or PATH/NAME, by path, each
  // on a thread of its own, of which there are most_threads. What a route throws is answered as an
  // error. A server with routes waits longer for slow clients once they have sent the key.
  using Route = std::function<std::string(const std::string& name, const std::string& body)>;
  std::map<std::string, Route> routes;
  int64_t most_threads = 64;
  // Routes of another protocol, in place of those of a Server: nothing where the path is none of
  // them. It checks keys itself. As http::Handler::admit. Empty: there are none.
  std::function<std::optional<http::Admission>(const http::RequestHead& head)> other_routes;
  // Heartbeats: a client of GET /heartbeat or GET /watch is sent a byte every two seconds until the
  // server ends. The leader of a run uses /heartbeat: this is called when it connects, and with
  // false when it is gone. Empty: the server has neither route.
  std::function<void(bool connected)> on_leader;
};

// GET /health, /metrics, /v1/models; POST /v1/completions, /v1/chat/completions,
// /update_weights_from_disk (SGLang's: {"model_path": DIR, "weight_version": NAME}). With sessions
// GET and DELETE /v1/sessions/NAME, POST /v1/sessions/NAME/reward ({"reward": number}).
class Server {
 public:
  // `sampling` outlives the server; null: none but the options' own routes are there, and /health.
  Server(ServerOptions options, SamplerLoop* sampling);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Takes the port. Throws RunError. From here on clients can connect.
  void bind();
  // "http://127.0.0.1:8000", after bind().
  std::string address() const;
  const std::string& api_key() const;
  // Answers until stop(), which may be called from any thread.
  void listen();
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper::serve
