#include "temper/generate/remote/protocol.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/base/random.h"

namespace temper::generate::remote {
namespace {

Json parse_answer(const std::string& body) {
  Json json = parse_json(body, "the server's answer");
  check<DataError>(json.is_object(), "the server's answer is not a JSON object");
  return json;
}

const Json& member(const Json& json, const char* key, Json::value_t type) {
  const auto it = json.is_object() ? json.find(key) : json.end();
  check<DataError>(it != json.end() && it->type() == type, "the server's answer lacks `", key,
                   "`, or it has the wrong type");
  return *it;
}

int32_t token_id(const Json& json, int64_t vocabulary) {
  const bool fits =
      json.is_number_integer() && json.get<int64_t>() >= 0 && json.get<int64_t>() < vocabulary;
  check<DataError>(fits, "the server sampled token ", dump_json(json),
                   ", but the vocabulary size is ", vocabulary);
  return json.get<int32_t>();
}

float log_probability(const Json& json) {
  constexpr float kRounding = 1e-3f;  // of a server whose sums are in half precision
  const bool fits =
      json.is_number() && std::isfinite(json.get<float>()) && json.get<float>() <= kRounding;
  check<DataError>(fits, "the server gave the log-probability ", dump_json(json),
                   ", expected a number of at most 0");
  return json.get<float>();
}

void check_sample(const RemoteSample& sample, const SampleTask& task) {
  const int64_t most = task.request->options.max_new_tokens;
  const int64_t found = static_cast<int64_t>(sample.tokens.size());
  check<DataError>(found >= 1 && found <= most, "the server sampled ", found,
                   " tokens, expected 1 to ", most);
  check<DataError>(sample.tokens.size() == sample.logprobs.size(), "the server gave ",
                   sample.logprobs.size(), " log-probabilities for ", found, " tokens");
}

bool is_stop(const Json& reason) {
  check<DataError>(reason == "stop" || reason == "length", "the server ended a completion by ",
                   dump_json(reason), ", expected stop or length");
  return reason == "stop";
}

Json bias_by_token(const SamplingOptions& options) {
  Json out = Json::object();
  for (const auto& [id, bias] : options.logit_bias) out[std::to_string(id)] = bias;
  return out;
}

// What a server calls a constraint of this kind; all call a regular expression `regex`.
const char* grammar_key(const grammar::Spec& spec, const char* schema, const char* grammar) {
  using Kind = grammar::Spec::Kind;
  return spec.kind == Kind::kJsonSchema ? schema : spec.kind == Kind::kRegex ? "regex" : grammar;
}

// The answer to a request for completions. A server that does not know an adapter which it was
// given was started again since: it says so by the status `unknown`.
Json ask(HttpClient& http, const char* path, const Json& body, const RemoteWeights& weights,
         int unknown) {
  try {
    return parse_answer(http.post(path, dump_json(body)));
  } catch (const HttpFailure& e) {
    if (weights.adapter && e.status == unknown) throw WrongWeights(e.what());
    throw;
  }
}

// An adapter, where it is loaded.
void unload(HttpClient& http, const char* path, const std::string& name) {
  try {
    http.post(path, dump_json({{"lora_name", name}}));
  } catch (const HttpFailure& e) {
    if (e.unreachable || e.busy()) throw;  // else there was none
  }
}

// OpenAI's /v1/completions with ids: temper serve, vLLM and others.
class OpenAi : public Protocol {
 public:
  explicit OpenAi(int64_t vocabulary) : vocabulary_(vocabulary) {}
  int64_t most_samples() const override { return 1024; }

  // The first ones are always sent, as a server may have defaults of its own for them (from the
  // model's generation_config.json); the others, which are not all in OpenAI's API, only where they
  // differ from the default.
  Json parameters(const GenerationOptions& o) const override {
    const SamplingOptions& s = o.sampling;
    Json out{{"max_tokens", o.max_new_tokens},
             {"temperature", s.temperature},
             {"top_p", s.top_p},
             {"top_k", s.top_k > 0 ? s.top_k : -1},
             {"min_p", s.min_p},
             {"repetition_penalty", s.repetition_penalty}};
    if (!o.stop.empty()) out["stop"] = o.stop;
    if (s.presence_penalty != 0) out["presence_penalty"] = s.presence_penalty;
    if (s.frequency_penalty != 0) out["frequency_penalty"] = s.frequency_penalty;
    if (!s.logit_bias.empty()) out["logit_bias"] = bias_by_token(s);
    if (s.no_repeat_ngram > 0) out["no_repeat_ngram_size"] = s.no_repeat_ngram;
    if (o.ignore_eos) out["ignore_eos"] = true;
    if (o.min_new_tokens > 0) out["min_tokens"] = o.min_new_tokens;
    if (!o.stop_token_ids.empty()) out["stop_token_ids"] = o.stop_token_ids;
    if (o.grammar)
      out["structured_outputs"] = {{grammar_key(*o.grammar, "json", "grammar"), o.grammar->text}};
    return out;
  }

