// The Tinker API's state: sessions, the models that clients train, samplers, what is saved.
// Requests come in from any thread; what uses the model runs in slices on the one thread that owns
// it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "temper/image/decoded.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/turn_queue.h"
#include "temper/tinker/adapter.h"
#include "temper/tinker/forward_backward.h"
#include "temper/tinker/futures.h"
#include "temper/tinker/ordered_jobs.h"
#include "temper/tinker/samples.h"
#include "temper/tinker/store.h"

namespace temper::tinker {

struct ServiceOptions {
  std::string model_directory;
  std::vector<std::string> names;  // of the base model
  std::vector<std::string> paths;  // which clients may name it by, too
  bool has_tokenizer = false;      // in the model's directory
  ChunkFormat chunks = {};         // how the model reads images
  int64_t most_positions = 0;      // of a datum, of a prompt and its completion
  int64_t pass_tokens = 512;       // of a training pass, between which others are served
  // Limits of what clients can make the server hold.
  size_t most_sessions = 1024, most_models = 64;
  size_t most_snapshots = 16;  // samplers of a model that are not saved; the oldest one goes
  size_t most_samplers = 4096;
  size_t most_waiting = 4096;   // requests of a model
  int64_t most_sampling = 256;  // requests at once that are sampled or wait for it
  int64_t most_rank = 1024;
  int64_t waiting_bytes = int64_t{1} << 30;  // of all waiting requests
  int64_t adapter_bytes = 0;   // of all adapters in training; 0: a quarter of the usable memory
  double idle_seconds = 3600;  // that a session lives without a request
  double gap_seconds = 600;    // that a request waits for one with a lower seq_id
  Futures::Limits futures = {};
  std::function<void(const std::string&)> warn = {};  // of the server; may be empty
};

class Service {
 public:
  // The model has no adapter of its own. Both outlive this.
  Service(models::CausalLM& model, serve::SamplerLoop& sampling, ServiceOptions options,
          const std::string& state_directory);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // A slice of what waits for the model; false: there is nothing. On the thread that owns it.
  bool work();
  // What time has done; several times a second, from one thread.
  void tick();
  // The server ends: nothing is taken in any more, and who waits is told.
  void close();

  // The routes: the body in, the answer's JSON out. What they throw: DataError and ConfigError for
  // what is wrong (400), serve::Refusal with its status, OrderedJobs::Refused.
  // `owner`: whose key the request came with (routes.h). What others have made is not found (404).
  Json capabilities() const;
  Json create_session(const std::string& owner, const Json& body,
                      const std::string& idempotency_key);
  Json heartbeat(const std::string& owner, const Json& body);
  Json finish_session(const std::string& owner, const std::string& id, const Json& body);
  Json create_model(const std::string& owner, const Json& body);
  Json get_info(const std::string& owner, const Json& body);
  Json unload_model(const std::string& owner, const Json& body);
  Json forward_backward(const std::string& owner, ForwardBackwardRequest request);
  // A forward_backward of which only this can be read is refused with `why`: it uses up its number,
  // so that those after it do not wait for it.
  void refuse_unread(const std::string& owner, const ForwardBackwardHead& request,
                     const DataError& why);
  Json optim_step(const std::string& owner, const Json& body);
  Json save_weights(const std::string& owner, const Json& body);
  Json load_weights(const std::string& owner, const Json& body);
  Json save_weights_for_sampler(const std::string& owner, const Json& body);
  Json create_sampling_session(const std::string& owner, const Json& body);
  Json sampler(const std::string& owner, const std::string& id);
  Json sample(const std::string& owner, const Json& body);
  Json cancel(const std::string& owner, const Json& body);
  Json weights_info(const std::string& owner, const Json& body);
  Json training_run(const std::string& owner, const std::string& id) const;
  Json training_runs(const std::string& owner, int64_t limit, int64_t offset) const;
  Json checkpoints(const std::string& owner, const std::string& run, int64_t limit,
                   int64_t offset) const;
  Json sessions(const std::string& owner, int64_t limit, int64_t offset);
  Json session(const std::string& owner, const std::string& id);
  Store& store() { return store_; }
  Futures& futures() { return futures_; }

 private:
  struct Session {
    std::string id, owner;
    double created = 0, seen = 0;
    Json body;                            // as it was created
    bool finished = false, used = false;  // used: a request came after the one that created it
    std::vector<std::string> models, samplers;
    Sampling::Beside sampling = std::make_shared<std::atomic<int64_t>>(0);
  };
  struct Model {
    std::string id, owner, session, digest, future;  // of the request that created it
    RunRecord record;
    bool ready = false, gone = false;
    int64_t bytes = 0;
    std::unique_ptr<TrainedAdapter> adapter;  // of the thread that owns the base; jobs use it
    OrderedJobs jobs;
    std::deque<std::string> snapshots;  // samplers, oldest first
  };
  struct Sampler {
    std::string id, owner, session, digest, base_model, model_path, model;
    bool is_base = false, is_inflight = false, ready = false, gone = false;
    std::string failure;
    std::shared_ptr<AdapterPlace> place;
    Sampling::Beside beside;                     // its session's
    std::vector<std::function<void()>> waiting;  // for `ready`
    struct Asked {
      std::string digest, future;
      int64_t samples = 0;
    };
    std::map<int64_t, Asked> asked;  // lately, by seq_id
  };
  // What is being sampled, or waits for that.
  struct Running {
    std::string owner, session;
    std::shared_ptr<Sampling> sampling = {};  // null: it waits
  };
  // What one client has of something that all share.
  struct Share {
    int64_t session = 0, owner = 0, all = 0;
    void add(const std::string& of_owner, const std::string& of_session, const Asker& asker,
             int64_t amount);
    // Whether no more of it may be had: of `most` a session has at most seven eighths and an owner
    // fifteen sixteenths, so that something is left for others; whoever has none of it may have
    // what is left. urgent: what they have waits for it, so there is as much again.
    bool is_beyond(int64_t more, int64_t most, bool urgent = false) const;
  };
  static constexpr const char* kShares =
      ", of which a session may have seven eighths and a key fifteen sixteenths";
  using ModelPointer = std::shared_ptr<Model>;
  using SamplerPointer = std::shared_ptr<Sampler>;
  // Makes what a request does, once it is known to be new; future and size are set then.
  using MakeJob = std::function<Job(const ModelPointer&, const std::string& future)>;

