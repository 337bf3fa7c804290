// The formats in which weight files hold quantized matrices, one file per format, each registered
// at the file's end. All other code sees such a matrix as a view of its dequantized values and,
// where its codes can be kept without converting them, the CodedMatrix behind the view.
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

// A quantized matrix in a weight file. unpacked(), codes() and values() read the file when they are
// called and release its memory-mapped pages afterwards. They throw ConfigError or DataError naming
// the directory and the tensor.
class CodedMatrix {
 public:
  virtual ~CodedMatrix() = default;
  // The storage format that can hold the codes as they are.
  virtual ops::WeightFormat format() const = 0;
  virtual ops::Codes unpacked() const = 0;
  std::shared_ptr<const ops::QuantizedWeight> codes(at::Device device) const {
    return ops::from_codes(unpacked(), device);
  }
  // The dequantized values [out, in], of the dtype given to coded_view().
  virtual TensorView values() const = 0;
};
// A view of the matrix's dequantized values.
TensorView coded_view(DType dtype, const std::vector<int64_t>& shape,
                      std::shared_ptr<const CodedMatrix> matrix);
// The matrix behind a view that coded_view() made; null for any other view.
const CodedMatrix* coded_matrix(const TensorView& view);
// The storage formats in which matrices of a checkpoint can be kept without converting them.
std::set<ops::WeightFormat> held_formats(const TensorMap& tensors);

struct CheckpointFormat {
  // Replaces the tensors that make up a quantized matrix, its codes and scales, by one view of the
  // matrix. Tensors that do not fit together stay, so that a later error names them; a directory
  // without such matrices is left unchanged. Throws ConfigError and DataError naming the directory.
  void (*open)(TensorMap& tensors, const HfConfig& config, const std::string& directory);
  // Returns what a quantization_config asks for that is not supported, as in "bitsandbytes in 8
  // bits"; "" if all of it is supported. Null: every config is supported.
  std::string (*unread)(const Json& quantization) = nullptr;
  // Read only for the families that name it (Family::checkpoint_format).
  bool of_families = false;
};
// The registry, by the quant_method of quantization_config.
Registry<CheckpointFormat>& checkpoint_formats();

// Throws ConfigError naming the method if the quantization_config of config.json is not supported.
void check_quantization(const Json& config, const std::string& where);
// Opens every format that the tensors of a directory use; tensors have the names of the files.
// Throws DataError, and ConfigError, also for formats that are recognized by tensor names but not
// supported.
void open_formats(TensorMap& tensors, const HfConfig& config, const std::string& directory);

}  // namespace temper::models
