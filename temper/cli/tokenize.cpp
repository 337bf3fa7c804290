// Text to ids, ids to text, conversations to text, ids and labels.
#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/work.h"
#include "temper/data/images/image_format.h"
#include "temper/data/images/row_images.h"
#include "temper/data/images/side_images.h"
#include "temper/data/rows/preference_sides.h"
#include "temper/data/rows/row_fields.h"
#include "temper/data/rows/text_format.h"
#include "temper/models/files/load.h"
#include "temper/text/chat/conversation.h"
#include "temper/text/tokenizer/special_tokens.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

OutputRow written(const TokenizedConversation& c) {
  return OutputRow{{"text", c.text}, {"tokens", c.tokens}, {"labels", c.labels}};
}

class Tokenize : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Converts text to ids, ids to text, and conversations to text, ids and labels. Needs no "
        "weights.\n"
        "example: temper tokenize --model DIR --input rows.jsonl --output ids.jsonl");
    f.add("--model", model_,
          "directory with a tokenizer, a .gguf file, or a model's id in the local cache",
          required());
    f.then([this] { model_ = models::resolve_model_path(model_); });
    add_tokenizer(f, model_, tokenizer_);
    input_.add_to(
        f,
        "text, tokens, messages with tools, prompt and completion, chosen and rejected, or "
        "input_ids and labels",
        required());
    input_.add_prompts_as(f);
    f.add("--output", output_, "file for the results, in input order, or - for standard output",
          required());
    f.add("--train-on", options_.train_on, "tokens of a conversation that get labels");
    add_template_date(f, template_date_);
    f.add("--add-generation-prompt", options_.add_generation_prompt,
          "append the chat template's generation prompt");
  }

  int run() override {
    InputRows rows(input_);
    format_.tokenizer = find_tokenizer(model_);
    check<ConfigError>(format_.tokenizer != nullptr, model_,
                       ": has no tokenizer.json and no tokenizer.model");
    ChatOptions chat;
    chat.render = render_options(template_date_);
    format_.chat = ChatTemplate::find(model_, chat);
    format_.vocabulary = num_ids();
    format_.prompts_as = input_.prompts_as;
    format_.images = data::find_image_format(model_, format_.tokenizer.get());
    OutputFile out(output_, input_.input);
    Json row;
    while (rows.next(row)) {
      format_.directory = rows.directory();
      out.row(result(row, rows.where()));
    }
    out.finish();
    return 0;
  }

 private:
  OutputRow result(Json row, const std::string& where) {
    row = data::normalized_row(format_, std::move(row), where);
    data::answers_as_messages(format_, row);
    try {
      return result_of(row, where);
    } catch (const DataError& e) {
      throw DataError(std::string(e.what()).starts_with(where) ? e.what()
                                                               : where + ": " + e.what());
    }
  }

  OutputRow result_of(Json& row, const std::string& where) {
    const Tokenizer& tokenizer = *format_.tokenizer;
    const auto place = [&](const std::vector<const char*>& fields) {
      images_ = data::place_images(format_, row, fields, where);
    };
    if (row.contains("messages")) {
      place({"messages"});
      return conversation(row, where);
    }
    if (row.contains("prompt") && row.contains("completion")) {
      place({"prompt", "completion"});
      return prompt_completion(row, where);
    }
    if (row.contains("chosen") || row.contains("rejected") || row.contains("chosen_ids"))
      return preference(row, where);
    if (row.contains("tokens"))
      return OutputRow::object(
          {{"text", tokenizer.decode(token_field(row, "tokens", format_.vocabulary, where))}});
    place({});
    if (row.contains("input_ids")) return ids(row, where);
    check<DataError>(row.contains("text") && row["text"].is_string(), where, ": the row has ",
                     data::field_names(row),
                     "; expected `text`, `tokens`, `messages`, `prompt` and `completion`, `chosen` "
                     "and `rejected`, or `input_ids`");
    return OutputRow::object({{"tokens", tokenizer.encode(expanded(row["text"]))}});
  }

  // Ids of the model, which may have more than its tokenizer.
  int64_t num_ids() const {
    const Json config = read_model_file(model_, "config.json");
    const Json& text =
        config.is_object() && config.contains("text_config") ? config["text_config"] : config;
    const Json size = text.is_object() ? text.value("vocab_size", Json()) : Json();
    const int64_t own = format_.tokenizer->vocab_size();
    return size.is_number_integer()
               ? std::max(own, std::min<int64_t>(size.get<int64_t>(), INT32_MAX))
               : own;
  }

  // A text with what its images' placeholders become.
  std::string expanded(const Json& text) const {
    return data::with_images(format_, text.get<std::string>(), images_);
  }

  // Image tokens are not trained.
  TokenizedConversation without_images(TokenizedConversation c) const {
    const data::ImagePlaces places(format_, images_);
    for (size_t i = 0; i < c.tokens.size(); ++i)
      if (places.is_image(c.tokens[i])) c.labels[i] = kNotTrained;
    return c;
  }

  OutputRow trained(TokenizedConversation c) const { return written(without_images(std::move(c))); }

  // What training makes of a row of ids.
  OutputRow ids(const Json& row, const std::string& where) {
    TokenizedConversation out;
    out.tokens = data::token_ids(row["input_ids"], "input_ids", format_.vocabulary, where);
    out.labels = row.contains("labels")
                     ? data::token_ids(row["labels"], "labels", format_.vocabulary, where, -100)
                     : out.tokens;
    check<DataError>(out.labels.size() == out.tokens.size(), where, ": `labels` has ",
                     out.labels.size(), " entries, `input_ids` ", out.tokens.size());
    out.text = format_.tokenizer->decode(out.tokens);
    data::ImagePlaces(format_, images_).check_all(out.tokens);
    return trained(std::move(out));
  }

  OutputRow conversation(const Json& row, const std::string& where) {
    const Json &messages = row["messages"], tools = data::tools_of(row);
    return labeled(messages, tools, where, [&](const ChatTemplate& chat) {
      return tokenize_conversation(*format_.tokenizer, chat, messages, tools, options_);
    });
  }

  // What training ends a text with: config.json's token where no other file names one.
  std::optional<int32_t> text_end(const Tokenizer& tokenizer) const {
    if (const auto id = end_token(model_, tokenizer)) return id;
    const Json config = read_model_file(model_, "config.json");
    Json ids = config.value("eos_token_id", Json());
    if (ids.is_array() && !ids.empty()) ids = ids[0];
    return ids.is_number_integer() ? std::optional(ids.get<int32_t>()) : std::nullopt;
  }

  OutputRow prompt_completion(const Json& row, const std::string& where) {
    const Json &prompt = row["prompt"], &completion = row["completion"];
    const Tokenizer& tokenizer = *format_.tokenizer;
    if (prompt.is_string() && completion.is_string())
      return trained(tokenize_prompt_completion(tokenizer, expanded(prompt),
                                                completion.get<std::string>(), options_.train_on,
                                                text_end(tokenizer)));
    check<DataError>(prompt.is_array() && completion.is_array(), where,
                     ": `prompt` and `completion` must both be text or both be messages");
    Json messages = prompt;
    for (const Json& message : completion) messages.push_back(message);
    const Json tools = data::tools_of(row);
    return labeled(messages, tools, where, [&](const ChatTemplate& chat) {
      return tokenize_prompt_completion(tokenizer, chat, prompt, completion, tools, options_);
    });
  }

  // Both sides of a pair, each as the row {prompt, completion} that it is.
  OutputRow preference(const Json& row, const std::string& where) {
    data::PreferenceSides sides = data::preference_sides(row, false, where);
    const data::RowImages all = data::place_in_sides(format_, row, sides, where);
    const auto side = [&](const Json& completion) {
      images_ = data::side_images(sides, completion, all);
      if (!sides.ids) {
        Json alone{{"prompt", sides.prompt}, {"completion", completion}};
        if (row.contains("tools")) alone["tools"] = row["tools"];
        return prompt_completion(alone, where);
      }
      Json tokens = sides.prompt, labels(sides.prompt.size(), Json(-100));
      for (const Json& id : completion) {
        tokens.push_back(id);
        labels.push_back(id);
      }
      return ids({{"input_ids", tokens}, {"labels", labels}}, where);
    };
    return OutputRow{{"chosen", side(sides.chosen)}, {"rejected", side(sides.rejected)}};
  }

  // A conversation's text and tokens stand there whatever can be trained of it.
  OutputRow labeled(const Json& messages, const Json& tools, const std::string& where,
                    const std::function<TrainedConversation(const ChatTemplate&)>& train) {
    const ChatTemplate& chat = data::chat_of(format_, where);
    std::string text = chat.render(messages, tools, options_.add_generation_prompt);
    std::string reason = "the conversation is trained turn by turn";
    try {
      TrainedConversation c = train(chat);
      if (!c.turn_by_turn) return trained(std::move(c.paths.at(0)));
    } catch (const DataError& e) {
      reason = e.what();
    }
    if (!explained_) std::cerr << printable(where + ": labels are null: " + reason) << std::endl;
    explained_ = true;
    return OutputRow{
        {"text", text}, {"tokens", format_.tokenizer->encode(text)}, {"labels", nullptr}};
  }

  std::string model_, tokenizer_, output_, template_date_;
  InputFlags input_;
  data::TextFormat format_;
  ConversationOptions options_;
  data::RowImages images_;  // of the row
  bool explained_ = false;  // the first row without labels is enough
};

}  // namespace

std::unique_ptr<Command> tokenize_command() { return std::make_unique<Tokenize>(); }

}  // namespace temper::cli