  std::vector<RemoteSample> sample(HttpClient& http, const std::string& model,
                                   const SampleTask& task,
                                   const RemoteWeights& weights) const override {
    Json body = parameters(task.request->options);
    body["model"] = name_for(model, weights);
    body["prompt"] = task.request->prompt;
    body["n"] = task.count;
    body["seed"] = task.seed;
    body["logprobs"] = 0;
    body["return_token_ids"] = true;
    const Json answer = ask(http, "/v1/completions", body, weights, 404);
    check_weights(answer, weights);
    const Json& choices = member(answer, "choices", Json::value_t::array);
    std::vector<RemoteSample> samples(static_cast<size_t>(task.count));
    check<DataError>(choices.size() == samples.size(), "the server gave ", choices.size(),
                     " completions, expected ", task.count);
    for (size_t i = 0; i < choices.size(); ++i) {
      check<DataError>(choices[i].is_object(), "the server gave a choice ", dump_json(choices[i]));
      const Json index = choices[i].value("index", Json(i));
      check<DataError>(index.is_number_unsigned() && index.get<size_t>() < samples.size(),
                       "the server gave a choice ", dump_json(index));
      RemoteSample& out = samples[index.get<size_t>()];
      for (const Json& id : member(choices[i], "token_ids", Json::value_t::array))
        out.tokens.push_back(token_id(id, vocabulary_));
      const Json& logprobs = member(choices[i], "logprobs", Json::value_t::object);
      for (const Json& p : member(logprobs, "token_logprobs", Json::value_t::array))
        out.logprobs.push_back(log_probability(p));
      out.stopped = is_stop(choices[i].value("finish_reason", Json()));
    }
    for (const RemoteSample& out : samples) check_sample(out, task);
    return samples;
  }

  // As SGLang, which temper serve follows.
  void load(HttpClient& http, const RemoteWeights& weights, const RemoteWeights&) const override {
    update_from_disk(http, weights);
  }

 protected:
  // temper serve answers 404 to another method as well.
  std::vector<Route> routes(const ServerNeeds& needs) const override {
    if (!needs.loads) return {};
    return {
        {"POST", "/update_weights_from_disk",
         ", by which it gets the weights (temper serve has it; else rollout.server.sync: none)"}};
  }
  static void update_from_disk(HttpClient& http, const RemoteWeights& weights) {
    const Json answer = parse_answer(
        http.post("/update_weights_from_disk",
                  dump_json({{"model_path", weights.path}, {"weight_version", weights.version}})));
    check<DataError>(
        answer.value("success", Json(false)) == true,
        "the server did not load the weights: ", dump_json(answer.value("message", Json())));
  }
  virtual std::string name_for(const std::string& model, const RemoteWeights&) const {
    return model;
  }
  virtual void check_weights(const Json& answer, const RemoteWeights& weights) const {
    const Json found = answer.value("system_fingerprint", Json());
    if (weights.version.empty() || !found.is_string()) return;
    if (found != weights.version)
      throw WrongWeights(temper::str("the server samples with the weights ", dump_json(found),
                                     ", expected ", weights.version));
  }

 private:
  int64_t vocabulary_;
};

// vLLM's server: adapters are loaded beside the model under a name, whole weights by the routes of
// its development mode.
class Vllm final : public OpenAi {
 public:
  using OpenAi::OpenAi;

  void load(HttpClient& http, const RemoteWeights& weights,
            const RemoteWeights& before) const override {
    if (weights.adapter) {
      // Under that name it may be there from an earlier run, with other values.
      unload(http, kUnload, weights.version);
      http.post("/v1/load_lora_adapter",
                dump_json({{"lora_name", weights.version}, {"lora_path", weights.path}}));
      if (!before.version.empty() && before.version != weights.version)
        unload(http, kUnload, before.version);
      return;
    }
    http.post("/pause?mode=wait", "{}");
    http.post("/collective_rpc", dump_json({{"method", "reload_weights"},
                                            {"kwargs", {{"weights_path", weights.path}}}}));
    http.post("/reset_prefix_cache", "{}");
    http.post("/resume", "{}");
  }

 private:
  static constexpr const char* kUnload = "/v1/unload_lora_adapter";
  std::vector<Route> routes(const ServerNeeds& needs) const override {
    if (!needs.loads) return {};
    if (needs.adapter)
      return {{"GET", "/v1/load_lora_adapter",
               ": it is not vLLM, or was started without --enable-lora and "
               "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"}};
    constexpr const char* kHint = ": it is not vLLM, or was started without VLLM_SERVER_DEV_MODE=1";
    return {{"GET", "/pause", kHint}, {"GET", "/collective_rpc", kHint}};
  }
  std::string name_for(const std::string& model, const RemoteWeights& weights) const override {
    return weights.adapter ? weights.version : model;
  }
  // Its fingerprint says nothing of weights.
  void check_weights(const Json&, const RemoteWeights&) const override {}
};

// SGLang's /generate. One sample a request: the samples of one would share their seed.
class Sglang final : public Protocol {
 public:
  explicit Sglang(int64_t vocabulary) : vocabulary_(vocabulary) {}
  int64_t most_samples() const override { return 1; }

