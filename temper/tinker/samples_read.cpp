#include <algorithm>
#include <cmath>
#include <random>

#include "temper/base/error.h"
#include "temper/serve/request_options.h"
#include "temper/tinker/samples.h"

namespace temper::tinker {
namespace {

constexpr int64_t kMostSamples = 1024, kMostTop = 1024;
constexpr int64_t kMostTopTokens = int64_t{1} << 24;  // likeliest tokens that are answered
constexpr int64_t kUsualTokens = 4096;  // where a request does not say how many at most
constexpr size_t kMostStops = 64;

using serve::Members;
using serve::wrong;

// {"type": "image", "data": base64, "expected_tokens"}, or an asset pointer whose location is a
// data: URI: what lies elsewhere is not fetched.
WireImage read_image_chunk(const Json& chunk) {
  constexpr const char* kChunks = "prompt.chunks";
  const bool is_pointer = chunk["type"] == "image_asset_pointer";
  const Json content = chunk.value(is_pointer ? "location" : "data", Json());
  WireImage image;
  if (content.is_string()) image.source = {content.get<std::string>(), {}, !is_pointer};
  if (image.source.text.empty() || (is_pointer && !is_data_uri(image.source.text)))
    wrong(kChunks, content,
          is_pointer ? "the location of an image as a data: URI: nothing else is fetched; or a "
                       "chunk `image` with its bytes"
                     : "the `data` of an image, in base64");
  const Json tokens = chunk.value("expected_tokens", Json());
  if (!tokens.is_null() && (!tokens.is_number_integer() || tokens < 0))
    wrong(kChunks, tokens, "expected_tokens, a whole number");
  if (!tokens.is_null()) image.expected_tokens = tokens.get<int64_t>();
  return image;
}

void read_prompt(const Json* prompt, int64_t vocabulary, const ChunkFormat& format,
                 SampleRequest& request) {
  if (!prompt || !prompt->is_object()) wrong("prompt", prompt ? *prompt : Json(), "an object");
  const auto chunks = prompt->find("chunks");
  if (chunks == prompt->end() || !chunks->is_array()) wrong("prompt", *prompt, "a list `chunks`");
  std::vector<int32_t>& tokens = request.prompt;
  std::vector<WireImage> images;
  for (const Json& chunk : *chunks) {
    const Json type = chunk.is_object() ? chunk.value("type", Json("encoded_text")) : Json();
    if (type == "image" || type == "image_asset_pointer") {
      if (images.size() == kMostImages)
        wrong("prompt", Json(), str("at most ", kMostImages, " images"));
      images.push_back(read_image_chunk(chunk));
      images.back().at = tokens.size();
      continue;
    }
    const bool is_text =
        type == "encoded_text" && chunk.contains("tokens") && chunk["tokens"].is_array();
    if (!is_text) wrong("prompt.chunks", chunk, "chunks of tokens (encoded_text) or images");
    for (const Json& token : chunk["tokens"]) {
      if (!token.is_number_integer() || token < 0 || token >= vocabulary)
        wrong("prompt.chunks", token, str("token ids below ", vocabulary));
      tokens.push_back(token.get<int32_t>());
    }
  }
  request.images = place_chunks(format, images, tokens, "`prompt`");
  check<DataError>(!tokens.empty(), "`prompt`: found no tokens, expected at least one");
}

// Absent: the model's end tokens alone. A list, the empty one too, stands in their place.
void read_stop(const Json* stop, generate::GenerationOptions& options) {
  if (!stop) return;
  options.ignore_eos = true;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMostStops) wrong("stop", *stop, str("at most ", kMostStops));
  for (const Json& one : list) {
    if (one.is_string() && one != "")
      options.stop.push_back(one.get<std::string>());
    else if (one.is_number_integer() && one >= 0 && one <= INT32_MAX)
      options.stop_token_ids.push_back(one.get<int32_t>());
    else
      wrong("stop", one, "a text that is not empty, or a token id");
  }
}

uint64_t random_seed() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

void read_sampling(const Json* sampling, SampleRequest& request, int64_t most_positions) {
  const Json none = Json::object();
  if (sampling && !sampling->is_object()) wrong("sampling_params", *sampling, "an object");
  Members members(sampling ? *sampling : none);
  generate::SamplingOptions& out = request.options.sampling;
  const int64_t room = most_positions - static_cast<int64_t>(request.prompt.size());
  check<DataError>(room >= 0, "`prompt`: found ", request.prompt.size(),
                   " tokens; the model takes at most ", most_positions);
  // A full prompt has one sampled token, which the model never reads.
  request.options.max_new_tokens =
      std::min(members.integer("max_tokens", 1, generate::kMostNewTokens).value_or(kUsualTokens),
               std::max<int64_t>(room, 1));
  serve::read_sampling(members, generate::Api::kTinker, request.options);
  check<DataError>(out.temperature == 0 || out.temperature >= generate::kLeastTemperature,
                   "`temperature`: found ", out.temperature, ", expected 0 or at least ",
                   generate::kLeastTemperature);
  const std::optional<int64_t> seed = members.integer("seed", INT64_MIN, INT64_MAX);
  out.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
  read_stop(members.find("stop"), request.options);
}

std::vector<int64_t> integers(const Json& list, const char* key) {
  if (!list.is_array()) wrong(key, list, "a list of whole numbers");
  std::vector<int64_t> out;
  for (const Json& one : list) {
    if (!one.is_number_integer()) wrong(key, one, "a whole number");
    out.push_back(one.get<int64_t>());
  }
  return out;
}

constexpr const char* kTargets = "target_prompt_logprobs";

// A cell of -1 asks for nothing.
void read_targets(const Json* targets, SampleRequest& request, int64_t vocabulary) {
  if (!targets) return;
  if (!targets->is_object()) wrong(kTargets, *targets, "a tensor");
  WireTensor& out = request.targets;
  out.is_integer = true;
  out.integers = integers(targets->value("data", Json()), kTargets);
  out.shape = integers(targets->value("shape", Json()), kTargets);
  if (targets->contains("sparse_crow_indices") && !(*targets)["sparse_crow_indices"].is_null()) {
    out.is_sparse = true;
    out.crow = integers((*targets)["sparse_crow_indices"], kTargets);
    out.columns = integers(targets->value("sparse_col_indices", Json()), kTargets);
  }
  const int64_t rows = static_cast<int64_t>(request.prompt.size()) - 1;
  const int64_t count = static_cast<int64_t>(out.integers.size());
  const bool fits = out.shape.size() == 2 && out.shape[0] == rows && out.shape[1] >= 1 &&
                    out.shape[1] <= kMostTop;
  check<DataError>(fits, "`", kTargets, "`: expected the shape [", rows, ", K], K from 1 to ",
                   kMostTop);
  if (!out.is_sparse) {
    check<DataError>(count == rows * out.shape[1], "`", kTargets, "`: found ", count,
                     " values, expected ", rows * out.shape[1]);
  } else {
    bool right = static_cast<int64_t>(out.crow.size()) == rows + 1 &&
                 static_cast<int64_t>(out.columns.size()) == count && out.crow.front() == 0 &&
                 out.crow.back() == count && std::is_sorted(out.crow.begin(), out.crow.end());
    for (const int64_t column : out.columns) right = right && column >= 0 && column < out.shape[1];
    check<DataError>(right, "`", kTargets, "`: its sparse indices do not fit its shape");
  }
  for (const int64_t id : out.integers)
    check<DataError>(id >= -1 && id < vocabulary, "`", kTargets, "`: found ", id,
                     ", expected token ids below ", vocabulary, ", or -1");
}

}  // namespace

