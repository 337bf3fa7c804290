// How a trained model ranks pairs: a reward model by its scalars, a language model by the mean
// log-probability of each completion.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/preference/sides.h"

namespace temper::preference {

struct PairScore {
  double chosen = 0, rejected = 0;
};

class PairScorer {
 public:
  virtual ~PairScorer() = default;
  // In the rows' order; each has both sides. No number depends on what is scored along with it.
  virtual std::vector<PairScore> score(std::span<const PreferenceRow> rows) = 0;
};

std::unique_ptr<PairScorer> make_pair_scorer(std::unique_ptr<models::ScalarModel> model);
std::unique_ptr<PairScorer> make_pair_scorer(std::unique_ptr<models::CausalLM> model);

// How rows of text, messages and ids are read for the model of this directory: as training reads
// them, with the chat template of its adapter (a directory, or empty) where that has its own;
// nothing is truncated. `render` has the clock for templates that write the date.
data::PreferenceFormat pair_format(const std::string& directory, const std::string& adapter,
                                   const jinja::RenderOptions& render = {});

}  // namespace temper::preference
