// Rows of preferences: a prompt with two completions, the better one first, or with one completion
// and whether it is good.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/loader.h"
#include "temper/data/rows/sft_row.h"

namespace temper::data {

// The two completions of a row.
enum class Side { kChosen, kRejected };

// A row as a tree of token segments: what its sides share stands once, in segments of both, and a
// segment never holds tokens of the prompt and of a completion.
struct PreferenceRow {
  struct Segment {
    int32_t parent = -1;  // index of an earlier segment; -1: a root
    bool chosen = false, rejected = false, prompt = false;
    std::vector<int32_t> tokens, labels;  // labels of a prompt: -100
    ImageSpans images = {};               // which of the tokens stand for images
    bool of(Side side) const { return side == Side::kChosen ? chosen : rejected; }
  };
  std::vector<Segment> segments;  // depth first, each with at least one token
  std::string group;              // TextFormat::groups' name for the row; empty: none
  double margin = 0;              // by how much chosen should be better, where the row says it
  const RowSet* file = nullptr;   // where the row came from, if a Loader read it
  int64_t row = 0;

  bool has(Side side) const;
  bool paired() const { return has(Side::kChosen) && has(Side::kRejected); }
  // Trained tokens of the side's completion. A root's first label has nothing before it and is not
  // counted.
  int64_t supervised(Side side) const;
  int64_t num_tokens() const;    // of both sides, each in full with its prompt
  int64_t num_computed() const;  // what is shared once
  bool trains(int32_t token) const;
  bool sides_differ() const;
  // The prompt (that of the side), or the side's completion, as one run of tokens with labels.
  TokenPath path(Side side, bool prompt) const;
};

struct PreferenceFormat : SftFormat {
  bool unpaired = false;  // rows {prompt, completion, label} are taken, too
  // A pair that is cut to equal sides is trained on all the same: LoaderState::untrained leaves it
  // out.
  bool equal_sides_train = false;
};

// Reads {"prompt", "chosen", "rejected"} of text or messages, or {"prompt_ids", "chosen_ids",
// "rejected_ids"}; without a prompt, what chosen and rejected begin with alike is the prompt.
// `margin` is a number. Unpaired: {"prompt", "completion", "label"} or {"prompt_ids",
// "completion_ids", "label"}. A side's tokens are those that read_sft_row() makes of {"prompt",
// "completion"}. Each side is cut to max_length tokens. nullopt: a side was longer and the row is
// dropped, the cut left nothing of a completion, or it would cut an image. Throws DataError that
// begins with `where`.
std::optional<PreferenceRow> read_preference_row(const PreferenceFormat& format, Json row,
                                                 const std::string& where, bool* truncated);

Loader<PreferenceRow>::Read preference_reader(PreferenceFormat format);

}  // namespace temper::data
