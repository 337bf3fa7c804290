// Quantized weights of a model directory, kept as files beside the user's caches, so that the next
// start maps them instead of quantizing again:
//     $TEMPER_CACHE_DIR, or temper/ in $XDG_CACHE_HOME or ~/.cache; TEMPER_CACHE_DIR="" keeps none.
// A file is named by a hash of the weight files' paths, the code and this machine's layout. It
// holds what those files were, to their times of change that nobody can set, and a hash of all that
// it holds, and is used only where both agree; the next model at the same place takes its place.
// Files of models that are gone are removed when another is written.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "temper/io/mapped_files.h"
#include "temper/ops/weight.h"

namespace temper::models {

using QuantizedWeights = std::map<std::string, std::shared_ptr<const ops::QuantizedWeight>>;

class WeightCache {
 public:
  // The cache of the model whose weights lie in `files`, quantized in `format`.
  WeightCache(const MappedFiles& files, ops::WeightFormat format);

  // The weights by their parameters' names; none where there is no such file, or it is damaged.
  QuantizedWeights read() const;
  // Writes them, whole or not at all. A cache that cannot be written is none: nothing is thrown.
  void write(const QuantizedWeights& weights) const;

  // Where the files of all models lie, "" where none are kept, and how many bytes they take.
  static std::string directory();
  static int64_t total_bytes();

 private:
  std::string source_, path_;  // path_ "": none is kept
  ops::WeightFormat format_;
};

}  // namespace temper::models
