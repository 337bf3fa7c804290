// The rows of a run, read once and measured, and the forward passes that its first steps make of
// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/check/memory/run_shape.h"
#include "temper/data/loader.h"
#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/data/rows/row_survey.h"

namespace temper::checks {

struct RowSize {
  int64_t tokens = 0;   // through the model; 0: the row is left out
  int64_t targets = 0;  // that a loss reads
  int64_t prompt = 0;   // that a completion is sampled after; 0: none is
  uint64_t key = 0;     // a hash of what is trained, or of the prompt: equal rows have one
  // A hash of the tokens before the first trained one; 0: there are fewer than two, or none is
  // trained.
  uint64_t asked = 0;
  int32_t first = -1, second = -1;  // tokens; -1: there is none
  bool untrained = false;           // as LoaderState counts it
};

// Hashes of rows: of their tokens and which of them are trained; of a prompt, its tokens.
uint64_t key_of(const data::SftRow& row);
uint64_t key_of(const data::PreferenceRow& row);
uint64_t key_of(const data::PromptRow& row);
// RowSize::asked; of a PromptRow 0, as its key says all.
uint64_t asked_key_of(const data::SftRow& row);
uint64_t asked_key_of(const data::PreferenceRow& row);
uint64_t asked_key_of(const data::PromptRow& row);
// Where images stand, by segment.
std::vector<const ImageSpans*> images_of(const data::SftRow& row);
std::vector<const ImageSpans*> images_of(const data::PreferenceRow& row);
std::vector<const ImageSpans*> images_of(const data::PromptRow& row);
// The tokens of a row's first segment.
const std::vector<int32_t>& first_tokens(const data::SftRow& row);
const std::vector<int32_t>& first_tokens(const data::PreferenceRow& row);
const std::vector<int32_t>& first_tokens(const data::PromptRow& row);

struct RowSizes {
  data::RowSurvey counts;
  std::vector<std::vector<RowSize>> of;                // by source and row
  std::vector<std::map<std::string, int64_t>> groups;  // by source, a group's rows; of rows in one
  int64_t images = 0, image_tokens = 0, different_images = 0;  // of rows that are not left out

  struct Location {
    size_t source;
    int64_t row;
  };
  // Pairs of equal rows: found_in() gives each row of `others` that is also here, with the first
  // such row here, in the order of `others`; repeated() gives each row here that repeats an earlier
  // one, with that one.
  std::vector<std::pair<Location, Location>> found_in(const RowSizes& others) const;
  std::vector<std::pair<Location, Location>> repeated() const;
  // As found_in(), of rows that are not equal and have the same prompt (RowSize::asked).
  std::vector<std::pair<Location, Location>> prompts_found_in(const RowSizes& others) const;

  int64_t longest() const, longest_prompt() const;
  int64_t longer_than(int64_t tokens) const;  // rows
};

// Counts images, and decodes each of a digest once. From several threads.
class ImageChecks {
 public:
  // Throws DataError where an image is broken.
  void add(const std::vector<const ImageSpans*>& images);
  void put(RowSizes& sizes) const;

 private:
  std::mutex mutex_;
  std::set<std::string> decoded_;  // digests
  int64_t images_ = 0, tokens_ = 0;
};

// Reads every row, and decodes its images. Throws what is wrong with the first wrong one. Rows
// whose size has another key before key_of is added to it are different.
template <class Row, class SizeOf>
RowSizes measure_rows(const data::RowOrder& order, typename data::Loader<Row>::Read read,
                      SizeOf size_of) {
  RowSizes sizes;
  const size_t sources = order.sources().size();
  sizes.groups.resize(sources);
  std::mutex mutex;  // guards sizes.groups
  ImageChecks images;
  for (size_t s = 0; s < sources; ++s)
    sizes.of.emplace_back(static_cast<size_t>(order.rows_of(s).size()));
  const auto source_of = [&](const data::RowSet* file) {
    size_t s = 0;
    while (&order.rows_of(s) != file) ++s;
    return s;
  };
  data::RowSurveyor surveyor(
      order,
      [&](const data::RowOrder::Drawn& drawn, data::LoaderState& state) -> std::optional<int64_t> {
        const int64_t untrained = state.untrained;
        const std::optional<Row> row = read(drawn, state);
        if (!row) return {};
        RowSize size = size_of(*row);
        size.untrained = state.untrained > untrained;
        if constexpr (requires { images_of(*row); }) images.add(images_of(*row));
        const size_t source = source_of(drawn.file);
        if constexpr (requires { row->group; }) {
          const std::lock_guard lock(mutex);
          if (!row->group.empty()) ++sizes.groups[source][row->group];
        }
        if constexpr (requires { key_of(*row); }) {
          size.key += key_of(*row);
          size.asked = asked_key_of(*row);
          const std::vector<int32_t>& tokens = first_tokens(*row);
          if (!tokens.empty()) size.first = tokens[0];
          if (tokens.size() > 1) size.second = tokens[1];
        }
        sizes.of[source][static_cast<size_t>(drawn.row)] = size;
        return size.tokens;
      },
      {.max_bytes = std::numeric_limits<int64_t>::max()});
  sizes.counts = surveyor.result();
  images.put(sizes);
  return sizes;
}

// The sizes of rows in the order in which a run draws them: at most `most`.
std::vector<RowSize> drawn_rows(const data::RowOrder& order, const RowSizes& sizes, int64_t most);

// What `rows` ranks make of steps of `batch` such units each, packed into passes of at most
// max_tokens (0: a unit a pass): the passes of the run's shape.
void plan_passes(std::span<const RowSize> units, int64_t batch, int64_t max_tokens, int64_t rows,
                 RunShape& run);

}  // namespace temper::checks
