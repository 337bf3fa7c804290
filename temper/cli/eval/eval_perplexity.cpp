#include "temper/cli/eval/eval_perplexity.h"

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/base/stopped.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/data/read/source_format.h"
#include "temper/dist/group.h"
#include "temper/metrics/format.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {
namespace {

// The part of an SFT run that an evaluation reads.
train::SftConfig config_of(const ModelFlags& model, const InputFlags& input,
                           const PerplexityFlags& flags) {
  check<ConfigError>(input.input != "-",
                     "--input -: rows of --perplexity are read from a file, a directory or a glob");
  train::SftConfig config;
  config.model.path = model.model;
  config.data.eval.emplace_back().path = input.input;
  config.data.columns = input.renamed();
  if (input.prompts_as_user) config.data.prompts_as = data::PromptsAs::kUser;
  config.data.max_length = flags.max_length;
  config.train.eval_samples = 0;
  for (const auto& [name, value] : {std::pair<const char*, TrainOn>{"all", TrainOn::kAll},
                                    {"completion", TrainOn::kCompletion},
                                    {"assistant", TrainOn::kAssistant}})
    if (flags.train_on == name) config.data.train_on = value;
  return config;
}

struct NoMessages : train::Messages {
  void warn_once(const std::string&, const std::string&) override {}
  void note(const std::string&) override {}
};

// Reading a row again costs little beside its forward pass.
int64_t count_cut(const data::SftFormat& format, const data::RowSet& rows) {
  int64_t cut = 0;
  for (int64_t r = 0; r < rows.size(); ++r) {
    bool truncated = false;
    data::read_sft_row(of_source(format, rows), rows.row(r), rows.where(r), &truncated);
    cut += truncated;
  }
  return cut;
}

}  // namespace

int print_perplexity(const ModelFlags& model, const InputFlags& input, const PerplexityFlags& flags,
                     bool json) {
  const train::SftConfig config = config_of(model, input, flags);
  train::Policy policy;
  policy.tokenizer = find_tokenizer(model.model);
  if (policy.tokenizer) policy.chat = ChatTemplates(model).of(0);
  policy.model = load(model);
  const data::SftFormat format = train::sft_format(config, policy);
  const std::shared_ptr<dist::Group> alone = dist::Group::from_environment();
  train::SftEvaluation evaluation(config, format, *alone);
  const int64_t cut = count_cut(format, evaluation.set(0));
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
