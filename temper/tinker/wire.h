// The protobuf messages of the Tinker API (package tinker_public of the SDK 0.38): requests of
// forward and backward passes, and the results that clients read as protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "temper/image/source.h"

namespace temper::tinker {

// An input of a loss, as a client sent it. Values of a sparse matrix are those that it lists.
struct WireTensor {
  std::vector<int64_t> shape;     // no entry negative; empty: it was not sent
  std::vector<double> values;     // float32, bfloat16
  std::vector<int64_t> integers;  // int64, int32
  bool is_integer = false;
  bool is_sparse = false;              // compressed sparse rows, of two dimensions
  std::vector<int64_t> crow, columns;  // of a sparse one

  size_t size() const { return is_integer ? integers.size() : values.size(); }
  double number(size_t i) const {
    return is_integer ? static_cast<double>(integers[i]) : values[i];
  }
};

inline constexpr size_t kMostImages = 1024;  // chunks of a datum, or of a prompt

// A chunk that is an image.
struct WireImage {
  size_t at = 0;  // tokens of text before it
  ImageSource source;
  std::optional<int64_t> expected_tokens = {};
};

struct WireDatum {
  std::vector<int32_t> tokens;  // of text
  std::vector<WireImage> images = {};
  std::map<std::string, WireTensor> inputs;
};

using LossConfig = std::map<std::string, std::variant<double, std::string>>;

struct ForwardBackwardRequest {
  std::string model_id;
  int64_t seq_id = 0;  // 0: none was sent
  std::vector<WireDatum> data;
  std::string loss_fn;
  LossConfig config;
  bool forward_only = false;
};

// Reads a message; memory stays within a small multiple of the body's size. Throws DataError for a
// malformed one, for inputs that are neither tokens nor images (audio), and for more than 65,536
// data, 262,144 tensors, or 1,024 images in one datum.
ForwardBackwardRequest read_forward_backward(std::string_view body);
// The model and number of a message of which the rest cannot be read. Nothing: not even those can.
struct ForwardBackwardHead {
  std::string model_id;
  int64_t seq_id = 0;  // as above
};
std::optional<ForwardBackwardHead> read_forward_backward_head(std::string_view body);

// The log-probabilities of a datum's targets: [N] where `columns` is 0, else [N, columns].
struct DatumLogprobs {
  std::vector<float> values;
  int64_t columns = 0;
};
// ForwardBackwardOutput. Metrics are named NAME:REDUCTION.
std::string write_forward_backward(const std::vector<DatumLogprobs>& data,
                                   const std::vector<std::pair<std::string, double>>& metrics);

// The likeliest tokens at each of some positions, likeliest first; fewer than k where a position
// has none.
struct TopTokens {
  int64_t k = 0;
  std::vector<std::vector<std::pair<int32_t, float>>> at;
};
struct SampledTokens {
  bool stopped = false;  // else its length ended it
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  TopTokens top;  // k 0: none were asked for
};
struct SampleResult {
  std::vector<SampledTokens> sequences;
  // Of the prompt's tokens, NaN where there is none; empty: they were not asked for.
  std::vector<float> prompt_logprobs;
  TopTokens prompt_top;
  // Of the asked tokens, with the shape and layout of the request; shape empty: none were asked
  // for.
  WireTensor targets;
};
std::string write_sample(const SampleResult& result);

// Decompresses a Zstandard frame. Throws DataError where it is damaged or would be larger than
// most_bytes.
std::string decompress_zstd(std::string_view body, size_t most_bytes);
// A Zstandard frame, compressed as fast as it goes.
std::string compress_zstd(std::string_view body);

}  // namespace temper::tinker
