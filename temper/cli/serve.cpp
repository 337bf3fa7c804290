// An OpenAI-compatible server.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/work_queue.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/cli/tinker_flags.h"
#include "temper/data/images/image_format.h"
#include "temper/distill/teacher_route.h"
#include "temper/generate/sampling/option_values.h"
#include "temper/generate/sampling/suggested_sampling.h"
#include "temper/http/access.h"
#include "temper/http/client.h"
#include "temper/metrics/format.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/models/files/reload.h"
#include "temper/serve/server.h"
#include "temper/serve/sessions/sessions.h"
#include "temper/text/tokens.h"
#include "temper/tinker/routes.h"

namespace temper {

template <>
inline constexpr std::array enum_names<ToolCallFormat> = {"auto", "hermes", "llama", "gemma",
                                                          "mistral"};

}  // namespace temper

namespace temper::cli {
namespace {

constexpr double kSecondsToClose = 1;  // after the drain, for connections to be answered

// Ends the program if it has not ended by itself some time after begin(): a step of a large model,
// a grammar that is being compiled (which nothing can interrupt), a client that reads slowly. Made
// first, so that it watches over the end of everything else.
class LastResort {
 public:
  ~LastResort() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void begin(double seconds) {
    thread_ = std::thread([this, seconds] {
      std::unique_lock lock(mutex_);
      const std::chrono::duration<double> patience(seconds);
      if (!ended_.wait_for(lock, patience, [this] { return done_; })) std::_Exit(0);
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

// After a signal: lets requests end that are being answered, for as long as asked for; then ends
// the server, and the program where that takes too long, because of a step of a large model or a
// client that reads slowly.
class EndOfServing {
 public:
  // close: called before the server stops, so that nobody waits any more.
  EndOfServing(serve::Server& server, serve::SamplerLoop& sampling, double drain_seconds,
               std::function<void()> close, LastResort& last_resort)
      : thread_([this, &server, &sampling, drain_seconds, close, &last_resort] {
          while (!interrupted() && !done_) pause();
          sampling.refuse_new();
          if (interrupted() && sampling.counts().open > 0)
            std::cerr << "stopping: " << sampling.counts().open << " requests in flight may take "
                      << format_brief(drain_seconds) << " seconds more" << std::endl;
          const double deadline = steady_seconds() + drain_seconds;
          while (!done_ && sampling.counts().open > 0 && steady_seconds() < deadline) pause();
          if (close) close();
          if (interrupted()) last_resort.begin(kSecondsToClose);
          sampling.give_up();
          reached_ = true;
          server.stop();
        }) {}
  ~EndOfServing() {
    done_ = true;
    thread_.join();
  }
  bool reached() const { return reached_; }

 private:
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  std::atomic<bool> reached_{false}, done_{false};
  std::thread thread_;
};

// Writes lines to standard error from a thread of its own, as whoever reads it may be slow. A
// bounded number of lines waits.
class Log {
 public:
  void write(const std::string& line) {
    if (waiting_ >= kMostWaiting) return;
    ++waiting_;
    worker_.run([this, line] {
      std::cerr << line + "\n" << std::flush;
      --waiting_;
    });
  }

 private:
  static constexpr int kMostWaiting = 10000;
  std::atomic<int> waiting_{0};
  WorkQueue worker_;
};

// Chat templates with variables that requests give (chat_template_kwargs).
class VariedTemplates {
 public:
  explicit VariedTemplates(const ModelFlags& flags)
      : model_(flags.model),
        render_(render_options(flags.template_date)),
        adapters_{flags.adapter} {
    for (const NamedAdapter& named : flags.named) adapters_.push_back(named.directory);
  }

  std::shared_ptr<const ChatTemplate> operator()(int adapter, const Json& variables) const {
    ChatOptions options;
    options.variables = dump_json(variables);
    options.render = render_;
    options.adapter = adapters_.at(static_cast<size_t>(adapter));
    const std::pair key{adapter, options.variables};
    const std::lock_guard lock(*mutex_);
    if (const auto found = known_->find(key); found != known_->end()) return found->second;
    if (known_->size() >= kMostKnown) known_->clear();
    return (*known_)[key] = ChatTemplate::find(model_, options);
  }

 private:
  using Known = std::map<std::pair<int, std::string>, std::shared_ptr<const ChatTemplate>>;
  static constexpr size_t kMostKnown = 16;
  std::string model_;
  jinja::RenderOptions render_;
  std::vector<std::string> adapters_;  // directories; empty: none
  std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  std::shared_ptr<Known> known_ = std::make_shared<Known>();
};

class Serve : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Answers OpenAI's /v1/completions and /v1/chat/completions, streamed or not, for many "
        "clients at once, with tools, response_format and log-probabilities; /v1/models, /health "
        "and /metrics (Prometheus); /top_tokens for students (distill.teacher). A request names "
        "the "
        "model or a named adapter; without `seed` every request is sampled with a new seed. Prints "
        "its address when it is ready; SIGTERM ends it. POST /update_weights_from_disk "
        "{model_path, weight_version} loads other weights, "
        "as a trainer does (rollout.server).\n"
        "examples:\n"
        "  temper serve --model DIR --port 0\n"
        "  temper serve --model DIR --adapter math=A --adapter code=B --storage bfloat16");
    model_.add_to(f, true);
    add_template_date(f, model_.template_date);
    f.add("--host", options_.host, "address to listen on; 0.0.0.0: all of this machine's");
    f.add("--port", port_, "port to listen on; 0: a free one", between(0, 65535));
    f.add("--api-key-env", key_variable_,
          "name of one environment variable; its value is the API key that clients must send, or "
          "several keys, separated by commas, of which they send one");
    f.add("--served-model-name", served_names_,
          "name of the model in requests, in place of its directory; may be repeated: answers have "
          "the first");
    f.add("--allowed-origins", options_.allowed_origins,
          "origin whose web pages may send requests, as in https://app.example (* for all), "
          "besides those of this machine; may be repeated");
    f.add("--allowed-hosts", options_.allowed_hosts,
          "host name that requests to a server on loopback without a key may use (* for all), "
          "besides localhost and addresses; may be repeated");
    f.add("--access-log", access_log_,
          "write a line per request to standard error: client, path, status, size, seconds");
    f.add("--max-connections", options_.most_connections,
          "maximum number of connections at once; one that waits for a request gives its place to "
          "a new one",
          between(8, 1 << 20));
    f.add("--max-connections-per-address", options_.most_connections_of_address,
          "maximum number of these that one IP address may have", between(8, 1 << 20));
    f.add("--max-request-bytes", options_.most_request_bytes,
          "maximum size of a request; a larger one is answered 413", at_least(1));
    f.add("--max-image-bytes", image_bytes_, "maximum size of an image's file", at_least(1));
    f.add("--max-image-pixels", options_.most_image_pixels,
          "maximum number of pixels of a request's images together", at_least(1));
    f.add("--tool-call-parser", options_.tool_calls,
          "format of the model's tool calls: auto (detected from its chat template), hermes, "
          "llama, gemma or mistral");
    f.add("--reasoning-parser", reasoning_,
          "auto: what a chat template marks as reasoning (<think>...</think>) is answered as "
          "reasoning_content; none: all is content",
          one_of({"auto", "none"}));
    f.add("--generation-config", generation_config_,
          "auto: requests that do not say how to sample follow the model's generation_config.json; "
          "none: temperature 1 and nothing else",
          one_of({"auto", "none"}));
    f.add("--max-sessions", sessions_.sessions,
          "maximum number of sessions that are recorded: requests with the API key sk-temper-NAME, "
          "or the header X-Temper-Session; 0: none are",
          at_least(0));
    f.add("--max-requests", most_requests_,
          "maximum number of requests at once, waiting ones included; more are answered 429",
          between(1, 4096));
    f.add("--max-requests-per-address", most_requests_of_address_,
          "maximum number of requests at once from one IP address; 0: three quarters of "
          "--max-requests; raise it behind a proxy",
          between(0, 4096));
    f.add("--max-waiting-bytes", most_waiting_bytes_,
          "maximum number of bytes of images that requests hold while they wait or are sampled, "
          "three quarters of them of one IP address; more are answered 429; less than twice "
          "--max-request-bytes counts as that",
          at_least(1));
    f.add("--drain-seconds", drain_seconds_,
          "after SIGTERM or Ctrl-C: maximum number of seconds for requests in flight to complete; "
          "new requests and /health are answered 503",
          between(0.0, 86400.0));
    engine_.add_to(f);
    tinker_.add(f);
  }

  int run() override {
    options_.port = static_cast<int>(port_);
    read_key();
    name_models();
    const auto model = load(model_);
    options_.most_positions =
        models::HfConfig::load(model_.model).integer("max_position_embeddings", INT32_MAX);
    data::TextFormat& format = options_.format;
    format.vocabulary = model->vocab_size;
    format.tokenizer = find_tokenizer(model_.model);
    if (format.tokenizer) load_templates();
    format.images = image_format(
        model_.model, format.tokenizer.get(),
        {.limits = {.max_bytes = static_cast<size_t>(image_bytes_),
                    .max_pixels = std::min(options_.most_image_pixels, ImageLimits().max_pixels)}});
    options_.cache_dtype = generate::name_of(model_.kept().cache_dtype);
    open_sessions(*model);
    options_.splits_reasoning = reasoning_ == "auto";
    options_.most_connections_of_address =
        std::min(options_.most_connections_of_address, options_.most_connections);
    follow_generation_config();
    LastResort last_resort;
    Log log;
    options_.warn = [&log](const std::string& line) { log.write("warning: " + line); };
    if (access_log_) options_.access_log = [&log](const std::string& line) { log.write(line); };
    // The reader of standard error may have exited.
    ::signal(SIGPIPE, SIG_IGN);
    // One request always fits.
    const int64_t most_bytes =
        std::max(most_waiting_bytes_, 2 * std::min(options_.most_request_bytes, INT64_MAX / 2));
    if (most_bytes > most_waiting_bytes_)
      options_.warn(str("--max-waiting-bytes is raised from ", most_waiting_bytes_, " to ",
                        most_bytes, ", twice --max-request-bytes, so that a request fits"));
    serve::SamplerLoop sampling(*model, engine_.options, format.tokenizer, most_requests_,
                                most_requests_of_address_, most_bytes);
    models::Reloader reloader(*model, model_.model, model_.kept());
    options_.reload = [&](const std::string& directory) { reloader.load(directory); };
    std::optional<tinker::Service> trained;
    std::optional<tinker::Routes> routes;
    if (tinker_.enabled) {
      const tinker::ServiceOptions options = tinker_options();
      trained.emplace(*model, sampling, options, tinker_.state_directory);
      routes.emplace(*trained, tinker::RouteOptions{{options_.host, options_.api_key},
                                                    options_.most_request_bytes});
      options_.reload = {};  // adapters are trained on the weights as they are
    }
    distill::TeacherRoute teacher(*model, sampling, teacher_options());
    options_.other_routes = [&](const http::RequestHead& head) {
      auto admission = teacher.admit(head);
      return admission || !routes ? std::move(admission) : routes->admit(head);
    };
    const auto close = [&] {
      teacher.close();
      if (trained) trained->close();
    };
    const auto work = [&] {
      const bool trains = trained && trained->work();
      return teacher.work() || trains;
    };
    serve::Server server(options_, &sampling);
    server.bind();
    catch_interrupts();
    std::thread listening([&] { server.listen(); });
    {
      const EndOfServing end(server, sampling, drain_seconds_, close, last_resort);
      std::cout << "serving at " << server.address() << std::endl;
      try {
        sampling.run([&end] { return end.reached(); }, work);
      } catch (...) {
        server.stop();
        listening.join();
        throw;
      }
      listening.join();
    }
    return 0;
  }

 private:
  void open_sessions(const models::CausalLM& model) {
    if (sessions_.sessions == 0) return;
    sessions_.owners = std::max<int64_t>(std::ssize(http::keys_of(options_.api_key)), 1);
    serve::SessionRules rules;
    rules.ends = {model.eos_token_ids.begin(), model.eos_token_ids.end()};
    options_.sessions = std::make_shared<serve::Sessions>(sessions_, std::move(rules), true);
  }

  distill::TeacherRouteOptions teacher_options() const {
    const std::shared_ptr<const Tokenizer>& tokenizer = options_.format.tokenizer;
    return {.rules = {options_.host, options_.api_key, options_.allowed_origins,
                      options_.allowed_hosts},
            .model = options_.models.front().name,
            .tokens_digest = tokenizer ? digest_of_tokens(*tokenizer) : "",
            .most_positions = options_.most_positions,
            .most_request_bytes = options_.most_request_bytes};
  }

  tinker::ServiceOptions tinker_options() {
    tinker::ServiceOptions options = tinker_.options(model_, served_names_);
    options.has_tokenizer = options_.format.tokenizer != nullptr;
    options.chunks = {options_.format.images, options_.format.tokenizer,
                      options_.most_image_pixels};
    options.most_positions = options_.most_positions;
    options.most_sampling = most_requests_;
    options.warn = options_.warn;
    // One request always fits: its tensors take up to 12 times the bytes of its body.
    options.waiting_bytes =
        std::max(options.waiting_bytes, 12 * std::min(options_.most_request_bytes, INT64_MAX / 12));
    return options;
  }

  void follow_generation_config() {
    if (generation_config_ == "none") return;
    const std::string taken = generate::take_suggested(model_.model, options_.defaults.sampling);
    if (!taken.empty())
      std::cerr << "sampling as generation_config.json suggests: " << taken << "; requests win"
                << std::endl;
  }

  void read_key() {
    if (!key_variable_) return;
    const std::string key = http::api_key_in(key_variable_, "--api-key-env");
    check<ConfigError>(!http::keys_of(key).empty(), "--api-key-env: found no key in ",
                       *key_variable_, ", expected one, or several separated by commas");
    options_.api_key = key;
  }

  void name_models() {
    for (const std::string& name : served_names_)
      check<ConfigError>(!name.empty(), "--served-model-name: found an empty name");
    const std::string base =
        served_names_.empty() ? models::public_name(model_.model).name : served_names_.front();
    options_.models.push_back({base, 0});
    if (!served_names_.empty())
      options_.other_names.assign(served_names_.begin() + 1, served_names_.end());
    for (size_t i = 0; i < model_.named.size(); ++i) {
      check<ConfigError>(model_.named[i].name != base, "--adapter: the name ", base,
                         " is the model's");
      options_.models.push_back({model_.named[i].name, static_cast<int>(i) + 1});
    }
  }

  // Each adapter is asked as it was trained.
  void load_templates() {
    ChatTemplates templates(model_);
    options_.chat_with = VariedTemplates(model_);
    options_.format.chat = templates.of(0);
    for (serve::ServedModel& model : options_.models) model.chat = templates.of(model.adapter);
  }

  ModelFlags model_;
  std::optional<std::string> key_variable_;
  std::string reasoning_ = "auto", generation_config_ = "auto";
  std::vector<std::string> served_names_;
  TinkerFlags tinker_;
  bool access_log_ = false;
  serve::ServerOptions options_;
  // Short passes: of many prompts that come together the first are answered before the last are
  // read, and streams that run do not pause for long.
  EngineFlags engine_{.options = {.prefill_tokens = 512}};
  int64_t port_ = options_.port, most_requests_ = 256, most_requests_of_address_ = 0;
  int64_t most_waiting_bytes_ = int64_t{1} << 30;
  serve::SessionLimits sessions_;
  int64_t image_bytes_ = static_cast<int64_t>(ImageLimits().max_bytes);
  double drain_seconds_ = 3;
};

}  // namespace

std::unique_ptr<Command> serve_command() { return std::make_unique<Serve>(); }

}  // namespace temper::cli
