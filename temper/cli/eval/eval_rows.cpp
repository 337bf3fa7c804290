#include "temper/cli/eval/eval_rows.h"

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/base/stopped.h"
#include "temper/cli/eval/eval_outcome.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/dist/group.h"
#include "temper/metrics/format.h"
#include "temper/metrics/pass_rate.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/preference/pair_scores.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {
namespace {

constexpr size_t kRowsAtOnce = 256;

std::unique_ptr<preference::PairScorer> scorer_of(const ModelFlags& flags, bool scalar) {
  use_device(flags);
  if (!scalar) return preference::make_pair_scorer(load(flags));
  auto model = models::load_scalar_model(flags.model, flags.kept());
  if (!flags.adapter.empty()) {
    warn_of_mismatch(flags, flags.adapter);
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

// The part of an SFT run that an evaluation reads.
train::SftConfig config_of(const ModelFlags& model, const InputFlags& input,
                           const PerplexityFlags& flags) {
  check<ConfigError>(input.input != "-",
                     "--input -: rows of --perplexity are read from a file, a directory or a glob");
  train::SftConfig config;
  config.model.path = model.model;
  config.data.eval.emplace_back().path = input.input;
  config.data.columns = input.columns;
  config.data.prompts_as = input.prompts_as;
  config.data.max_length = flags.max_length;
  config.train.eval_samples = 0;
  config.data.train_on = flags.train_on;
  return config;
}

struct NoMessages : train::Messages {
  void warn_once(const std::string&, const std::string&) override {}
  void note(const std::string&) override {}
};

// Reading a row again costs little beside its forward pass.
int64_t count_cut(const train::SftEvaluation::Read& read, const data::RowSet& rows) {
  data::LoaderState state;
  for (int64_t r = 0; r < rows.size(); ++r) read({&rows, r}, state);
  return state.truncated;
}

}  // namespace

int rank_pairs(const ModelFlags& flags, const InputFlags& input, bool json) {
  data::PreferenceFormat format =
      preference::pair_format(flags.model, flags.adapter, render_options(flags.template_date));
  format.prompts_as = input.prompts_as;
  format.images = image_format(flags.model, format.tokenizer.get());
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
    format.directory = rows.directory();
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

int print_perplexity(const ModelFlags& model, const InputFlags& input, const PerplexityFlags& flags,
                     bool json) {
  const train::SftConfig config = config_of(model, input, flags);
  train::Policy policy;
  policy.tokenizer = find_tokenizer(model.model);
  if (policy.tokenizer) policy.chat = ChatTemplates(model).of(0);
  policy.model = load(model);
  const std::shared_ptr<dist::Group> alone = dist::Group::from_environment();
  train::SftEvaluation evaluation(
      config, train::sft_rows(config, train::sft_format(config, policy)), policy.tokenizer, *alone);
  const int64_t cut = count_cut(evaluation.reader(), evaluation.set(0));
  if (cut > 0)
    std::cerr << "warning: " << cut << " rows are longer than --max-length " << flags.max_length
              << " tokens and are cut" << std::endl;
  catch_interrupts();
  MetricsRow row;
  NoMessages silent;
  check<Stopped>(evaluation.run(*policy.model, row, interrupted, silent), "stopped");
  const auto number = [&](const char* name) { return row.number(name); };
  check<DataError>(number("eval/loss").has_value(), input.input,
                   ": no row has a token to predict (--train-on says which count)");
  const double nll = *number("eval/loss");
  check(std::isfinite(nll), model.model,
        ": the model's log-probabilities are not finite: its weights hold NaN or infinity");
  const int64_t tokens = static_cast<int64_t>(*number("eval/supervised_tokens")),
                rows = static_cast<int64_t>(*number("eval/rows"));
  if (json)
    std::cout << Json{{"rows", rows},
                      {"tokens", tokens},
                      {"nll", nll},
                      {"perplexity", exact::exp(nll)},
                      {"truncated_rows", cut}}
                     .dump()
              << "\n";
  else
    std::cout << "rows        " << rows << "\ntokens      " << tokens << "\nmean NLL    "
              << format_brief(nll) << "\nperplexity  " << format_brief(exact::exp(nll)) << "\n";
  return 0;
}

}  // namespace temper::cli
