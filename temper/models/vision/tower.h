// Vision towers: an image's pixels in, the rows out that a language model reads in place of its
// placeholder's tokens. A family of models that read images is one file here, which registers a
// VisionFamily at its end. What uses a tower is an Encoder (encoder.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/base/registry.h"
#include "temper/io/mapped_files.h"
#include "temper/models/files/hf_config.h"
#include "temper/nn/module.h"

namespace temper::models {

// One image as the family's ImageProcessor cuts it.
struct ImagePixels {
  // float32 [patches, numbers of a patch], of all tiles one after another; a patch is [channels,
  // frames, p, p], of LFM2-VL and Gemma 4 [p, p, channels].
  at::Tensor values;
  int64_t grid_rows = 0, grid_columns = 0;  // of patches: Qwen (by merged cell), Gemma 4
  // Each tile's rows and columns of patches, which LFM2-VL reads.
  std::vector<std::array<int64_t, 2>> tiles = {};
};

struct ImageFeatures {
  at::Tensor rows;  // [tokens, hidden_size of the language model], float32
  // As in ExternalRows (ops/forest.h).
  at::Tensor deep;
  int64_t grid_rows = 0, grid_columns = 0;
  bool open = false;
};

struct VisionFamily;

// The module that a tower's own names stand behind in a whole model.
inline constexpr const char* kTowerParent = "model";

class Tower : public nn::Module {
 public:
  // Differentiable in the tower's parameters. Each image is computed alone: its bits depend on
  // nothing else. `adapter`: nn::Context::adapter. Throws DataError for pixels of another form.
  virtual ImageFeatures forward(const ImagePixels& image, int adapter) = 0;
  ImageFeatures forward(const ImagePixels& image) { return forward(image, 0); }

  // Whether a module or parameter, by its name in the tower, belongs to what maps features to the
  // language model, deep ones included.
  bool is_projector(const std::string& name) const;

  // Shapes in the files of tensors that have another one here: a convolution over patches is a
  // linear layer.
  std::map<std::string, std::vector<int64_t>> shapes_in_files;
  MappedFiles files;                              // what its weights are mapped from
  const VisionFamily* family = nullptr;           // null: it was made by hand
  std::function<std::unique_ptr<Tower>()> again;  // makes another one, without values
  bool projector_alone = false;  // adapters that are named are of the projector's layers alone
};

// config.json of a model that reads images.
struct VisionConfig {
  HfConfig whole, vision, text;  // and its sections
  int64_t text_hidden_size;
};

struct VisionFamily {
  const char* model_type;  // of the whole config.json
  const char* help;        // the models, a colon, their tower
  // The tower's tensors are those that begin so, behind an optional `model.`. Its own names are
  // these; a `vision_model.` after the first dot, which older files have, is left out.
  std::vector<std::string> prefixes;
  // Of them, and of parts of them, what is the projector's.
  std::vector<std::string> projector;
  std::unique_ptr<Tower> (*make)(const VisionConfig& config);
};
// By model_type.
const Registry<VisionFamily>& vision_families();
struct RegisteredVisionFamily {
  explicit RegisteredVisionFamily(const VisionFamily& family);
};

}  // namespace temper::models