  Json parameters(const GenerationOptions& o) const override {
    const SamplingOptions& s = o.sampling;
    Json out{{"temperature", s.temperature},
             {"top_p", s.top_p},
             {"top_k", s.top_k > 0 ? s.top_k : -1},
             {"min_p", s.min_p},
             {"repetition_penalty", s.repetition_penalty},
             {"max_new_tokens", o.max_new_tokens},
             {"ignore_eos", o.ignore_eos}};
    if (!o.stop.empty()) out["stop"] = o.stop;
    if (s.presence_penalty != 0) out["presence_penalty"] = s.presence_penalty;
    if (s.frequency_penalty != 0) out["frequency_penalty"] = s.frequency_penalty;
    if (!s.logit_bias.empty()) out["logit_bias"] = bias_by_token(s);
    if (o.min_new_tokens > 0) out["min_new_tokens"] = o.min_new_tokens;
    if (!o.stop_token_ids.empty()) out["stop_token_ids"] = o.stop_token_ids;
    if (o.grammar) out[grammar_key(*o.grammar, "json_schema", "ebnf")] = o.grammar->text;
    return out;
  }

  std::vector<RemoteSample> sample(HttpClient& http, const std::string&, const SampleTask& task,
                                   const RemoteWeights& weights) const override {
    Json sampling = parameters(task.request->options);
    sampling["sampling_seed"] = task.seed;
    Json body{{"input_ids", task.request->prompt},
              {"sampling_params", std::move(sampling)},
              {"return_logprob", true}};
    if (weights.adapter && !weights.version.empty()) body["lora_path"] = weights.version;
    const Json answer = ask(http, "/generate", body, weights, 400);
    const Json& about = member(answer, "meta_info", Json::value_t::object);
    const Json version = about.value("weight_version", Json());
    if (!weights.version.empty() && !weights.adapter && version.is_string() &&
        version != weights.version)
      throw WrongWeights(temper::str("the server samples with the weights ", dump_json(version),
                                     ", expected ", weights.version));
    RemoteSample out;
    // [log-probability, id, text or null] of each token.
    for (const Json& token : member(about, "output_token_logprobs", Json::value_t::array)) {
      check<DataError>(token.is_array() && token.size() >= 2,
                       "the server's `output_token_logprobs` has ", dump_json(token));
      out.logprobs.push_back(log_probability(token[0]));
      out.tokens.push_back(token_id(token[1], vocabulary_));
    }
    const Json& reason = member(about, "finish_reason", Json::value_t::object);
    out.stopped = is_stop(reason.value("type", Json()));
    check_sample(out, task);
    return {std::move(out)};
  }

  void load(HttpClient& http, const RemoteWeights& weights,
            const RemoteWeights& before) const override {
    if (!weights.adapter) {
      const Json answer = parse_answer(
          http.post("/update_weights_from_disk", dump_json({{"model_path", weights.path},
                                                            {"weight_version", weights.version},
                                                            {"flush_cache", true}})));
      check<DataError>(
          answer.value("success", Json(false)) == true,
          "the server did not load the weights: ", dump_json(answer.value("message", Json())));
      return;
    }
    unload(http, kUnload, weights.version);
    http.post("/load_lora_adapter",
              dump_json({{"lora_name", weights.version}, {"lora_path", weights.path}}));
    if (!before.version.empty() && before.version != weights.version)
      unload(http, kUnload, before.version);
  }

 private:
  static constexpr const char* kUnload = "/unload_lora_adapter";
  std::vector<Route> routes(const ServerNeeds& needs) const override {
    constexpr const char* kHint = ": it is not SGLang";
    std::vector<Route> all{{"GET", "/generate", kHint}};
    if (needs.loads)
      all.push_back(
          {"GET", needs.adapter ? "/load_lora_adapter" : "/update_weights_from_disk", kHint});
    return all;
  }
  int64_t vocabulary_;
};

}  // namespace

uint64_t task_seed(const Request& request, int64_t first) {
  const uint64_t begun = static_cast<uint64_t>(request.first_sample + first);
  const uint64_t bits = RandomStream(request.options.sampling.seed, RandomPurpose::kSampling,
                                     static_cast<uint64_t>(request.index))
                            .bits64(begun);
  // A turn that goes on with a completion has numbers of its own.
  if (request.position == 0) return bits >> 33;
  return RandomStream(bits, RandomPurpose::kSampling, begun)
             .bits64(static_cast<uint64_t>(request.position)) >>
         33;
}

std::unique_ptr<Protocol> make_protocol(ServerSection::Kind kind, int64_t vocabulary) {
  switch (kind) {
    case ServerSection::Kind::kVllm:
      return std::make_unique<Vllm>(vocabulary);
    case ServerSection::Kind::kSglang:
      return std::make_unique<Sglang>(vocabulary);
    case ServerSection::Kind::kOpenai:
      break;
  }
  return std::make_unique<OpenAi>(vocabulary);
}

}  // namespace temper::generate::remote
