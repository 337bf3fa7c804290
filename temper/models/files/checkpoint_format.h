// Ways in which weight files hold matrices in few bits, each a file that ends with its
// registration. Everybody else sees views of such matrices' values, and where codes can be kept as
// they lie the CodedMatrix behind them.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/io/safetensors.h"
#include "temper/ops/weight.h"

namespace temper::models {

class HfConfig;

// Both functions read the file when they are called, give back its pages, and throw ConfigError or
// DataError that names the directory and the tensor.
class CodedMatrix {
 public:
  virtual ~CodedMatrix() = default;
  // The format that keeps the codes.
  virtual ops::WeightFormat format() const = 0;
  virtual std::shared_ptr<const ops::QuantizedWeight> codes(at::Device device) const = 0;
  // [out, in], of the dtype of its view.
  virtual TensorView values() const = 0;
};
// The view of its values.
TensorView coded_view(DType dtype, const std::vector<int64_t>& shape,
                      std::shared_ptr<const CodedMatrix> matrix);
// What coded_view() was given; null: another view.
const CodedMatrix* coded_matrix(const TensorView& view);
// The formats in which a checkpoint's matrices can be kept as they lie.
std::set<ops::WeightFormat> held_formats(const TensorMap& tensors);

struct CheckpointFormat {
  // Makes a view of each matrix of what the tensors hold of it, codes and scales. What does not fit
  // together stays, so that an error names it; a directory without any is left alone. Throws
  // ConfigError and DataError that name the directory.
  void (*open)(TensorMap& tensors, const HfConfig& config, const std::string& directory);
  // What of a quantization_config is not read, as in "bitsandbytes in 8 bits"; "": all of it is.
  // Null: all of any.
  std::string (*unread)(const Json& quantization) = nullptr;
  // Only families that name it read it (Family::checkpoint_format).
  bool of_families = false;
};
// By the quant_method of quantization_config.
Registry<CheckpointFormat>& checkpoint_formats();

// Refuses a config.json whose quantization_config is none that is read, naming its method. Throws
// ConfigError.
void check_quantization(const Json& config, const std::string& where);
// Opens all formats that the tensors of a directory, by their names in files, are in. Throws
// ConfigError, for those that are known by their names and not read, too; DataError.
void open_formats(TensorMap& tensors, const HfConfig& config, const std::string& directory);

}  // namespace temper::models
