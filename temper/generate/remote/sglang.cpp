// SGLang's /generate. One sample a request: the samples of one would share their seed.
#include "temper/generate/remote/answer.h"

namespace temper::generate::remote {
namespace {

class Sglang final : public Protocol {
 public:
  using Protocol::Protocol;
  int64_t most_samples() const override { return 1; }

  Api api() const override { return Api::kSglang; }

  std::vector<RemoteSample> sample(http::Client& http, const std::string&, const SampleTask& task,
                                   const RemoteWeights& weights) const override {
    Json sampling = parameters(task.request->options);
    sampling["sampling_seed"] = task.seed;
    Json body{{"input_ids", task.request->prompt},
              {"sampling_params", std::move(sampling)},
              {"return_logprob", true}};
    if (weights.adapter && !weights.version.empty()) body["lora_path"] = weights.version;
    const Json answer = ask(http, "/generate", body, weights, 400);
    const Json& about = member(answer, "meta_info", Json::value_t::object);
    if (!weights.adapter) check_version(about.value("weight_version", Json()), weights);
    RemoteSample out;
    // [log-probability, id, text or null] of each token.
    for (const Json& token : member(about, "output_token_logprobs", Json::value_t::array)) {
      check<DataError>(token.is_array() && token.size() >= 2,
                       "the server's `output_token_logprobs` has ", dump_json(token));
      out.logprobs.push_back(log_probability(token[0]));
      out.tokens.push_back(token_id(token[1], vocabulary()));
    }
    const Json& reason = member(about, "finish_reason", Json::value_t::object);
    out.stopped = is_stop(reason.value("type", Json()));
    check_sample(out, task);
    return {std::move(out)};
  }

  void load(http::Client& http, const RemoteWeights& weights,
            const RemoteWeights& before) const override {
    if (!weights.adapter) return update_from_disk(http, weights, true);
    replace_adapter(http, "/load_lora_adapter", "/unload_lora_adapter", weights, before);
  }

 private:
  std::vector<Route> routes(const ServerNeeds& needs) const override {
    constexpr const char* kHint = ": it is not SGLang";
    std::vector<Route> all{{"GET", "/generate", kHint}};
    if (needs.loads)
      all.push_back(
          {"GET", needs.adapter ? "/load_lora_adapter" : "/update_weights_from_disk", kHint});
    return all;
  }
};

const Registered<MakeProtocol> kSglang(&server_kinds, {"sglang", &make<Sglang>, "SGLang"});

}  // namespace
}  // namespace temper::generate::remote