SampleRequest read_sample(const Json& body, int64_t vocabulary, int64_t most_positions,
                          const ChunkFormat& chunks) {
  Members members(body);
  SampleRequest request;
  read_prompt(members.find("prompt"), vocabulary, chunks, request);
  request.num_samples = members.integer("num_samples", 1, kMostSamples).value_or(1);
  read_sampling(members.find("sampling_params"), request, most_positions);
  request.prompt_logprobs = members.flag("prompt_logprobs");
  request.top_of_prompt = members.integer("topk_prompt_logprobs", 0, kMostTop).value_or(0);
  request.top_of_samples = members.integer("topk_sample_logprobs", 0, kMostTop).value_or(0);
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  check<DataError>(
      request.num_samples * request.options.max_new_tokens * request.top_of_samples +
              length * request.top_of_prompt <=
          kMostTopTokens,
      "`topk_sample_logprobs`, `topk_prompt_logprobs`: num_samples times max_tokens, and the "
      "prompt's tokens, would have more than ",
      kMostTopTokens, " likeliest tokens; ask for fewer in a request");
  request.last_n =
      members.integer("prompt_logprobs_last_n", 1, std::max<int64_t>(length - 1, 1)).value_or(0);
  if (length == 1) request.last_n = 0;
  check<DataError>(members.integer("prompt_alt_tokens_k", 0, kMostTop).value_or(0) == 0,
                   "`prompt_alt_tokens_k` is not offered; use topk_prompt_logprobs, or sample with "
                   "the prompt's beginnings");
  read_targets(members.find(kTargets), request, vocabulary);
  return request;
}

TargetLogprobs::TargetLogprobs(models::CausalLM& model, int adapter, const SampleRequest& request)
    : result_(request.targets) {
  const std::vector<int64_t>& asked = request.targets.integers;
  result_.is_integer = false;
  result_.integers.clear();
  result_.values.assign(asked.size(), 0);
  std::vector<int64_t> position, first;
  std::vector<size_t> cell;
  RowTargets targets;
  const auto k = static_cast<size_t>(result_.shape[1]);
  for (size_t r = 0; r < static_cast<size_t>(result_.shape[0]); ++r) {
    const size_t begin = result_.is_sparse ? static_cast<size_t>(result_.crow[r]) : r * k,
                 end = result_.is_sparse ? static_cast<size_t>(result_.crow[r + 1]) : begin + k;
    for (size_t i = begin; i < end; ++i) {
      if (asked[i] < 0) continue;
      if (position.empty() || position.back() != static_cast<int64_t>(r)) {
        if (!cell.empty()) targets.offset.push_back(cell.size());
        position.push_back(static_cast<int64_t>(r));
        first.push_back(asked[i]);
      }
      targets.token.push_back(asked[i]);
      cell.push_back(i);
    }
  }
  if (cell.empty()) return;
  targets.offset.push_back(cell.size());
  train::ForwardPass pass;
  pass.add_row(request.prompt, position, first, adapter, request.images);
  pass_ =
      std::make_unique<SlicedPass>(model, std::move(pass), std::move(targets), false,
                                   [this, cell = std::move(cell)](std::span<const float> logprobs) {
                                     for (size_t i = 0; i < cell.size(); ++i)
                                       result_.values[cell[i]] = double{logprobs[i]};
                                     return std::vector<float>();
                                   });
}

}  // namespace temper::tinker
