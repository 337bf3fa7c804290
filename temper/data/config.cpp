#include "temper/data/config.h"

#include <nlohmann/json.hpp>

namespace temper {

template <>
inline constexpr std::array enum_names<data::Overlong> = {"truncate", "drop", "error"};
template <>
inline constexpr std::array enum_names<TrainOn> = {"auto", "all", "completion", "assistant"};
template <>
inline constexpr std::array enum_names<ConversationMode> = {"auto", "whole", "turns"};
template <>
inline constexpr std::array enum_names<data::RowFormat> = {"auto", "messages", "chatml", "sharegpt",
                                                           "alpaca"};

}  // namespace temper

namespace temper::data {

void DataSource::fields(Fields& f) {
  f.add("path", path, "file of rows, directory of such files, or pattern like rows/*.jsonl.gz",
        required());
  f.add("weight", weight, "how often it is drawn from, relative to the others", above(0));
  f.add("name", name, "what its metrics are called");
  f.add("limit", limit, "only the source's first so many rows are used; null: all", at_least(1));
}
void DataSection::fields(Fields& f) {
  f.add("train", train, "rows to train on: a path, or a list of {path, weight, name, limit}",
        one_or_list());
  f.add("eval", eval, "rows to evaluate on, written like data.train", one_or_list());
  f.add("validation_fraction", validation_fraction,
        "share of data.train's rows that is not trained but evaluated on, chosen by text and seed",
        fraction());
  f.add("columns", columns,
        "names of a row's fields in the file, as {prompt: question, completion: answer}");
  f.add("max_length", max_length,
        "maximum number of tokens of a row (of a prompt, in reinforcement learning)", at_least(2));
  f.add("overlong", overlong, "what happens to rows longer than max_length");
  f.add("shuffle", shuffle,
        "whether rows come in a random order given by seed; false: file order, again and again");
  f.add("packing", packing, "several rows in one forward pass; changes the speed, never a loss");
  f.add("train_on", train_on,
        "which tokens are trained; auto: the completion or the assistant's turns where rows have "
        "them");
  f.add("conversation", conversation,
        "whether a conversation is trained whole or turn by turn; auto: whole where the chat "
        "template renders every beginning as a beginning of the whole");
  f.add("format", format,
        "format of conversations; auto: messages, ShareGPT or Alpaca by the row's fields");
  f.add("system_prompt", system_prompt,
        "system message before conversations that begin without one");
  f.add("chat_template", chat_template,
        "file of a chat template to use instead of the model directory's");
  f.add("template_variables", template_variables,
        "variables of the chat template, as {enable_thinking: false}");
}

void DataSection::apply_to(TextFormat& to) const {
  to.columns = columns;
  to.format = format;
  to.system_prompt = system_prompt;
  to.max_length = max_length;
  to.overlong = overlong;
}

ChatOptions DataSection::chat_options() const {
  ChatOptions options;
  options.file = chat_template;
  if (template_variables.empty()) return options;
  Json variables = Json::object();
  for (const auto& [name, text] : template_variables) {
    const Json value = Json::parse(text, nullptr, false);
    variables[name] = value.is_discarded() ? Json(text) : value;
  }
  options.variables = dump_json(variables);
  return options;
}

namespace {

SourceSpec spec_of(const DataSource& source) {
  return {.path = source.path, .weight = source.weight, .name = source.name, .limit = source.limit};
}

}  // namespace

std::vector<SourceSpec> training_sources(const DataSection& section, uint64_t seed) {
  std::vector<SourceSpec> specs;
  for (const DataSource& source : section.train) {
    specs.push_back(spec_of(source));
    specs.back().held_out = {section.validation_fraction, seed};
  }
  return specs;
}

std::vector<SourceSpec> evaluation_sources(const DataSection& section, uint64_t seed) {
  std::vector<SourceSpec> specs;
  for (const DataSource& source : section.eval) specs.push_back(spec_of(source));
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
