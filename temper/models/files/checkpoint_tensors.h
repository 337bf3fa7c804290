// Reads the tensors of a model directory into a model's parameters.
#pragma once

#include <functional>
#include <string>

#include "temper/io/weight_files.h"
#include "temper/models/files/hf_config.h"
#include "temper/nn/module.h"

namespace temper::models {

struct CheckpointTensors {
  std::string directory;
  HfConfig config;
  TensorMap tensors;  // by the model's own names, mapped
  MappedFiles files;
};

// Throws ConfigError, DataError.
CheckpointTensors open_checkpoint(const std::string& directory);

// Gives every parameter of the model its tensor: `take` removes it from the checkpoint's tensors
// and returns what is wrong with its shape, or "". The parameter `optional` may be absent, and is
// then passed to `absent`. Tensors that are missing, left over or of a wrong shape are all named in
// one ConfigError.
void match_tensors(nn::Module& model, CheckpointTensors& from, const std::string& optional,
                   const std::function<std::string(nn::Parameter&, const std::string& name)>& take,
                   const std::function<void(nn::Parameter&)>& absent);

// "[2, 3], expected [3, 2]".
std::string shape_mismatch(const std::vector<int64_t>& found, const nn::Parameter& parameter);

// Sets a parameter, of any format, from a tensor of its shape. Values that are converted are read
// from the file once, and their pages are released at once, so that peak memory never holds the
// model in both forms. Throws DataError.
void set_from_view(nn::Parameter& parameter, const TensorView& view);

// Sets a parameter from NF4 codes that bitsandbytes made. Throws DataError.
struct Nf4Tensor;
void set_from_nf4(nn::Parameter& parameter, const Nf4Tensor& tensor);

// Sets a parameter from a tensor in MXFP4 (mxfp4.h), as it lies. Throws DataError.
void set_from_mxfp4(nn::Parameter& parameter, const TensorView& view);
// Throws ConfigError where such tensors are to stay as they are, and there are none.
struct Storage;
void check_mxfp4(const CheckpointTensors& from, const Storage& storage);

// The head of a reward model or critic.
inline constexpr const char* kScoreWeight = "score.weight";
// Throws ConfigError where it has another number of labels than one.
void check_one_label(const CheckpointTensors& checkpoint);

}  // namespace temper::models
