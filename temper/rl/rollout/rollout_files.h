// The rollout files of a run: OUTPUT_DIR/rollouts/step-N.jsonl, or step-N.jsonl.zst. Images that
// have no file are kept beside them, as images/DIGEST.png (.jpeg, .webp), for as long as a file
// there names them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "temper/rl/episode.h"

namespace temper::rl {

// Which rollout batches leave a file (`rl.save_rollouts`): all, none, every K-th (batches K, 2K,
// ...), or the last K.
struct RolloutRetention {
  enum class Kind { kAll, kNone, kEvery, kLast };
  Kind kind = Kind::kAll;
  int64_t count = 0;  // K

  // Parses "all", "none", "every 10" or "last 3"; nullopt: it is none of these.
  static std::optional<RolloutRetention> parse(const std::string& text);
  // How many files there are after `batches` batches.
  int64_t files_of(int64_t batches) const;
  // True where the batch of this number, from 1, is written.
  bool writes(int64_t batch) const;
};

// The rollout files in OUTPUT_DIR/rollouts: one path for each step; empty: there are none.
std::map<int64_t, std::string> rollout_files(const std::string& output_dir);

class RolloutFiles {
 public:
  RolloutFiles(std::string output_dir, RolloutRetention retention, bool compress);

  // Writes the batch of this number, from 1, whose first update is step `step`, and removes the
  // file that it replaces under `last K`, with the images that no file names any more. Returns its
  // path; "": none is written. Throws RunError.
  std::string write(int64_t batch, int64_t step, const std::vector<EpisodeGroup>& groups);
  // Removes files of later steps: a resumed run writes them again.
  void remove_after(int64_t step) const;

 private:
  std::string keep(const Image& image) const;
  void remove_unnamed_images();

  const std::string directory_;
  const RolloutRetention retention_;
  const bool compress_;
  // Digests of images by the path of the file that names them: of files that were written or read.
  std::map<std::string, std::set<std::string>> named_;
};

}  // namespace temper::rl
