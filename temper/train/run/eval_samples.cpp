#include "temper/train/run/eval_samples.h"

#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/generate/engine.h"
#include "temper/models/vision/image_rows.h"

namespace temper::train {
namespace {

std::string text_of(const std::vector<int32_t>& tokens, const Tokenizer* tokenizer) {
  if (tokenizer) return tokenizer->decode(tokens);
  std::string out;
  for (const int32_t token : tokens) out += (out.empty() ? "" : " ") + std::to_string(token);
  return out;
}

// The last characters of a long text, or its first ones, in quotes.
std::string shortened(const std::string& text, bool end) {
  constexpr size_t kMost = 60;
  const size_t cut = text.size() > kMost ? text.size() - kMost : 0;
  std::string part = end ? text.substr(cut) : text.substr(0, kMost);
  while (!part.empty() && (static_cast<unsigned char>(part.front()) & 0xc0) == 0x80)
    part.erase(0, 1);  // removes the rest of a character that was cut
  if (cut > 0 && end) part.insert(0, "...");
  if (cut > 0 && !end) part += "...";
  return dump_json(Json(part));  // replaces invalid UTF-8
}

// The first path from a root: of a conversation, its beginning.
EvalSample first_turn(const data::SftRow& row) {
  EvalSample sample;
  int32_t last = -1;
  for (size_t s = 0; s < row.segments.size() && row.segments[s].parent == last; ++s) {
    const data::Segment& segment = row.segments[s];
    if (sample.expected.empty())
      append_spans(sample.images, segment.images, std::ssize(sample.prompt));
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      const bool trained = segment.labels[i] >= 0 && !(s == 0 && i == 0);
      if (!trained && !sample.expected.empty()) return sample;  // the turn has ended
      (trained ? sample.expected : sample.prompt).push_back(segment.tokens[i]);
    }
    last = static_cast<int32_t>(s);
  }
  if (sample.expected.empty()) sample.prompt.clear();
  return sample;
}

}  // namespace

EvalSample eval_sample(const data::SftRow& row) {
  EvalSample sample = first_turn(row);
  sample.images = spans_within(sample.images, 0, std::ssize(sample.prompt));
  return sample;
}

void complete_samples(models::CausalLM& model, std::vector<EvalSample>& samples,
                      int64_t max_new_tokens) {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<ExternalRows>> rows;
  for (const EvalSample& sample : samples) {
    prompts.push_back(sample.prompt);
    rows.push_back(models::external_rows(sample.images));
  }
  generate::GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = max_new_tokens;
  const auto done = [&](generate::Completion completion) {
    samples[static_cast<size_t>(completion.index)].completion = std::move(completion.tokens);
  };
  generate::generate(model, prompts, 1, options, done, nullptr, {}, {}, {}, {}, rows);
}

std::string describe(const EvalSample& sample, const Tokenizer* tokenizer) {
  return "sample: " + shortened(text_of(sample.prompt, tokenizer), true) + " -> " +
         shortened(text_of(sample.completion, tokenizer), false);
}

std::string to_lines(const std::vector<EvalSample>& samples, const Tokenizer* tokenizer) {
  std::string lines;
  for (const EvalSample& sample : samples) {
    Json line = {{"prompt_tokens", sample.prompt}, {"tokens", sample.completion}};
    if (tokenizer) {
      line["prompt"] = text_of(sample.prompt, tokenizer);
      line["completion"] = text_of(sample.completion, tokenizer);
      line["expected"] = text_of(sample.expected, tokenizer);
    }
    lines += dump_json(line) + "\n";
  }
  return lines;
}

Report::Table to_table(const std::vector<EvalSample>& samples, const Tokenizer* tokenizer) {
  Report::Table table{kEvalSamplesTitle, {"prompt", "completion", "expected"}, {}};
  for (const EvalSample& sample : samples)
    table.rows.push_back({text_of(sample.prompt, tokenizer), text_of(sample.completion, tokenizer),
                          text_of(sample.expected, tokenizer)});
  return table;
}

}  // namespace temper::train
