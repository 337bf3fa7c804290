#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/output.h"
#include "temper/cli/work.h"
#include "temper/data/jsonl.h"
#include "temper/text/conversation.h"

namespace temper::cli {

namespace {

class Tokenize : public Command {
 public:
  void declare(CLI::App& app) override;
  int run() override;

 private:
  std::string model, input, output;
  bool generation_prompt = false;
};

void Tokenize::declare(CLI::App& app) {
  app.description(
      "Text to ids, ids to text, conversations to text, ids and labels. Needs no weights.\n"
      "example: temper tokenize --model DIR --input rows.jsonl --output ids.jsonl");
  app.add_option("--model", model, "directory with tokenizer.json")->required();
  app.add_option("--input", input, "rows: text, tokens, or messages with tools")->required();
  app.add_option("--output", output, "where the results go, in input order")->required();
  app.add_flag("--add-generation-prompt", generation_prompt,
               "end a conversation where the assistant's turn begins");
}

int Tokenize::run() {
  data::RowReader rows(input == "-" ? "/dev/stdin" : input);
  const auto tokenizer = find_tokenizer(model);
  check<ConfigError>(tokenizer != nullptr, model, ": has no tokenizer.json");
  std::optional<ChatTemplate> chat;
  OutputFile out(output, input);
  Json row;
  while (rows.next(row)) {
    const std::string where = rows.where();
    if (row.contains("messages")) {
      if (!chat) chat = ChatTemplate::load(model);
      TokenizedConversation c;
      try {
        c = tokenize_conversation(*tokenizer, *chat, row["messages"],
                                  row.contains("tools") ? row["tools"] : Json(), TrainOn::kAuto,
                                  generation_prompt);
      } catch (const DataError& e) {
        throw DataError(where + ": " + e.what());
      }
      out.row({{"text", c.text}, {"tokens", c.tokens}, {"labels", c.labels}});
    } else if (row.contains("tokens")) {
      out.row(OutputRow::object(
          {{"text", tokenizer->decode(token_field(row, "tokens", INT32_MAX, where))}}));
    } else {
      check<DataError>(row.contains("text") && row["text"].is_string(), where,
                       ": expected `text`, `tokens` or `messages`");
      out.row(OutputRow::object({{"tokens", tokenizer->encode(row["text"].get<std::string>())}}));
    }
  }
  out.finish();
  return 0;
}

}  // namespace

std::unique_ptr<Command> tokenize_command() { return std::make_unique<Tokenize>(); }

}  // namespace temper::cli
