// Weights of linear layers as bitsandbytes writes them into safetensors.
// In 4 bits: `weight` has the codes, two to a byte, and beside it are `weight.absmax` (with double
// quantization 8-bit codes, and `weight.nested_absmax` and `weight.nested_quant_map`),
// `weight.quant_map`, and `weight.quant_state.bitsandbytes__nf4` or `__fp4`, a JSON text of shape,
// block size and offset.
// In 8 bits (LLM.int8, Dettmers et al., arXiv 2208.07339): `weight` [out, in] int8 and `SCB` [out],
// the largest magnitude of each row, stand for code * SCB / 127; `weight_format` is 0, row-major.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/formats/packed.h"
#include "temper/models/files/tensors.h"

namespace temper::models {
namespace {

// A 4-bit type, by the end of its states' names.
struct FourBits {
  const char* state;
  ops::WeightFormat format;
};
constexpr FourBits kFourBits[] = {
    {".quant_state.bitsandbytes__nf4", ops::WeightFormat::kNf4},
    {".quant_state.bitsandbytes__fp4", ops::WeightFormat::kFp4},
};

int64_t count_of(const Json& state, const char* key, const std::string& where) {
  const auto it = state.find(key);
  check<DataError>(it != state.end() && it->is_number_integer() && it->get<int64_t>() > 0 &&
                       it->get<int64_t>() <= INT32_MAX,
                   where, ": `", key, "` is not a positive integer");
  return it->get<int64_t>();
}

class BitsAndBytesMatrix final : public CodedMatrix {
 public:
  // `parts`: the tensors of the matrix `name`, whose state is what it says of itself. Throws
  // ConfigError for another block size than the format's, DataError.
  BitsAndBytesMatrix(TensorMap parts, const FourBits& type, std::string name, std::string directory)
      : parts_(std::move(parts)),
        format_(type.format),
        name_(std::move(name)),
        directory_(std::move(directory)),
        place_(directory_ + ": `" + name_ + type.state + "`"),
        state_(parse_json(bytes_of(part(type.state, directory_)), place_)) {
    check<DataError>(state_.is_object(), place_, ": expected a JSON object");
    const auto shape = state_.find("shape");
    check<DataError>(shape != state_.end() && shape->is_array() && shape->size() == 2 &&
                         (*shape)[0].is_number_integer() && (*shape)[1].is_number_integer(),
                     place_, ": `shape` is not a list of two numbers");
    out_ = (*shape)[0].get<int64_t>(), in_ = (*shape)[1].get<int64_t>();
    check<DataError>(out_ > 0 && in_ > 0 && out_ <= INT32_MAX && in_ <= INT32_MAX, place_,
                     ": shape ", out_, " by ", in_);
    check<ConfigError>(count_of(state_, "blocksize", place_) == ops::row_of(format()).block, place_,
                       ": blocks of other than 64 values are not read");
    const size_t bytes = part("", directory_).num_bytes;
    check<DataError>(bytes == (values_count() + 1) / 2, directory_, ": `", name_, "` has ", bytes,
                     " bytes of codes, shape ", out_, " by ", in_, " takes ",
                     (values_count() + 1) / 2);
  }

  std::vector<int64_t> shape() const { return {out_, in_}; }

  ops::WeightFormat format() const override { return format_; }

  ops::Codes unpacked() const override {
    const TensorView packed = part("", directory_), absmax = part(".absmax", directory_);
    const std::vector<float> map = floats(".quant_map", directory_);
    const ops::FormatRow& row = ops::row_of(format_);
    check<DataError>(map.size() == 16 && std::equal(map.begin(), map.end(), row.values), directory_,
                     ": `", name_, ".quant_map` is not ", row.title, "'s");
    ops::Codes to{.format = format(), .rows = out_, .width = in_};
    to.codes.resize(values_count());
#pragma omp parallel for schedule(static) if (to.codes.size() > 32768)
    for (size_t i = 0; i < to.codes.size(); ++i) {
      const uint8_t both = std::to_integer<uint8_t>(packed.data[i / 2]);
      to.codes[i] = i % 2 == 0 ? both >> 4 : both & 15;
    }
    give_back_pages(packed);
    to.scales = absmax.dtype == DType::kUInt8 ? nested(absmax) : floats(".absmax", directory_);
    const auto blocks = static_cast<size_t>(ops::block_count(format(), out_, in_));
    check<DataError>(to.scales.size() == blocks, directory_, ": `", name_, ".absmax` has ",
                     to.scales.size(), " values, shape ", out_, " by ", in_, " takes ", blocks);
    for (const float magnitude : to.scales)
      check<DataError>(std::isfinite(magnitude), directory_, ": `", name_,
                       "`: its scales hold NaN or infinity");
    return to;
  }

  TensorView values() const override { return to_view(ops::read(ops::Weight(codes(at::kCPU)))); }

 private:
  size_t values_count() const { return static_cast<size_t>(out_) * static_cast<size_t>(in_); }

  const TensorView& part(const std::string& suffix, const std::string& where) const {
    const auto it = parts_.find(name_ + suffix);
    check<DataError>(it != parts_.end(), where, ": `", name_, suffix,
                     "` is missing next to 4-bit codes");
    check<DataError>(!it->second.make, where, ": `", name_, suffix,
                     "` belongs to 4-bit codes and is in 4 bits itself");
    return it->second;
  }

