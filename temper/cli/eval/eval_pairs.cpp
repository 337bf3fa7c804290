#include "temper/cli/eval/eval_pairs.h"

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/eval/eval_outcome.h"
#include "temper/cli/parts/work.h"
#include "temper/metrics/format.h"
#include "temper/metrics/pass_rate.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/preference/pair_scores.h"

namespace temper::cli {
namespace {

constexpr size_t kRowsAtOnce = 256;

std::unique_ptr<preference::PairScorer> scorer_of(const ModelFlags& flags, bool scalar) {
  use_device(flags);
  if (!scalar) return preference::make_pair_scorer(load(flags));
  auto model = models::load_scalar_model(flags.model, flags.kept());
  if (!flags.adapter.empty()) {
    warn_of_other_base(flags.model, flags.adapter);
    warn_of_other_format(flags.adapter, flags.storage);
    models::load_adapter(*model, flags.adapter);
  }
  return preference::make_pair_scorer(std::move(model));
}

std::string pair_line(const char* name, const Interval& i) {
  return temper::str(
      name, format_brief(i.mean),
      i.is_known() ? temper::str("  [", format_brief(i.low), ", ", format_brief(i.high), "]\n")
                   : "  [of one pair: no interval]\n");
}

}  // namespace

int rank_pairs(const ModelFlags& flags, const InputFlags& input, bool json) {
  data::PreferenceFormat format =
      preference::pair_format(flags.model, flags.adapter, render_options(flags.template_date));
  if (input.prompts_as_user) format.prompts_as = data::PromptsAs::kUser;
  const bool scalar = models::has_scalar_head(flags.model, flags.adapter);
  const auto scorer = scorer_of(flags, scalar);
  InputRows rows(input);
  std::vector<double> right, margin, chosen, rejected;
  std::vector<data::PreferenceRow> waiting;
  const auto flush = [&] {
    for (const preference::PairScore& score : scorer->score(waiting)) {
      check(std::isfinite(score.chosen) && std::isfinite(score.rejected), flags.model,
            ": the model's scores are not finite: its weights hold NaN or infinity");
      right.push_back(score.chosen > score.rejected);
      margin.push_back(score.chosen - score.rejected);
      chosen.push_back(score.chosen);
      rejected.push_back(score.rejected);
    }
    waiting.clear();
  };
  for (Json row; rows.next(row);) {
    bool truncated = false;
    waiting.push_back(*data::read_preference_row(format, row, rows.where(), &truncated));
    if (waiting.size() == kRowsAtOnce) flush();
  }
  flush();
  check<DataError>(!right.empty(), input.input, ": no rows");
  const Interval accuracy = confidence_interval(right), mean_margin = confidence_interval(margin),
                 mean_chosen = confidence_interval(chosen),
                 mean_rejected = confidence_interval(rejected);
  if (json)
    std::cout << Json{{"pairs", right.size()},
                      {"score", scalar ? "reward" : "mean_logprob"},
                      {"accuracy", interval(accuracy)},
                      {"margin", interval(mean_margin)},
                      {"chosen", interval(mean_chosen)},
                      {"rejected", interval(mean_rejected)}}
                     .dump()
              << "\n";
  else
    std::cout << right.size() << " pairs, by "
              << (scalar ? "the reward model's scalar" : "mean log-probability")
              << "; 95 % intervals\n"
              << pair_line("accuracy  ", accuracy) << pair_line("margin    ", mean_margin)
              << pair_line("chosen    ", mean_chosen) << pair_line("rejected  ", mean_rejected);
  return 0;
}

}  // namespace temper::cli
