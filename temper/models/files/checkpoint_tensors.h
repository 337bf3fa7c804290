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

// Whether the parameter keeps codes of the view as they lie (CodedMatrix).
struct Storage;
bool keeps_codes(const nn::Parameter& parameter, const TensorView& view, const Storage& storage);
// Sets a parameter, of any format, from a tensor of its shape, or keep: from its codes. Values that
// are converted are read from the file once, and their pages are released at once, so that peak
// memory never holds the model in both forms. Throws DataError that begins with `place`.
void set_from_view(nn::Parameter& parameter, const TensorView& view, bool keep,
                   const std::string& place);
// Throws ConfigError where storage is of what files hold (ops::FormatRow::of_files), and they do
// not.
void check_held(const CheckpointTensors& from, const Storage& storage);

// The head of a reward model or critic.
inline constexpr const char* kScoreWeight = "score.weight";
// Throws ConfigError where it has another number of labels than one.
void check_one_label(const CheckpointTensors& checkpoint);

}  // namespace temper::models
