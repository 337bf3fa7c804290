#include "temper/generate/score.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/progress.h"
#include "temper/cli/work.h"
#include "temper/data/jsonl.h"

namespace temper::cli {
namespace {

generate::ScoreRequest read_request(const Json& row, const Tokenizer* tokenizer, int64_t vocabulary,
                                    const std::string& where) {
  if (row.contains("tokens")) return {token_field(row, "tokens", vocabulary, where), 1};
  std::vector<int32_t> prompt, completion;
  if (row.contains("prompt_tokens")) {
    prompt = token_field(row, "prompt_tokens", vocabulary, where);
    completion = token_field(row, "completion_tokens", vocabulary, where);
  } else {
    check<DataError>(row.contains("prompt") && row["prompt"].is_string() &&
                         row.contains("completion") && row["completion"].is_string(),
                     where,
                     ": expected `tokens`, `prompt_tokens` and `completion_tokens`, or `prompt` "
                     "and `completion` as text");
    check<DataError>(
        tokenizer != nullptr, where,
        ": text needs a tokenizer, and the model directory has no tokenizer.json; give ids");
    prompt = tokenizer->encode(row["prompt"].get<std::string>());
    completion = tokenizer->encode(row["completion"].get<std::string>());
  }
  check<DataError>(!prompt.empty(), where,
                   ": the prompt has no tokens; a completion is scored after something");
  const size_t first = prompt.size();
  prompt.insert(prompt.end(), completion.begin(), completion.end());
  return {std::move(prompt), first};
}

}  // namespace

int run_score(const Arguments& arguments) {
  CLI::App app(
      "Log-probabilities of given tokens.\nexample: temper score --model DIR --input rows.jsonl "
      "--output scores.jsonl",
      "score");
  ModelFlags flags;
  std::string input, output;
  int64_t top = 0, max_batch = 64;
  double temperature = 1;
  flags.add_to(app);
  app.add_option("--input", input,
                 "rows: tokens, or prompt_tokens and completion_tokens, or prompt and completion")
      ->required();
  app.add_option("--output", output, "where the results go, in input order")->required();
  app.add_option("--top-logprobs", top, "also the K likeliest next tokens after the row")
      ->check(non_negative());
  app.add_option("--temperature", temperature, "logits are divided by it")->check(above_zero());
  app.add_option("--max-batch", max_batch, "rows in one pass")->check(at_least_one());
  if (!parse_flags(app, arguments)) return 0;

  data::RowReader rows(input);
  const auto model = load(flags);
  const auto tokenizer = find_tokenizer(flags.model);
  OutputFile out(output);
  catch_interrupts();
  Progress progress("scored", 0);
  std::vector<generate::ScoreRequest> batch;
  int64_t index = 0, tokens = 0;
  const auto flush = [&] {
    const auto results = generate::score(*model, batch, temperature, top);
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::vector<int32_t> scored(
          batch[i].tokens.begin() +
              static_cast<ptrdiff_t>(std::min(batch[i].first_scored, batch[i].tokens.size())),
          batch[i].tokens.end());
      std::string line = temper::str("{\"index\":", index++, ",\"tokens\":", json_list(scored),
                                     ",\"logprobs\":", json_list(results[i].logprobs));
      if (top > 0) {
        line += ",\"next_top\":[";
        for (size_t k = 0; k < results[i].next_top.size(); ++k)
          line += temper::str(k ? "," : "", "[", results[i].next_top[k].first, ",",
                              float_to_json(results[i].next_top[k].second), "]");
        line += "]";
      }
      out.line(line + "}");
    }
    progress.advance(static_cast<int64_t>(batch.size()), tokens);
    batch.clear();
    tokens = 0;
    if (interrupted()) throw RunError(out.stop());
  };
  Json row;
  while (rows.next(row)) {
    batch.push_back(read_request(row, tokenizer.get(), model->vocab_size, rows.where()));
    check<DataError>(!batch.back().tokens.empty(), rows.where(), ": no tokens");
    tokens += static_cast<int64_t>(batch.back().tokens.size());
    if (static_cast<int64_t>(batch.size()) >= max_batch || tokens >= 8192) flush();
  }
  if (!batch.empty()) flush();
  out.finish();
  return 0;
}

}  // namespace temper::cli
