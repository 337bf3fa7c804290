// A row as a run trains it, for people to look at.
#pragma once

#include <string>
#include <vector>

#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/data/rows/sft_row.h"
#include "temper/image/image_span.h"

namespace temper::checks {

// One text that goes through the model, from its first token to its last one.
struct ShownPath {
  std::string name;  // "chosen", "rejected", "turn 2"; empty: the row has one path
  std::vector<int32_t> tokens;
  std::vector<bool> trained;  // by token: a loss reads its log-probability
  ImageSpans images = {};     // whose tokens some of them are
};
struct ShownRow {
  std::string where;  // "FILE:LINE"
  std::vector<ShownPath> paths;
};

// The paths of a row; a prompt has one, of which nothing is trained.
std::vector<ShownPath> shown_paths(const data::SftRow& row);
std::vector<ShownPath> shown_paths(const data::PreferenceRow& row);
std::vector<ShownPath> shown_paths(const data::PromptRow& row);

}  // namespace temper::checks
