#include "temper/generate/remote/openai.h"

#include "temper/generate/remote/answer.h"
#include "temper/models/vision/image_rows.h"

namespace temper::generate::remote {

std::vector<RemoteSample> OpenAi::sample(http::Client& http, const std::string& model,
                                         const SampleTask& task,
                                         const RemoteWeights& weights) const {
  Json body = parameters(task.request->options);
  body["model"] = name_for(model, weights);
  body["prompt"] = task.request->prompt;
  for (const ImageSpan& span : models::image_spans(task.request->rows))
    if (span.first == 0) body["images"].push_back(data_uri(span.image->bytes()));
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
      out.tokens.push_back(token_id(id, vocabulary()));
    const Json& logprobs = member(choices[i], "logprobs", Json::value_t::object);
    for (const Json& p : member(logprobs, "token_logprobs", Json::value_t::array))
      out.logprobs.push_back(log_probability(p));
    out.stopped = is_stop(choices[i].value("finish_reason", Json()));
  }
  for (const RemoteSample& out : samples) check_sample(out, task);
  return samples;
}

// By SGLang's route, which temper serve has too.
void OpenAi::load(http::Client& http, const RemoteWeights& weights, const RemoteWeights&) const {
  update_from_disk(http, weights, false);
}

// temper serve answers 404 to another method as well.
std::vector<Protocol::Route> OpenAi::routes(const ServerNeeds& needs) const {
  if (!needs.loads) return {};
  return {{"POST", "/update_weights_from_disk",
           ", by which it gets the weights (temper serve has it; else rollout.server.sync: none)"}};
}

std::string OpenAi::name_for(const std::string& model, const RemoteWeights&) const { return model; }

void OpenAi::check_weights(const Json& answer, const RemoteWeights& weights) const {
  check_version(answer.value("system_fingerprint", Json()), weights);
}

namespace {

const Registered<MakeProtocol> kOpenAi(&server_kinds,
                                       {"openai", &make<OpenAi>,
                                        "temper serve and others that return token ids"});

}  // namespace
}  // namespace temper::generate::remote
