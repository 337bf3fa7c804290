// Log-probabilities of given tokens.
#include "temper/generate/score.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/work.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/row_fields.h"
#include "temper/data/rows/sft_row.h"
#include "temper/models/vision/image_rows.h"
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
    add_template_date(f, model_.template_date);
    input_.add_to(
        f,
        "tokens, prompt_tokens and completion_tokens, prompt and completion, messages (of which "
        "the assistant's words are scored), or what generate wrote; images; adapter",
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
    templates_.emplace(model_);
    format_.tokenizer = tokenizer_;
    format_.vocabulary = model->vocab_size;
    format_.max_length = INT64_MAX;
    format_.train_on = TrainOn::kAssistant;
    format_.images = image_format(model_.model, tokenizer_.get());
    catch_interrupts();
    Progress progress("scored", 0);
    Batch batch;
    int64_t tokens = 0;
    const auto flush = [&] {
      write(out, batch, generate::score(*model, batch.requests, temperature_, top_));
      progress.advance(std::ssize(batch.of_row), tokens);
      batch = {};
      tokens = 0;
      if (interrupted()) throw Stopped(out.stop());
    };
    Json row;
    while (rows.next(row)) {
      format_.directory = rows.directory();
      std::vector<generate::ScoreRequest> asked = requests(row, rows.where());
      batch.of_row.push_back(asked.size());
      for (generate::ScoreRequest& one : asked) {
        tokens += std::ssize(one.tokens);
        batch.requests.push_back(std::move(one));
      }
      if (std::ssize(batch.of_row) >= max_batch_ || tokens >= kTokensInPass) flush();
    }
    if (!batch.of_row.empty()) flush();
    out.finish();
    return 0;
  }

 private:
  // Rows that are scored together: of each one or, of a conversation that is written anew for each
  // turn, several requests.
  struct Batch {
    std::vector<generate::ScoreRequest> requests;
    std::vector<size_t> of_row;
  };

  std::vector<generate::ScoreRequest> requests(const Json& row, const std::string& where) {
    const int adapter = adapter_of(model_, row, where);
    std::vector<generate::ScoreRequest> asked;
    if (row.contains("messages") && !row.contains("tokens") && !row.contains("prompt_tokens"))
      asked = of_messages(row, adapter, where);
    else
      asked.push_back(of_completion(row, where));
    for (generate::ScoreRequest& one : asked) one.adapter = adapter;
    return asked;
  }

  std::vector<generate::ScoreRequest> of_messages(const Json& row, int adapter,
                                                  const std::string& where) {
    format_.chat = templates_->of(adapter);
    bool truncated = false;
    const data::SftRow tree = *data::read_sft_row(format_, row, where, &truncated);
    std::vector<generate::ScoreRequest> asked;
    std::vector<data::TokenPath> paths;  // that end with a segment
    for (const data::Segment& segment : tree.segments) {
      data::TokenPath path;
      if (segment.parent >= 0) path = paths[static_cast<size_t>(segment.parent)];
      const size_t before = path.tokens.size();
      append_spans(path.images, segment.images, std::ssize(path.tokens));
      path.tokens.insert(path.tokens.end(), segment.tokens.begin(), segment.tokens.end());
      std::vector<size_t> scored;
      for (size_t i = 0; i < segment.tokens.size(); ++i)
        if (segment.labels[i] >= 0 && before + i > 0) scored.push_back(before + i);
      if (!scored.empty()) asked.push_back(request_of(path.tokens, path.images, where));
      if (!scored.empty()) asked.back().only = std::move(scored);
      paths.push_back(std::move(path));
    }
    if (asked.empty()) {
      asked.push_back(request_of(paths.back().tokens, paths.back().images, where));
      asked.back().only.emplace();
    }
    return asked;
  }

  generate::ScoreRequest request_of(std::vector<int32_t> tokens, const ImageSpans& images,
                                    const std::string& where) {
    decoded_.check(images, where);
    generate::ScoreRequest out{std::move(tokens), 1};
    out.rows = models::external_rows(images);
    return out;
  }

  generate::ScoreRequest of_completion(Json row, const std::string& where) {
    const data::RowImages images = data::place_images(format_, row, {}, where);
    size_t first = 1;
    std::vector<int32_t> tokens = tokens_of(row, images, where, first);
    const ImageSpans spans = data::spans_of(format_, images, tokens, where);
    generate::ScoreRequest out = request_of(std::move(tokens), spans, where);
    out.first_scored = first;
    return out;
  }

  // The tokens of a row that is no conversation, of which those from `first` on are scored.
  std::vector<int32_t> tokens_of(const Json& row, const data::RowImages& images,
                                 const std::string& where, size_t& first) const {
    const int64_t vocabulary = format_.vocabulary;
    if (row.contains("tokens") && !row.contains("prompt_tokens")) {
      std::vector<int32_t> all = token_field(row, "tokens", vocabulary, where);
      check<DataError>(!all.empty(), where, ": no tokens");
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
                       "; expected `tokens`, `prompt_tokens` and `completion_tokens`, `messages`, "
                       "or `prompt` and `completion` as text");
      prompt = prompt_of(row, images, where);
      completion = tokenizer_->encode(row["completion"].get<std::string>());
    }
    check<DataError>(!prompt.empty(), where,
                     ": the prompt has no tokens; a completion is scored after something");
    first = prompt.size();
    prompt.insert(prompt.end(), completion.begin(), completion.end());
    return prompt;
  }

  std::vector<int32_t> prompt_of(const Json& row, const data::RowImages& images,
                                 const std::string& where) const {
    const Tokenizer& tokenizer = data::tokenizer_of(format_, where);
    try {
      return encode_beginning(tokenizer,
                              data::with_images(format_, row["prompt"].get<std::string>(), images));
    } catch (const DataError& e) {
      throw DataError(temper::str(where, ": ", e.what()));
    }
  }

  void write(OutputFile& out, const Batch& batch,
             const std::vector<generate::ScoreResult>& results) {
    size_t at = 0;
    for (const size_t count : batch.of_row) {
      std::vector<int32_t> tokens;
      std::vector<float> logprobs;
      for (const size_t end = at + count; at < end; ++at) {
        for (const size_t i : batch.requests[at].scored())
          tokens.push_back(batch.requests[at].tokens[i]);
        logprobs.insert(logprobs.end(), results[at].logprobs.begin(), results[at].logprobs.end());
      }
      OutputRow row{{"index", index_++}, {"tokens", tokens}, {"logprobs", logprobs}};
      if (top_ > 0) row["next_top"] = results[at - 1].next_top;
      out.row(row);
    }
  }

  ModelFlags model_;
  InputFlags input_;
  std::string output_;
  int64_t top_ = 0, max_batch_ = 64;
  double temperature_ = 1;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplates> templates_;
  data::SftFormat format_;
  DecodedImages decoded_;
  int64_t index_ = 0;
};

}  // namespace

std::unique_ptr<Command> score_command() { return std::make_unique<Score>(); }

}  // namespace temper::cli
