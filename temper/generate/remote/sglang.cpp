// SGLang's /generate. One sample a request: the samples of one would share their seed.
#include "temper/generate/remote/answer.h"

namespace temper::generate::remote {
namespace {

class Sglang final : public Protocol {
 public:
  using Protocol::Protocol;
  int64_t most_samples() const override { return 1; }

  std::optional<Unsupported> find_unsupported(const RolloutSection& rollout) const override {
    constexpr double kMostPenalty = 2;
    if (rollout.no_repeat_ngram > 0) return no_repeat_ngram_of(rollout, "sglang");
    if (rollout.repetition_penalty > kMostPenalty)
      return outside("repetition_penalty", rollout.repetition_penalty, 0, kMostPenalty);
    return Protocol::find_unsupported(rollout);
  }

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