  std::vector<float> floats(const std::string& suffix, const std::string& where) const {
    const TensorView& view = part(suffix, where);
    check<DataError>(view.dtype == DType::kFloat32, where, ": `", name_, suffix, "` is ",
                     dtype_name(view.dtype), ", expected F32");
    std::vector<float> out(view.num_bytes / sizeof(float));
    std::memcpy(out.data(), view.data, view.num_bytes);
    for (const float x : out)
      check<DataError>(std::isfinite(x), where, ": `", name_, suffix,
                       "` holds a number that is not finite");
    return out;
  }

  // absmax from 8-bit codes: map[code] * scale of its block + offset.
  std::vector<float> nested(const TensorView& codes) const {
    const std::vector<float> scale = floats(".nested_absmax", place_),
                             map = floats(".nested_quant_map", place_);
    const size_t block = static_cast<size_t>(count_of(state_, "nested_blocksize", place_));
    const auto offset = state_.find("nested_offset");
    check<DataError>(offset != state_.end() && offset->is_number() &&
                         std::abs(offset->get<double>()) <= std::numeric_limits<float>::max(),
                     place_, ": `nested_offset` is not a number of float32");
    const size_t count = codes.num_bytes;
    check<DataError>(map.size() == 256 && scale.size() == (count + block - 1) / block, place_,
                     ": `", name_, "`: sizes of its nested scales disagree");
    std::vector<float> absmax(count);
    for (size_t i = 0; i < count; ++i)
      absmax[i] = map[std::to_integer<size_t>(codes.data[i])] * scale[i / block] +
                  static_cast<float>(offset->get<double>());
    return absmax;
  }

  TensorMap parts_;
  ops::WeightFormat format_;
  std::string name_, directory_, place_;  // place_: of the state, as errors name it
  Json state_;
  int64_t out_ = 0, in_ = 0;
};

void open_four_bits(TensorMap& tensors, const FourBits& type, const std::string& directory) {
  for (const std::string& name : modules_with(tensors, type.state)) {
    TensorMap parts;
    for (const char* suffix :
         {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", type.state})
      parts.insert(tensors.extract(name + suffix));
    const auto matrix =
        std::make_shared<const BitsAndBytesMatrix>(std::move(parts), type, name, directory);
    tensors[name] = coded_view(DType::kFloat32, matrix->shape(), matrix);
  }
}

// As bitsandbytes' int8_vectorwise_dequant computes it, but for the order of its two products.
std::vector<float> int8_scales(const MatrixParts& parts, int64_t rows) {
  std::vector<float> scales = parts.scales(".SCB", 1);
  for (float& scale : scales) {
    check<DataError>(scale >= 0, parts.place(".SCB"), " holds ", scale,
                     ", expected the largest magnitude of a row");
    scale *= 1.0f / 127;
  }
  if (static_cast<int64_t>(scales.size()) != rows) parts.fail(".SCB", shape_text({rows}));
  return scales;
}

ops::Codes int8_codes(const MatrixParts& parts) {
  const TensorView& view = parts.at(".weight");
  ops::Codes codes{.format = ops::WeightFormat::kInt8Group,
                   .rows = view.shape[0],
                   .width = view.shape[1],
                   .group = view.shape[1]};
  codes.scales = int8_scales(parts, codes.rows);
  const auto* bytes = reinterpret_cast<const uint8_t*>(view.data);
  codes.codes.assign(bytes, bytes + view.num_bytes);
  give_back_pages(view);
  return codes;
}

void open_eight_bits(TensorMap& tensors, const std::string& directory) {
  for (const std::string& module : modules_with(tensors, ".SCB")) {
    const auto parts = std::make_shared<const MatrixParts>(
        tensors, module, std::initializer_list<const char*>{".weight", ".SCB", ".weight_format"},
        directory);
    const TensorView& weight = parts->at(".weight");
    if (weight.dtype != DType::kInt8 || weight.shape.size() != 2 || weight.num_bytes == 0)
      parts->fail(".weight", "I8 of two dimensions beside `.SCB`");
    if (parts->at(".SCB").shape != std::vector<int64_t>{weight.shape[0]})
      parts->fail(".SCB", shape_text({weight.shape[0]}));
    if (parts->has(".weight_format")) {
      const TensorView& order = parts->at(".weight_format");
      check<ConfigError>(order.num_bytes == dtype_size(order.dtype) &&
                             std::all_of(order.data, order.data + order.num_bytes,
                                         [](std::byte byte) { return byte == std::byte{0}; }),
                         parts->place(".weight_format"),
                         ": another order than 0, row-major, is not read");
    }
    tensors[module + ".weight"] =
        coded_view(ops::WeightFormat::kInt8Group, weight.shape[0], weight.shape[1],
                   [parts] { return int8_codes(*parts); });
  }
}

void open_bitsandbytes(TensorMap& tensors, const HfConfig&, const std::string& directory) {
  for (const FourBits& type : kFourBits) open_four_bits(tensors, type, directory);
  open_eight_bits(tensors, directory);
}

const Registered<CheckpointFormat> kBitsAndBytes(&checkpoint_formats,
                                                 {"bitsandbytes",
                                                  {.open = &open_bitsandbytes},
                                                  "linear layers in NF4, FP4 and int8"});

}  // namespace
}  // namespace temper::models
