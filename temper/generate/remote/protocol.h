// The API of a kind of rollout server. Token ids go in and come out, with the log-probabilities of
// the sampled tokens. Each kind is a class in its own file, which adds it to the table below.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/generate/remote/config.h"
#include "temper/generate/request.h"
#include "temper/http/client.h"

namespace temper::generate::remote {

// Weights that a server is to sample with, on disk: a model directory or a PEFT adapter's, under a
// path that the server sees as well.
struct RemoteWeights {
  std::string version;  // their name; empty: those that the server has
  std::string path;
  bool adapter = false;
};

// One HTTP request's worth of completions: samples [first, first + count) of a request.
struct SampleTask {
  const Request* request = nullptr;
  int64_t first = 0, count = 1;
  uint64_t seed = 0;  // of these samples: the same task has the same one in every run
};

struct RemoteSample {
  std::vector<int32_t> tokens;  // a sampled end token included
  std::vector<float> logprobs;
  bool stopped = false;
  std::optional<std::string> text;              // none: the tokens'
  std::vector<std::vector<int32_t>> kept = {};  // Completion::kept
};

// What a run needs of a server, for Protocol::inspect().
struct ServerNeeds {
  bool loads = true;       // the weights of each version (rollout.server.sync)
  bool adapter = false;    // those are an adapter's
  int64_t vocabulary = 0;  // of the policy; 0: not known, and nothing of the model is compared
  std::string cache_dtype = "float32";  // of the policy's keys and values
  int32_t token = 0;                    // the policy's highest one that a prompt may have
  bool reshapes =
      false;  // it samples with penalties, a logit bias, a grammar, top-k, top-p or min-p
};

// The distribution that a server's log-probabilities belong to: the model's, or the one that is
// sampled from, after what `ServerNeeds::reshapes` lists.
enum class LogprobsOf { kModel, kSampled, kUnknown };

// The seed of a request's samples from `first` on: a hash of the run's seed and what names them,
// from 0 to 2^31 - 1, which every server takes.
uint64_t task_seed(const Request& request, int64_t first);

using Unsupported = ServerSection::Unsupported;

class Protocol {
 public:
  Protocol() = default;
  // vocabulary: sampled ids are checked against it.
  explicit Protocol(int64_t vocabulary) : vocabulary_(vocabulary) {}
  virtual ~Protocol() = default;
  Protocol(const Protocol&) = delete;
  Protocol& operator=(const Protocol&) = delete;

  // Most samples of one HTTP request.
  virtual int64_t most_samples() const = 0;
  // Whether a prompt of ids may have images (Request::rows).
  virtual bool takes_images() const { return false; }
  // Whether an adapter that it loads may have rows of embeddings (trainable_token_indices).
  virtual bool takes_token_rows() const { return false; }
  // Whose names and ranges the server has.
  virtual Api api() const { return Api::kOpenAi; }
  // How a request is sampled, in the server's own names: members of the request's body (openai,
  // vllm) or of its `sampling_params` (sglang). What is as it is everywhere is left out, unless a
  // server may have a default of its own (from the model's generation_config.json).
  // find_unsupported() knows what cannot be said.
  Json parameters(const GenerationOptions& options) const;
  // The first key of `rollout` that servers of this kind cannot obey, or whose value they refuse;
  // none: they obey all. Throws ConfigError as RolloutSection::options().
  std::optional<Unsupported> find_unsupported(const RolloutSection& rollout,
                                              const std::string& kind) const;
  // The name of the model that the server lists first. Throws http::Failure, DataError.
  virtual std::string model_name(http::Client& http) const;
  // Asks what a run will ask, and changes nothing there: whether the server has the routes of its
  // kind, and a few tokens from the model, whose vocabulary has to be the policy's. Gives the name
  // of its model. Throws http::Failure; DataError that says what it lacks.
  std::string inspect(http::Client& http, const ServerNeeds& needs) const;
  // Finds out by asking for a few tokens with top-k 1, which makes them certain: their
  // log-probabilities are 0 only if the server computes them after truncation. Throws http::Failure
  // where no answer comes.
  LogprobsOf find_logprobs(http::Client& http, const std::string& model, int32_t token) const;
  // Samples, in order. Throws http::Failure; DataError for an answer that is not one; WrongWeights.
  virtual std::vector<RemoteSample> sample(http::Client& http, const std::string& model,
                                           const SampleTask& task,
                                           const RemoteWeights& weights) const = 0;
  // Makes the server sample with these weights from now on. `before`: the ones it has, where it got
  // them this way. Throws http::Failure, DataError.
  virtual void load(http::Client& http, const RemoteWeights& weights,
                    const RemoteWeights& before) const = 0;

 protected:
  // A route that a run posts to, and how one finds out that it is there without posting to it. GET:
  // where it is not, the status is 404, else 405. POST {}: the same, else it lacks what it needs.
  struct Route {
    const char *method, *path;
    const char* hint;  // where a server of the right kind may lack it; else ""
  };
  virtual std::vector<Route> routes(const ServerNeeds&) const { return {}; }

  int64_t vocabulary() const { return vocabulary_; }

 private:
  int64_t vocabulary_ = 0;
};

// Thrown if a server has other weights than it was given: it was restarted.
struct WrongWeights : Error {
  using Error::Error;
};

// The kinds by the name that rollout.server.kind takes.
using MakeProtocol = std::unique_ptr<Protocol> (*)(int64_t vocabulary);
Registry<MakeProtocol>& server_kinds();
template <class Kind>
std::unique_ptr<Protocol> make(int64_t vocabulary) {
  return std::make_unique<Kind>(vocabulary);
}
// Throws ConfigError for a kind that is not known.
std::unique_ptr<Protocol> make_protocol(const std::string& kind, int64_t vocabulary);

}  // namespace temper::generate::remote
