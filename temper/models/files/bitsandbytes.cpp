#include "temper/models/files/bitsandbytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/family.h"

namespace temper::models {
namespace {

constexpr const char* kNf4State = ".quant_state.bitsandbytes__nf4";
constexpr const char* kFp4State = ".quant_state.bitsandbytes__fp4";

TensorView take(TensorMap& tensors, const std::string& name, const std::string& where) {
  const auto it = tensors.find(name);
  check<DataError>(it != tensors.end(), where, ": `", name, "` is missing next to 4-bit codes");
  TensorView view = std::move(it->second);
  tensors.erase(it);
  return view;
}

std::vector<float> floats(const TensorView& view, const std::string& name,
                          const std::string& where) {
  check<DataError>(view.dtype == DType::kFloat32, where, ": `", name, "` is ",
                   dtype_name(view.dtype), ", expected F32");
  std::vector<float> out(view.num_bytes / sizeof(float));
  std::memcpy(out.data(), view.data, view.num_bytes);
  for (const float x : out)
    check<DataError>(std::isfinite(x), where, ": `", name, "` holds a number that is not finite");
  return out;
}

int64_t count_of(const Json& state, const char* key, const std::string& where) {
  const auto it = state.find(key);
  check<DataError>(it != state.end() && it->is_number_integer() && it->get<int64_t>() > 0 &&
                       it->get<int64_t>() <= INT32_MAX,
                   where, ": `", key, "` is not a positive integer");
  return it->get<int64_t>();
}

// absmax from 8-bit codes: map[code] * scale of its block + offset.
std::vector<float> nested(TensorMap& tensors, const std::string& name, const TensorView& codes,
                          const Json& state, const std::string& where) {
  const std::vector<float> scale =
      floats(take(tensors, name + ".nested_absmax", where), name + ".nested_absmax", where);
  const std::vector<float> map =
      floats(take(tensors, name + ".nested_quant_map", where), name + ".nested_quant_map", where);
  const size_t block = static_cast<size_t>(count_of(state, "nested_blocksize", where));
  const auto offset = state.find("nested_offset");
  check<DataError>(offset != state.end() && offset->is_number() &&
                       std::abs(offset->get<double>()) <= std::numeric_limits<float>::max(),
                   where, ": `nested_offset` is not a number of float32");
  const size_t count = codes.num_bytes;
  check<DataError>(map.size() == 256 && scale.size() == (count + block - 1) / block, where, ": `",
                   name, "`: sizes of its nested scales disagree");
  std::vector<float> absmax(count);
  for (size_t i = 0; i < count; ++i)
    absmax[i] = map[std::to_integer<size_t>(codes.data[i])] * scale[i / block] +
                static_cast<float>(offset->get<double>());
  return absmax;
}

}  // namespace

std::shared_ptr<const ops::QuantizedWeight> Nf4Tensor::weight(at::Device device) const {
  return ops::from_codes(ops::WeightFormat::kNf4, shape[0], shape[1], codes.data(), absmax.data(),
                         device);
}

std::vector<std::string> bitsandbytes_weights(const TensorMap& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors)
    for (const char* suffix : {kNf4State, kFp4State})
      if (name.ends_with(suffix)) names.push_back(name.substr(0, name.size() - strlen(suffix)));
  return names;
}

Nf4Tensor take_bitsandbytes(TensorMap& tensors, const std::string& name, const std::string& where) {
  check<ConfigError>(!tensors.contains(name + kFp4State), where, ": `", name,
                     "` is in fp4; of 4-bit weights nf4 is read");
  const std::string place = where + ": `" + name + kNf4State + "`";
  const Json state = parse_json(bytes_of(take(tensors, name + kNf4State, where)), place);
  check<DataError>(state.is_object(), place, ": expected a JSON object");
  const auto shape = state.find("shape");
  check<DataError>(shape != state.end() && shape->is_array() && shape->size() == 2 &&
                       (*shape)[0].is_number_integer() && (*shape)[1].is_number_integer(),
                   place, ": `shape` is not a list of two numbers");
  const int64_t out = (*shape)[0].get<int64_t>(), in = (*shape)[1].get<int64_t>();
  check<DataError>(out > 0 && in > 0 && out <= INT32_MAX && in <= INT32_MAX, place, ": shape ", out,
                   " by ", in);
  check<ConfigError>(
      count_of(state, "blocksize", place) == ops::row_of(ops::WeightFormat::kNf4).block, place,
      ": blocks of other than 64 values are not read");
  const TensorView codes = take(tensors, name, where),
                   absmax = take(tensors, name + ".absmax", where);
  const std::vector<float> map =
      floats(take(tensors, name + ".quant_map", where), name + ".quant_map", where);
  check<DataError>(map.size() == 16 && std::equal(map.begin(), map.end(), ops::kNf4Values.begin()),
                   where, ": `", name, ".quant_map` is not NF4's");
  const size_t count = static_cast<size_t>(out * in);
  check<DataError>(codes.num_bytes == (count + 1) / 2, where, ": `", name, "` has ",
                   codes.num_bytes, " bytes of codes, shape ", out, " by ", in, " takes ",
                   (count + 1) / 2);
  Nf4Tensor tensor{{out, in}, std::vector<uint8_t>(count), {}};
  for (size_t i = 0; i < count; ++i) {
    const uint8_t both = std::to_integer<uint8_t>(codes.data[i / 2]);
    tensor.codes[i] = i % 2 == 0 ? both >> 4 : both & 15;
  }
  give_back_pages(codes);
  tensor.absmax = absmax.dtype == DType::kUInt8 ? nested(tensors, name, absmax, state, place)
                                                : floats(absmax, name + ".absmax", where);
  check<DataError>(tensor.absmax.size() == (count + 63) / 64, where, ": `", name, ".absmax` has ",
                   tensor.absmax.size(), " values, shape ", out, " by ", in, " takes ",
                   (count + 63) / 64);
  for (const float magnitude : tensor.absmax)
    check<DataError>(std::isfinite(magnitude), where, ": `", name,
                     "`: its scales hold NaN or infinity");
  return tensor;
}

void check_quantization(const Json& config, const std::string& where) {
  const auto quantization = config.find("quantization_config");
  if (quantization == config.end() || !quantization->is_object()) return;
  const Json method = quantization->value("quant_method", Json("bitsandbytes"));
  const std::string name = method.is_string() ? method.get<std::string>() : "an unknown method";
  const Json type = config.value("model_type", Json());
  if (type.is_string() && families().contains(type.get<std::string>())) {
    const char* reads = families().find(type.get<std::string>()).dequantizes;
    if (reads && name == reads) return;
  }
  const Json eight = quantization->value("load_in_8bit", Json(false));
  check<ConfigError>(name == "bitsandbytes" && eight != true, where, ": weights quantized by ",
                     name == "bitsandbytes" ? "bitsandbytes in 8 bits" : name,
                     " are not read; use the original model, which --storage or model.storage "
                     "keeps in int8 or nf4 (bitsandbytes' nf4 files are read)");
}

void check_quantization(const TensorMap& tensors, const std::string& where) {
  for (const auto& [name, view] : tensors)
    check<ConfigError>(
        !name.ends_with(".qweight"), where, ": weights quantized by ",
        tensors.contains(name.substr(0, name.rfind('.')) + ".g_idx") ? "GPTQ" : "GPTQ or AWQ",
        " (`", name, "`) are not read; use the original model, which --storage or ",
        "model.storage keeps in int8 or nf4");
}

}  // namespace temper::models
