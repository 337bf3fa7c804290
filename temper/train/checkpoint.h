// Checkpoints of a run: everything needed to go on to the same bits as if nothing had happened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/train/optimizer.h"

namespace temper::train {

// OUTPUT_DIR/checkpoints/step-N. A checkpoint is written under another name and renamed when it is
// whole, so that a run that is killed at any moment leaves the old ones.
class Checkpoints {
 public:
  Checkpoints(std::string output_dir, int64_t keep);

  // Afterwards those of later steps, which another run left here, are gone, and of the others all
  // but the last `keep`.
  void save(int64_t step, const Optimizer& optimizer, const Json& state) const;
  // Adds `"complete": true` to the state of a step that was saved.
  void mark_complete(int64_t step) const;
  // Directories of the checkpoints, newest first.
  std::vector<std::string> all() const;
  // Sets parameters and moments, and gives back the state: an object with a whole number `step` of
  // at least 0, and `complete`, if it has it, true or false. Throws DataError.
  static Json load(const std::string& directory, Optimizer& optimizer);

  // final/ is written the same way: made by `write` under another name, then renamed over the old
  // one.
  template <class Write>
  void write_final(Write write) const {
    const std::string temporary = begin("final");
    write(temporary);
    commit(temporary, output_dir_ + "/final");
  }

 private:
  std::string begin(const std::string& name) const;
  void commit(const std::string& temporary, const std::string& path) const;
  std::string output_dir_;
  int64_t keep_;
};

}  // namespace temper::train
