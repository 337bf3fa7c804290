// Log-probabilities of given tokens.
#include "temper/generate/score.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/data/rows/row_fields.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::cli {
namespace {

constexpr int64_t kTokensInPass = 8192;

class Score : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Computes the log-probabilities of given tokens or texts.\n"
        "example: temper score --model DIR --input rows.jsonl --output scores.jsonl");
    model_.add_to(f, true);
    input_.add_to(
        f,
        "tokens, or prompt_tokens and completion_tokens, or prompt and completion; or what "
        "generate wrote; adapter",
        required());
    f.add("--output", output_, "file for the results, in input order, or - for standard output",
          required());
    f.add("--top-logprobs", top_,
          "number of most likely next tokens after the row that are written, too", at_least(0));
    f.add("--temperature", temperature_, "softmax temperature: logits are divided by it", above(0));
    f.add("--max-batch", max_batch_,
          "maximum number of rows per forward pass; changes the speed, never the result",
          at_least(1));
  }

  int run() override {
    InputRows rows(input_);
    OutputFile out(output_, input_.input);
    const auto model = load(model_);
    tokenizer_ = find_tokenizer(model_.model);
    catch_interrupts();
    Progress progress("scored", 0);
    std::vector<generate::ScoreRequest> batch;
    int64_t tokens = 0;
    const auto flush = [&] {
      write(out, batch, generate::score(*model, batch, temperature_, top_));
      progress.advance(static_cast<int64_t>(batch.size()), tokens);
      batch.clear();
      tokens = 0;
      if (interrupted()) throw Stopped(out.stop());
    };
    Json row;
    while (rows.next(row)) {
      batch.push_back(request(row, model->vocab_size, rows.where()));
      batch.back().adapter = adapter_of(model_, row, rows.where());
      tokens += static_cast<int64_t>(batch.back().tokens.size());
      if (static_cast<int64_t>(batch.size()) >= max_batch_ || tokens >= kTokensInPass) flush();
    }
    if (!batch.empty()) flush();
    out.finish();
    return 0;
  }

 private:
  generate::ScoreRequest request(const Json& row, int64_t vocabulary, const std::string& where) {
    if (row.contains("tokens") && !row.contains("prompt_tokens")) {
      generate::ScoreRequest all{token_field(row, "tokens", vocabulary, where), 1};
      check<DataError>(!all.tokens.empty(), where, ": no tokens");
      return all;
    }
    std::vector<int32_t> prompt, completion;
    if (row.contains("prompt_tokens")) {
      prompt = token_field(row, "prompt_tokens", vocabulary, where);
      // `tokens` beside it: a row that generate wrote.
      const bool generated = row.contains("tokens") && !row.contains("completion_tokens");
      completion = token_field(row, generated ? "tokens" : "completion_tokens", vocabulary, where);
    } else {
      check<DataError>(row.contains("prompt") && row["prompt"].is_string() &&
                           row.contains("completion") && row["completion"].is_string(),
                       where, ": the row has ", data::field_names(row),
                       "; expected `tokens`, `prompt_tokens` and `completion_tokens`, or `prompt` "
                       "and `completion` as text");
      data::TextFormat format;
      format.tokenizer = tokenizer_;
      prompt =
          encode_beginning(data::tokenizer_of(format, where), row["prompt"].get<std::string>());
      completion = tokenizer_->encode(row["completion"].get<std::string>());
    }
    check<DataError>(!prompt.empty(), where,
                     ": the prompt has no tokens; a completion is scored after something");
    const size_t first = prompt.size();
    prompt.insert(prompt.end(), completion.begin(), completion.end());
    return {std::move(prompt), first};
  }

  void write(OutputFile& out, const std::vector<generate::ScoreRequest>& batch,
             const std::vector<generate::ScoreResult>& results) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const std::vector<int32_t>& tokens = batch[i].tokens;
      const auto first =
          tokens.begin() + static_cast<ptrdiff_t>(std::min(batch[i].first_scored, tokens.size()));
      OutputRow row{{"index", index_++},
                    {"tokens", std::vector<int32_t>(first, tokens.end())},
                    {"logprobs", results[i].logprobs}};
      if (top_ > 0) row["next_top"] = results[i].next_top;
      out.row(row);
    }
  }

  ModelFlags model_;
  InputFlags input_;
  std::string output_;
  int64_t top_ = 0, max_batch_ = 64;
  double temperature_ = 1;

  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t index_ = 0;
};

}  // namespace

std::unique_ptr<Command> score_command() { return std::make_unique<Score>(); }

}  // namespace temper::cli