  void check_open() const;
  void later(std::function<void()> control);
  // With the lock. They touch the session.
  Session& session_of(const std::string& owner, const std::string& id);
  ModelPointer model_of(const std::string& owner, const std::string& id);
  SamplerPointer sampler_of(const std::string& owner, const std::string& id);
  bool make_room(const std::string& owner);  // with the lock: for one more session
  void check_base(const std::string& name) const;
  void end_session(Session& session);  // with the lock
  void end_model(const ModelPointer& model, const std::string& why);
  std::string directory_to_load(const std::string& owner, const std::string& path) const;
  Json add_model(const std::string& session_id, int64_t number, const std::string& digest,
                 RunRecord record, std::function<std::unique_ptr<TrainedAdapter>()> make,
                 Json result);
  Json enqueue(const std::string& owner, const std::string& model_id, std::optional<int64_t> seq,
               const std::string& digest, int64_t bytes, const std::function<void()>& validate,
               const MakeJob& make);
  // Throws Refusal (429) where the request would wait behind too much. With the lock, as
  // take_turn().
  void check_room(const Model& model, int64_t seq, int64_t bytes) const;
  std::vector<ModelPointer> take_turn();
  void run_jobs(const std::vector<ModelPointer>& models);
  void run_job(const ModelPointer& model);
  SamplerPointer add_sampler(Session& session, const std::string& id, const std::string& digest);
  void load_sampler(const SamplerPointer& sampler);
  void set_place(const SamplerPointer& sampler, std::shared_ptr<AdapterPlace> place);
  void snapshot(const ModelPointer& model, const SamplerPointer& sampler);
  void guarded(const std::string& future, const std::function<void()>& work);
  bool is_asked_for(const std::string& future);
  // With the lock. True: it begins on the model's thread, or when the sampler's weights are there.
  bool put_off(const SamplerPointer& sampler, const SampleRequest& request,
               const std::string& future);
  void decode_and_begin(const SamplerPointer& sampler, const SampleRequest& request,
                        const std::string& future);
  void begin_sampling(const SamplerPointer& sampler, const SampleRequest& request,
                      const std::string& future);
  // What the weights of a sampler give, whatever becomes of it.
  struct Weights {
    std::shared_ptr<AdapterPlace> place;
    Sampling::Beside beside;
    uint64_t client = 0;  // generate::Request::client, of its owner
  };
  void score_targets(const Weights& weights, const SampleRequest& request,
                     const std::string& future, const std::shared_ptr<TargetLogprobs>& scores);
  void start_sampling(const Weights& weights, const SampleRequest& request,
                      const std::string& future, const WireTensor& targets);
  Json run_json(const RunRecord& run) const;

  ServiceOptions options_;
  models::CausalLM& model_;
  serve::SamplerLoop& sampling_;
  AdapterPlaces places_;
  const AdapterWidths widths_;
  int64_t most_trained_ = 0;  // tokens of a datum whose backward pass fits into memory
  Store store_;
  Futures futures_;
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::map<std::string, Session> sessions_;
  struct MadeSession {
    std::string owner, id;
    int64_t number = 0;
  };
  void forget_keys();                                // with the lock
  std::map<std::string, MadeSession> session_keys_;  // by X-Idempotency-Key
  int64_t made_ = 0;                                 // sessions with a key
  std::map<std::string, ModelPointer> models_;
  std::map<std::string, SamplerPointer> samplers_;
  std::map<std::string, std::weak_ptr<AdapterPlace>> loaded_;  // saved weights, by path and time
  std::map<std::string, Running> samplings_;                   // by future
  std::deque<std::function<void()>> controls_;  // what takes little time, before all else
  std::deque<std::function<void()>> scorings_;  // slices of them take turns with those of the jobs
  bool scored_last_ = false;                    // whose turn it was
  std::string last_served_;                     // model
  bool in_pass_ = false;                        // it has begun a pass that takes more slices
  std::string last_failure_;                    // of a shared pass, which is said once
  double swept_ = 0;
  DecodedImages decoded_;
  // Decodes images of prompts; keys take turns. Last: its jobs use the others.
  serve::TurnQueue images_{2, 1};
};

}  // namespace temper::tinker
