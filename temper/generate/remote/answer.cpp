#include "temper/generate/remote/answer.h"

#include <cmath>

#include "temper/base/error.h"

namespace temper::generate::remote {

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

void check_version(const Json& found, const RemoteWeights& weights) {
  if (weights.version.empty() || !found.is_string() || found == weights.version) return;
  throw WrongWeights(temper::str("the server samples with the weights ", dump_json(found),
                                 ", expected ", weights.version));
}

void check_sample(const RemoteSample& sample, const SampleTask& task) {
  const int64_t most = task.request->options.max_new_tokens;
  const int64_t found = static_cast<int64_t>(sample.tokens.size());
  check<DataError>(found >= 1 && found <= most, "the server sampled ", found,
                   " tokens, expected 1 to ", most);
  check<DataError>(sample.stopped || found == most, "the server ended a completion of a prompt of ",
                   task.request->prompt.size(), " tokens by its length after ", found, " of ", most,
                   " tokens: its context length is too small; start it with one of at least ",
                   std::ssize(task.request->prompt) + most, ", or lower max_new_tokens");
  check<DataError>(sample.tokens.size() == sample.logprobs.size(), "the server gave ",
                   sample.logprobs.size(), " log-probabilities for ", found, " tokens");
}

bool is_stop(const Json& reason) {
  check<DataError>(reason == "stop" || reason == "length", "the server ended a completion by ",
                   dump_json(reason), ", expected stop or length");
  return reason == "stop";
}

Json ask(http::Client& http, const char* path, const Json& body, const RemoteWeights& weights,
         int unknown) {
  try {
    return parse_answer(http.post(path, dump_json(body)));
  } catch (const http::Failure& e) {
    if (weights.adapter && e.status == unknown) throw WrongWeights(e.what());
    throw;
  }
}

void update_from_disk(http::Client& http, const RemoteWeights& weights, bool flush_cache) {
  Json body{{"model_path", weights.path}, {"weight_version", weights.version}};
  if (flush_cache) body["flush_cache"] = true;
  const Json answer = parse_answer(http.post("/update_weights_from_disk", dump_json(body)));
  check<DataError>(
      answer.value("success", Json(false)) == true,
      "the server did not load the weights: ", dump_json(answer.value("message", Json())));
}

namespace {

// An adapter, where it is loaded.
void unload(http::Client& http, const char* path, const std::string& name) {
  try {
    http.post(path, dump_json({{"lora_name", name}}));
  } catch (const http::Failure& e) {
    if (e.unreachable || e.busy()) throw;  // else there was none
  }
}

}  // namespace

// Under that name it may be there from an earlier run, with other values.
void replace_adapter(http::Client& http, const char* load, const char* unload_route,
                     const RemoteWeights& weights, const RemoteWeights& before) {
  unload(http, unload_route, weights.version);
  http.post(load, dump_json({{"lora_name", weights.version}, {"lora_path", weights.path}}));
  if (!before.version.empty() && before.version != weights.version)
    unload(http, unload_route, before.version);
}

}  // namespace temper::generate::remote
