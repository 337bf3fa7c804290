// Requests and answers of rollout servers, as the files of the server kinds read and write them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/json.h"
#include "temper/generate/remote/protocol.h"

namespace temper::generate::remote {

// Each throws DataError for an answer that is not as the API has it.
Json parse_answer(const std::string& body);
const Json& member(const Json& json, const char* key, Json::value_t type);
int32_t token_id(const Json& json, int64_t vocabulary);
float log_probability(const Json& json);
// Whether a completion ended by a stop token or text ("stop"), not by its length ("length").
bool is_stop(const Json& reason);
// Throws WrongWeights where the server names another version than that of the weights; a server
// that names none is believed.
void check_version(const Json& found, const RemoteWeights& weights);
void check_sample(const RemoteSample& sample, const SampleTask& task);

// The answer to a request for completions. A server that does not know an adapter which it was
// given was started again since: it says so by the status `unknown`.
Json ask(http::Client& http, const char* path, const Json& body, const RemoteWeights& weights,
         int unknown);

// Makes the server load a model directory by the route that SGLang and temper serve have.
void update_from_disk(http::Client& http, const RemoteWeights& weights, bool flush_cache);
// Makes the server load an adapter under its version's name, in place of the one `before`. `load`
// and `unload` are the routes.
void replace_adapter(http::Client& http, const char* load, const char* unload,
                     const RemoteWeights& weights, const RemoteWeights& before);

}  // namespace temper::generate::remote
