#include "temper/models/files/checkpoint_format.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/family.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {
namespace {

constexpr const char* kUseOriginal =
    " are not read; use the original model, which --storage or model.storage keeps in int8 or nf4";

// What makes the values of a coded view.
struct MakeValues {
  std::shared_ptr<const CodedMatrix> matrix;
  TensorView operator()() const { return matrix->values(); }
};

bool family_reads(const std::string& model_type, const Registry<CheckpointFormat>::Entry& format) {
  if (!format.value.of_families) return true;
  if (!families().contains(model_type)) return false;
  const char* own = families().find(model_type).checkpoint_format;
  return own && format.name == own;
}

// Codes that no format has read: config.json does not name their method.
void check_names(const TensorMap& tensors, const std::string& where) {
  for (const auto& [name, view] : tensors)
    check<ConfigError>(!name.ends_with(".qweight"), where, ": `", name,
                       "` holds codes of GPTQ or AWQ, but config.json has no `quantization_config` "
                       "with the method and its bits (quantize_config.json or "
                       "quant_config.json beside it may hold it)");
}

std::string read_methods() {
  std::string names;
  for (const std::string& name : checkpoint_formats().names())
    names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

TensorView coded_view(DType dtype, const std::vector<int64_t>& shape,
                      std::shared_ptr<const CodedMatrix> matrix) {
  return {.dtype = dtype,
          .shape = shape,
          .num_bytes = shape_bytes(shape, dtype).value_or(0),
          .make = MakeValues{std::move(matrix)}};
}

const CodedMatrix* coded_matrix(const TensorView& view) {
  const MakeValues* made = view.make.target<MakeValues>();
  return made ? made->matrix.get() : nullptr;
}

std::set<ops::WeightFormat> held_formats(const TensorMap& tensors) {
  std::set<ops::WeightFormat> formats;
  for (const auto& [name, view] : tensors)
    if (const CodedMatrix* matrix = coded_matrix(view)) formats.insert(matrix->format());
  return formats;
}

Registry<CheckpointFormat>& checkpoint_formats() {
  static Registry<CheckpointFormat> formats("format of weight files");
  return formats;
}

void check_quantization(const Json& config, const std::string& where) {
  const auto quantization = config.find("quantization_config");
  if (quantization == config.end() || !quantization->is_object()) return;
  const Json method = quantization->value("quant_method", Json("bitsandbytes"));
  const Json type = config.value("model_type", Json());
  const std::string family = type.is_string() ? type.get<std::string>() : "";
  std::string unread = method.is_string() ? method.get<std::string>() : "an unknown method";
  bool read = false;
  for (const auto& format : checkpoint_formats().list()) {
    if (method != format.name || !family_reads(family, format)) continue;
    const std::string part = format.value.unread ? format.value.unread(*quantization) : "";
    read = part.empty();
    if (!read) unread = part;
  }
  check<ConfigError>(read, where, ": weights quantized by ", unread, kUseOriginal,
                     " (methods that are read: ", read_methods(), ")");
}

void open_formats(TensorMap& tensors, const HfConfig& config, const std::string& directory) {
  for (const auto& format : checkpoint_formats().list())
    if (family_reads(config.model_type(), format)) format.value.open(tensors, config, directory);
  check_names(tensors, directory);
}

}  // namespace temper::models
