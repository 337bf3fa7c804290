#include "temper/data/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/apportion.h"
#include "temper/data/config_names.h"
#include "temper/data/rows/row_groups.h"
#include "temper/text/chat/template_date.h"

namespace temper {

template <>
inline constexpr std::array enum_names<data::Overlong> = {"truncate", "drop", "error", "split"};
template <>
inline constexpr std::array enum_names<ConversationMode> = {"auto", "whole", "turns"};
template <>
inline constexpr std::array enum_names<data::RowFormat> = {"auto", "messages", "chatml", "sharegpt",
                                                           "alpaca"};
template <>
inline constexpr std::array enum_names<data::ControlTokens> = {"parse", "text"};
template <>
inline constexpr std::array enum_names<data::BalanceSection::Mode> = {"none", "report", "under",
                                                                      "over"};

}  // namespace temper

namespace temper::data {

void DataSource::fields(Fields& f) {
  f.add("path", path,
        "file of rows, directory of such files, pattern like rows/*.jsonl.gz, or id of a data set "
        "in the local Hugging Face cache, as openai/gsm8k:main/train",
        reads(InputFiles::kRows, required()));
  f.add("weight", weight,
        "sampling weight relative to the other sources; null: 1, or, where no source has one, the "
        "number of its rows",
        above(0));
  f.add("name", name, "name of the source in metrics");
  f.add("limit", limit, "use only the first `limit` rows of the source; null: all", at_least(1));
  f.add("columns", columns, "as data.columns, of this source; empty: data.columns");
  f.add("format", format, "as data.format, of this source; auto: data.format");
}
void BalanceSection::fields(Fields& f) {
  f.add("mode", mode,
        "none; report: metrics by group; under, over: the same, and leave out or repeat rows of "
        "each source until its groups have their shares");
  f.add("field", field, "name of the field that groups rows; empty: rules do");
  f.add("rules", rules,
        "file of {domain: {keywords: [..], patterns: [..]}} that groups rows; empty: the built-in "
        "domains",
        reads(InputFiles::kOther));
  f.add("target", target,
        "shares of the groups, as in {mathematics: 0.5, coding: 0.2}; other groups share the rest "
        "in proportion to their rows; empty: all have the same share");
}
void DataSection::fields(Fields& f) {
  f.add("train", train,
        "rows to train on: a path or a data set id (openai/gsm8k:main/train), or a list of {path, "
        "weight, name, limit, columns, format}; required, but with rl.replay",
        one_or_list());
  f.add("eval", eval, "rows to evaluate on, written like data.train", one_or_list());
  f.add("validation_fraction", validation_fraction,
        "fraction of data.train's rows held out for evaluation, chosen by their prompts and the "
        "seed: rows with the same prompt stay together",
        fraction());
  f.add("balance", balance, "shares of domains, or of a field's values, among the training rows");
  f.add("columns", columns,
        "names of the rows' fields in the file, as in {prompt: question, completion: answer}, or "
        "paths in its objects, as in {answer: reward_model.ground_truth}");
  f.add("max_length", max_length,
        "maximum number of tokens of a row (of a prompt, in reinforcement learning)", at_least(2));
  f.add("overlong", overlong,
        "what to do with rows longer than max_length; split: rows of text or input_ids become "
        "consecutive rows of max_length tokens");
  f.add("shuffle", shuffle, "random order of rows, given by the seed; false: file order, repeated");
  f.add("packing", packing,
        "pack several rows into one forward pass; changes the speed, never a loss");
  f.add("train_on", train_on,
        "tokens to train on; auto: the completion or the assistant's turns if rows have them, else "
        "all");
  f.add("conversation", conversation,
        "train a conversation as one row (whole) or each assistant turn by itself (turns); auto: "
        "whole "
        "if the chat template renders every prefix of it as a prefix of the text");
  f.add("format", format,
        "format of conversations; auto: messages, ShareGPT or Alpaca, detected from the row's "
        "fields");
  f.add("prompts_as", prompts_as,
        "how a text prompt is read; text: as plain text, without the chat template; user: as the "
        "content of a user message (a text completion is the assistant's answer)");
  f.add("control_tokens", control_tokens,
        "how text in rows that spells a special token (<|im_end|>) is tokenized; parse: as that "
        "token; text: as ordinary text");
  f.add("system_prompt", system_prompt, "system message added to conversations without one");
  f.add("chat_template", chat_template,
        "file of a chat template to use instead of the model directory's",
        reads(InputFiles::kTemplate));
  f.add("template_variables", template_variables,
        "variables of the chat template, as in {enable_thinking: false}");
  f.add("max_image_bytes", max_image_bytes, "largest file of an image, in bytes", at_least(1));
  f.add("min_image_pixels", min_image_pixels,
        "images are resized to at least so many pixels; null: what the model's "
        "preprocessor_config.json says",
        at_least(1));
  f.add("max_image_pixels", max_image_pixels, "and to at most so many", at_least(1));
  f.add("image_tag", image_tag,
        "text that stands for an image where a row's messages have no image parts; empty: none");
  f.add("template_date", template_date,
        "date for chat templates that write today's date (strftime_now), as in 2026-11-23 or "
        "2026-11-23T07:30:00; null: the date of the run's first start, also after a resume");
}

ImageOptions DataSection::image_options() const {
  return {.limits = {.max_bytes = static_cast<size_t>(max_image_bytes)},
          .bounds = {min_image_pixels, max_image_pixels},
          .tag = image_tag};
}

void DataSection::apply_to(TextFormat& to) const {
  to.no_chat = "data.chat_template names one";
  to.columns = columns;
  to.format = format;
  to.prompts_as = prompts_as;
  to.control_tokens = control_tokens;
  to.system_prompt = system_prompt;
  to.max_length = max_length;
  to.overlong = overlong;
  if (balance.groups()) to.groups = std::make_shared<const RowGroups>(balance.field, balance.rules);
}

namespace {

// The value of a template variable: JSON, or a string where the text is not JSON.
Json json_or_text(const std::string& text) {
  try {
    return parse_json(text, "data.template_variables", BigIntegers::kKept);
  } catch (const DataError&) {
    return text;
  }
}

}  // namespace

ChatOptions DataSection::chat_options() const {
  ChatOptions options;
  options.file = chat_template;
  if (const std::string date = template_date.value_or(begun); !date.empty())
    options.render.clock = [now = parse_date(date, "data.template_date")] { return now; };
  if (template_variables.empty()) return options;
  Json variables = Json::object();
  for (const auto& [name, text] : template_variables) {
    variables[name] = json_or_text(text);
  }
  options.variables = dump_json(variables);
  return options;
}

namespace {

SourceSpec spec_of(const DataSection& section, const DataSource& source) {
  return {.path = source.path,
          .weight = source.weight,
          .name = source.name,
          .limit = source.limit,
          .columns = source.columns.empty() ? section.columns : source.columns,
          .format = source.format};
}

// Whether the weights of data.train are all the same, some of them written.
bool has_equal_weights(const DataSection& section) {
  const auto& train = section.train;
  const auto weight = [](const DataSource& source) { return source.weight.value_or(1); };
  return std::any_of(train.begin(), train.end(),
                     [](const DataSource& s) { return s.weight.has_value(); }) &&
         std::all_of(train.begin(), train.end(),
                     [&](const DataSource& s) { return weight(s) == weight(train[0]); });
}

std::shared_ptr<const RowBalance> balance_of(const DataSection& section, uint64_t seed) {
  const BalanceSection& b = section.balance;
  using Mode = BalanceSection::Mode;
  if (b.mode == Mode::kNone || b.mode == Mode::kReport) return nullptr;
  auto balance = std::make_shared<RowBalance>();
  balance->mode = b.mode == Mode::kUnder ? BalanceMode::kUnder : BalanceMode::kOver;
  balance->field = b.field;
  balance->rules = b.rules;
  balance->where = "data.balance.target";
  for (const auto& [name, share] : b.target)
    balance->targets.push_back(parse_shares(name + "=" + share, balance->where).at(0));
  balance->seed = seed;
  balance->on_row = section.on_balanced_row;
  return balance;
}

}  // namespace

std::string about_earlier_rules(const DataSection& section) {
  const auto& train = section.train;
  const bool all_written = std::all_of(train.begin(), train.end(), [](const DataSource& source) {
    return source.weight.has_value();
  });
  if (!section.earlier_rules && train.size() > 1 && all_written && has_equal_weights(section))
    return "sources are drawn equally often, as their weights are equal (earlier versions drew in "
           "proportion to their rows where all weights were 1; without weights this one does)";
  if (!section.earlier_rules) return {};
  std::string changes;
  if (section.validation_fraction > 0)
    changes = "rows are held out by their lines, not their prompts";
  if (section.train.size() > 1 && has_equal_weights(section))
    changes += std::string(changes.empty() ? "" : ", and ") +
               "sources are drawn in proportion to their rows, as their weights are equal";
  if (changes.empty()) return {};
  return "as when the run began, with an earlier version: " + changes;
}

std::vector<SourceSpec> training_sources(const DataSection& section, uint64_t seed) {
  std::vector<SourceSpec> specs;
  const std::shared_ptr<const RowBalance> balance = balance_of(section, seed);
  const bool by_rows = section.earlier_rules && has_equal_weights(section);
  for (const DataSource& source : section.train) {
    specs.push_back(spec_of(section, source));
    if (by_rows) specs.back().weight.reset();
    specs.back().held_out = {section.validation_fraction, seed, section.earlier_rules};
    specs.back().balance = balance;
  }
  return specs;
}

std::vector<SourceSpec> evaluation_sources(const DataSection& section, uint64_t seed) {
  std::vector<SourceSpec> specs;
  for (const DataSource& source : section.eval) specs.push_back(spec_of(section, source));
  if (section.validation_fraction == 0) return specs;
  for (SourceSpec spec : training_sources(section, seed)) {
    spec.only_held_out = true;
    const std::string& name = spec.name.empty() ? spec.path : spec.name;
    spec.name = section.train.size() == 1 ? "validation" : "validation/" + name;
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace temper::data
