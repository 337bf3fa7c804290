// Completions of a few evaluation rows, to look at while a run trains: the model's present answers
// beside the rows' own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "temper/data/rows/sft_row.h"
#include "temper/image/image_span.h"
#include "temper/metrics/report/report.h"
#include "temper/models/model.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::train {

struct EvalSample {
  std::vector<int32_t> prompt, expected, completion;
  ImageSpans images = {};  // of the prompt
};

// The row's tokens before its first trained one, and those from there on. Not a sample (empty
// prompt) where the row trains its first token or none.
EvalSample eval_sample(const data::SftRow& row);

// Greedy completions of at most max_new_tokens, filled in.
void complete_samples(models::CausalLM& model, std::vector<EvalSample>& samples,
                      int64_t max_new_tokens);

// On one line, shortened, for the console.
std::string describe(const EvalSample& sample, const Tokenizer* tokenizer);

// A line of JSON each, with texts where there is a tokenizer.
std::string to_lines(const std::vector<EvalSample>& samples, const Tokenizer* tokenizer);
constexpr const char* kEvalSamplesTitle = "Samples of the last evaluation";
Report::Table to_table(const std::vector<EvalSample>& samples, const Tokenizer* tokenizer);

}  // namespace temper::train
