#include <zstd.h>

#include <algorithm>
#include <memory>
#include <protozero/pbf_writer.hpp>

#include "temper/base/error.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {
namespace {

using protozero::pbf_writer;

constexpr int32_t kWrittenFloat32 = 1;   // DType
constexpr float kNoLogprob = -99999.0f;  // of empty cells

template <class T>
void add_array(pbf_writer& message, uint32_t tag, const std::vector<T>& values) {
  message.add_bytes(tag, reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void add_top(pbf_writer& parent, uint32_t tag, const TopTokens& top) {
  if (top.k == 0) return;
  const size_t k = static_cast<size_t>(top.k);
  std::vector<int32_t> ids(top.at.size() * k, 0);
  std::vector<float> logprobs(ids.size(), kNoLogprob);
  for (size_t i = 0; i < top.at.size(); ++i)
    for (size_t j = 0; j < std::min(k, top.at[i].size()); ++j) {
      ids[i * k + j] = top.at[i][j].first;
      logprobs[i * k + j] = top.at[i][j].second;
    }
  pbf_writer message(parent, tag);
  add_array(message, 1, ids);
  add_array(message, 2, logprobs);
  message.add_uint32(3, static_cast<uint32_t>(k));
  message.add_uint32(4, static_cast<uint32_t>(top.at.size()));
}

void add_tensor(pbf_writer& parent, uint32_t tag, const WireTensor& tensor) {
  pbf_writer message(parent, tag);
  const std::vector<float> values(tensor.values.begin(), tensor.values.end());
  if (tensor.is_sparse) {
    pbf_writer sparse(message, 2);
    add_array(sparse, 1, values);
    add_array(sparse, 2, tensor.crow);
    add_array(sparse, 3, tensor.columns);
  } else {
    add_array(message, 1, values);
  }
  message.add_enum(3, kWrittenFloat32);
  message.add_packed_int64(4, tensor.shape.begin(), tensor.shape.end());
}

// One record of data whose tensors have one trailing shape.
void add_record(pbf_writer& parent, const std::vector<DatumLogprobs>& data, size_t begin,
                size_t end) {
  std::vector<float> values;
  std::vector<int64_t> offsets{0};
  for (size_t i = begin; i < end; ++i) {
    values.insert(values.end(), data[i].values.begin(), data[i].values.end());
    offsets.push_back(static_cast<int64_t>(values.size() * sizeof(float)));
  }
  pbf_writer record(parent, 2);
  record.add_string(1, "ArrayRecord");
  {
    pbf_writer entry(record, 2);
    entry.add_string(1, "logprobs");
    pbf_writer tensor(entry, 2);
    add_array(tensor, 1, values);
    add_array(tensor, 2, offsets);
    tensor.add_enum(3, kWrittenFloat32);
    const int64_t columns = data[begin].columns;
    if (columns > 0) tensor.add_packed_int64(4, &columns, &columns + 1);
  }
  record.add_int64(3, static_cast<int64_t>(end - begin));
}

}  // namespace

std::string write_forward_backward(const std::vector<DatumLogprobs>& data,
                                   const std::vector<std::pair<std::string, double>>& metrics) {
  std::string body;
  pbf_writer message(body);
  message.add_string(1, "ArrayRecord");
  for (size_t begin = 0; begin < data.size();) {
    size_t end = begin + 1;
    while (end < data.size() && data[end].columns == data[begin].columns) ++end;
    add_record(message, data, begin, end);
    begin = end;
  }
  for (const auto& [name, value] : metrics) {
    pbf_writer entry(message, 3);
    entry.add_string(1, name);
    entry.add_double(2, value);
  }
  return body;
}

std::string write_sample(const SampleResult& result) {
  std::string body;
  pbf_writer message(body);
  for (const SampledTokens& sequence : result.sequences) {
    pbf_writer one(message, 1);
    one.add_enum(1, sequence.stopped ? 0 : 1);
    add_array(one, 2, sequence.tokens);
    add_array(one, 3, sequence.logprobs);
    add_top(one, 4, sequence.top);
  }
  if (!result.prompt_logprobs.empty()) add_array(message, 2, result.prompt_logprobs);
  add_top(message, 3, result.prompt_top);
  if (!result.targets.shape.empty()) add_tensor(message, 5, result.targets);
  return body;
}

std::string decompress_zstd(std::string_view body, size_t most_bytes) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                   &ZSTD_freeDCtx);
  check(context != nullptr, "zstd: no memory");
  // A frame may ask for a window that holds all of it.
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 27);
  std::string text;
  std::string part(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in{body.data(), body.size(), 0};
  size_t left = 1;
  while (in.pos < in.size || left > 0) {
    ZSTD_outBuffer out{part.data(), part.size(), 0};
    const size_t before = in.pos;
    left = ZSTD_decompressStream(context.get(), &out, &in);
    check<DataError>(!ZSTD_isError(left), "Content-Encoding zstd: ", ZSTD_getErrorName(left));
    check<DataError>(text.size() + out.pos <= most_bytes,
                     "Content-Encoding zstd: the body is more than ", most_bytes,
                     " bytes when decompressed");
    text.append(part, 0, out.pos);
    check<DataError>(in.pos > before || out.pos > 0, "Content-Encoding zstd: the body ends early");
  }
  return text;
}

std::string compress_zstd(std::string_view body) {
  constexpr int kFastest = 1;
  std::string frame(ZSTD_compressBound(body.size()), '\0');
  const size_t size = ZSTD_compress(frame.data(), frame.size(), body.data(), body.size(), kFastest);
  check(!ZSTD_isError(size), "zstd: ", ZSTD_getErrorName(size));
  frame.resize(size);
  frame.shrink_to_fit();
  return frame;
}

}  // namespace temper::tinker
