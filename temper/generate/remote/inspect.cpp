// What a server is, found out before it is needed.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/json.h"
#include "temper/generate/remote/answer.h"
#include "temper/generate/remote/protocol.h"

namespace temper::generate::remote {
namespace {

Json first_model(http::Client& http) {
  const Json answer = parse_json(http.get("/v1/models"), "the server's answer");
  const Json models = answer.is_object() ? answer.value("data", Json()) : Json();
  check<DataError>(models.is_array() && !models.empty() && models[0].is_object(),
                   "/v1/models lists no model");
  return models[0];
}

std::string name_of(const Json& model) {
  const Json name = model.value("id", Json());
  check<DataError>(name.is_string(), "/v1/models lists a model without an `id`");
  return name.get<std::string>();
}

// Throws DataError where the server does not know the route.
template <class Route>
void look_for(http::Client& http, const Route& route) {
  const bool posts = std::string_view(route.method) == "POST";
  try {
    posts ? http.post(route.path, "{}") : http.get(route.path);
  } catch (const http::Failure& e) {
    if (e.status == 404 || (posts && e.status == 405))
      throw DataError(temper::str("the server has no route POST ", route.path, route.hint,
                                  "; rollout.server.kind names its API"));
    const bool lets_nobody_in = e.status == 401 || e.status == 403;
    if (e.unreachable || e.busy() || e.status >= 500 || lets_nobody_in) throw;
  }
}

Request some_tokens(int32_t token) {
  Request request;
  request.prompt = {token};
  request.options.max_new_tokens = 8;
  return request;
}

// A server that refuses a request that a run may send, as by the status 400, has another model.
void sample_some(const Protocol& protocol, http::Client& http, const std::string& model,
                 int32_t token) {
  const Request request = some_tokens(token);
  try {
    protocol.sample(http, model, {.request = &request}, {});
  } catch (const http::Failure& e) {
    if (e.unreachable || e.busy() || e.status >= 500) throw;
    throw DataError(
        temper::str("asked to go on after token ", token, ", which the policy knows: ", e.what()));
  }
}

// What temper serve answers to a greedy request it also answers when it scores that text, but for
// rounding, as a prompt's sums may be those of another kernel: a proxy that changes ids or
// log-probabilities on the way, or makes them up, differs. `protocol` samples by the route of
// OpenAI's API.
void check_greedy(const Protocol& protocol, http::Client& http, const std::string& model,
                  int32_t token) {
  constexpr float kMost = 0.2f;  // of rounding: 1e-2 and more in bfloat16 on a GPU
  Request request = some_tokens(token);
  request.options.sampling.temperature = 0;
  --request.options.max_new_tokens;  // the scored text is a prompt, which leaves room for a token
  const RemoteSample greedy = protocol.sample(http, model, {.request = &request}, {}).at(0);
  std::vector<int32_t> text = request.prompt;
  text.insert(text.end(), greedy.tokens.begin(), greedy.tokens.end());
  const Json answer = parse_answer(http.post("/v1/completions", dump_json({{"model", model},
                                                                           {"prompt", text},
                                                                           {"max_tokens", 0},
                                                                           {"echo", true},
                                                                           {"temperature", 0},
                                                                           {"logprobs", 0}})));
  const Json& choices = member(answer, "choices", Json::value_t::array);
  const Json& scored = member(choices.at(0), "logprobs", Json::value_t::object);
  const Json& scores = member(scored, "token_logprobs", Json::value_t::array);
  check<DataError>(scores.size() == text.size(), "it scored ", scores.size(), " tokens of ",
                   text.size());
  for (size_t i = 0; i < greedy.tokens.size(); ++i) {
    const size_t at = i + request.prompt.size();
    const float said = greedy.logprobs[i], score = log_probability(scores[at]);
    check<DataError>(std::abs(said - score) <= kMost, "its log-probabilities disagree: token ",
                     greedy.tokens[i], " was sampled with ", said,
                     ", and scored in the same place with ", score,
                     "; something between the run and the server (a proxy?) changes token ids or "
                     "log-probabilities");
  }
}

}  // namespace

std::string Protocol::model_name(http::Client& http) const { return name_of(first_model(http)); }

std::string Protocol::inspect(http::Client& http, const ServerNeeds& needs) const {
  const Json model = first_model(http);
  for (const Route& route : routes(needs)) look_for(http, route);
  if (needs.vocabulary == 0) return name_of(model);
  const Json size = model.value("vocab_size", Json());  // temper serve says it
  check<DataError>(!size.is_number_integer() || size == needs.vocabulary, "its model ",
                   name_of(model), " has a vocabulary of ", dump_json(size),
                   " tokens, expected the policy's ", needs.vocabulary);
  const Json dtype = model.value("cache_dtype", Json());  // the same
  check<DataError>(!dtype.is_string() || dtype == needs.cache_dtype, "it keeps keys and values in ",
                   dump_json(dtype), ", and the policy in ", needs.cache_dtype,
                   ": start it with --cache-dtype ", needs.cache_dtype,
                   ", or set rollout.cache_dtype");
  sample_some(*this, http, name_of(model), needs.token);
  if (size.is_number_integer()) check_greedy(*this, http, name_of(model), needs.token);
  return name_of(model);
}

LogprobsOf Protocol::find_logprobs(http::Client& http, const std::string& model,
                                   int32_t token) const {
  Request request = some_tokens(token);
  request.options.sampling.top_k = 1;
  try {
    const RemoteSample greedy = sample(http, model, {.request = &request}, {}).at(0);
    if (greedy.logprobs.empty()) return LogprobsOf::kUnknown;
    const bool certain = std::all_of(greedy.logprobs.begin(), greedy.logprobs.end(),
                                     [](float logprob) { return logprob == 0; });
    return certain ? LogprobsOf::kSampled : LogprobsOf::kModel;
  } catch (const http::Failure& e) {
    if (e.unreachable || e.busy() || e.status >= 500) throw;
  } catch (const DataError&) {
    // The server may not support top_k.
  }
  return LogprobsOf::kUnknown;
}

}  // namespace temper::generate::remote
