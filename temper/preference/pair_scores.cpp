#include "temper/preference/pair_scores.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/models/family.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"

namespace temper::preference {
namespace {

// most tokens of a forward pass; a longer pair has a pass of its own
constexpr int64_t kMostTokens = 4096;

template <class Model>
class Scorer : public PairScorer {
 public:
  explicit Scorer(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  std::vector<PairScore> score(std::span<const PreferenceRow> rows) override {
    std::vector<train::PackUnit> units;
    for (size_t i = 0; i < rows.size(); ++i)
      units.push_back(unit_of(rows[i], static_cast<int64_t>(i),
                              kScalar ? Targets::kScores : Targets::kCompletions));
    const at::NoGradGuard no_grad;
    std::vector<PairScore> out(rows.size());
    for (const train::ForwardPass& pass : train::plan_passes(units, kMostTokens)) {
      const at::Tensor values = values_of(pass);
      for (const Side side : {Side::kChosen, Side::kRejected}) add(pass, values, side, out);
    }
    return out;
  }

 private:
  at::Tensor values_of(const train::ForwardPass& pass) {
    if constexpr (kScalar)
      return train::scalars(*model_, pass, {});
    else
      return train::token_logp(*model_, pass, {}).logp;
  }

  void add(const train::ForwardPass& pass, const at::Tensor& values, Side side,
           std::vector<PairScore>& out) {
    std::vector<int64_t> units;
    at::Tensor score_S;
    if constexpr (kScalar) {
      const SideScores scores = side_scores(pass, side);
      score_S = values.index_select(0, scores.score_S).to(at::kDouble);
      units = scores.unit_S;
    } else {
      const SideTargets targets = side_targets(pass, side);
      score_S = targets.sum(values) / targets.count_S;
      units = targets.unit_S;
    }
    for (size_t s = 0; s < units.size(); ++s) {
      PairScore& score = out[static_cast<size_t>(units[s])];
      (side == Side::kChosen ? score.chosen : score.rejected) = score_S.const_data_ptr<double>()[s];
    }
  }

  static constexpr bool kScalar = std::is_same_v<Model, models::ScalarModel>;
  std::unique_ptr<Model> model_;
};

}  // namespace

std::unique_ptr<PairScorer> make_pair_scorer(std::unique_ptr<models::ScalarModel> model) {
  return std::make_unique<Scorer<models::ScalarModel>>(std::move(model));
}
std::unique_ptr<PairScorer> make_pair_scorer(std::unique_ptr<models::CausalLM> model) {
  return std::make_unique<Scorer<models::CausalLM>>(std::move(model));
}

data::PreferenceFormat pair_format(const std::string& directory, const std::string& adapter,
                                   const jinja::RenderOptions& render) {
  const models::HfConfig config = models::HfConfig::load(directory);
  data::PreferenceFormat f;
  f.tokenizer = Tokenizer::load_directory(directory);
  ChatOptions options;
  options.adapter = adapter;
  options.render = render;
  if (f.tokenizer) f.chat = ChatTemplate::find(directory, options);
  f.train_on = TrainOn::kCompletion;
  f.vocabulary = models::vocabulary_of(directory);
  f.max_length = INT64_MAX;
  f.set_ends(directory, models::eos_ids(directory, config));
  return f;
}

}  // namespace temper::preference
