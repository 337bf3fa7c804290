#include "temper/cli/parts/next_steps.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_set.h"
#include "temper/data/rows/row_fields.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::cli {
namespace fs = std::filesystem;

namespace {

// A word as a shell takes it for one.
std::string shell_word(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

bool exists(const std::string& path) {
  std::error_code none;
  return is_file(path) || fs::exists(path, none);
}

bool has_chat_template(const std::string& directory) {
  if (exists(directory + "/chat_template.jinja")) return true;
  const std::string file = directory + "/tokenizer_config.json";
  if (!exists(file)) return false;
  try {
    const Json config = read_json_file(file);
    return config.is_object() && config.contains("chat_template") &&
           !config["chat_template"].is_null();
  } catch (const Error&) {
    return false;
  }
}

constexpr const char* kBeginning = "the beginning of a text";

// Whether the model's tokenizer has tokens for the suggested prompt: those of small vocabularies
// may know digits alone.
bool encodes(const std::string& directory, const std::string& text) {
  try {
    const auto tokenizer = Tokenizer::load_directory(directory);
    return tokenizer && tokenizer->decode(tokenizer->encode(text)).ends_with(text);
  } catch (const Error&) {
    return false;
  }
}

const std::map<std::string, std::string>& columns_of(const data::DataSection& section,
                                                     const data::DataSource& source) {
  return source.columns.empty() ? section.columns : source.columns;
}

// "--input FILE" of the rows that the run evaluates on, or else trains on; empty: it has none.
std::string input_flags(const data::DataSection& section) {
  const auto& sources = section.eval.empty() ? section.train : section.eval;
  if (sources.empty()) return {};
  std::string flags = "--input " + shell_word(sources[0].path);
  for (const auto& [ours, theirs] : columns_of(section, sources[0]))
    flags += (flags.find("--columns") == std::string::npos ? " --columns " : " ") +
             shell_word(ours + "=" + theirs);
  if (section.prompts_as == data::PromptsAs::kUser) flags += " --prompts-as user";
  return flags;
}

// The flags of the formats in which the run's model computed, for who loads what it left: those
// that differ from the defaults. Frozen weights there are under an adapter alone.
std::string format_flags(const train::RunConfig& config, bool adapter) {
  models::ModelSection section = config.model;
  if (!adapter) section.storage.reset();
  const YamlNode written = write_fields(Fields::of(section));
  std::string flags;
  const auto add = [&](const char* flag, const char* key, const char* usual) {
    const YamlNode* value = written.find(key);
    if (value && value->text != usual && value->text != "null")
      flags += str(" ", flag, " ", value->text);
  };
  add("--dtype", "dtype", "float32");
  add("--storage", "storage", "");
  add("--arithmetic", "arithmetic", "exact");
  return flags;
}

// Whether the run read text prompts without a chat template, as its first row says: what it learned
// is no chat.
bool has_text_prompts(const data::DataSection& section) {
  if (section.train.empty() || section.prompts_as == data::PromptsAs::kUser) return false;
  const data::DataSource& source = section.train[0];
  try {
    data::RowReader rows(data::find_row_files(source.path).at(0));
    Json row;
    if (!rows.next(row)) return false;
    data::rename_columns(row, columns_of(section, source), rows.where());
    return row.contains("prompt") && row["prompt"].is_string() && !row.contains("messages");
  } catch (const Error&) {  // the rows are gone
    return false;
  }
}

// The flags that SamplingFlags has, of what the section says beside the temperature and the number
// of tokens: those that differ from the flags' defaults.
std::string sampling_flags(const generate::RolloutSection& section) {
  std::string flags;
  for (const generate::SamplingOption& option : generate::sampling_options()) {
    const auto add_text = [&](const std::string& text) {
      flags += str(" ", option.flag(), "=", shell_word(text));  // that begins with - is no flag
    };
    visit_written(
        option, section,
        generate::Overloaded{[&](const std::map<std::string, std::string>& biases) {
                               for (const auto& [token, bias] : biases)
                                 add_text(token + "=" + bias);
                             },
                             [&](const std::vector<std::string>& texts) {
                               for (const std::string& text : texts) add_text(text);
                             },
                             [&](const std::vector<int64_t>& ids) {
                               for (const int64_t id : ids)
                                 flags += str(" ", option.flag(), " ", id);
                             },
                             [&](const std::optional<std::string>& form) {
                               if (form) add_text(*form);
                             },
                             [&](const bool& on) { flags += on ? " " + option.flag() : ""; },
                             [&](const auto& number) {
                               const bool said =
                                   option.holds(&generate::GenerationOptions::max_new_tokens) ||
                                   option.holds(&generate::SamplingOptions::temperature);
                               if (!said && option.is_set(section))
                                 flags += str(" ", option.flag(), " ", number);
                             }});
  }
  return flags;
}

}  // namespace

std::string eval_flags(const train::SftConfig&) { return "--perplexity"; }

std::string eval_flags(const distill::DistillConfig& config) {
  return config.samples() ? "" : "--perplexity";
}

std::string eval_flags(const preference::PreferenceConfig& config) {
  return config.preference.loss == "kto" ? "" : "--pairs";
}

std::string eval_flags(const rl::RlConfig& config) {
  if (config.rewards.size() != 1 || config.environment.any()) return {};
  const rewards::RewardSection& reward = config.rewards[0];
  if (reward.judge.any()) return {};
  std::string flags;
  if (!reward.command.empty()) {
    std::string command;
    for (const std::string& word : reward.command)
      command += (command.empty() ? "" : " ") + shell_word(word);
    flags = "--reward-command " + shell_word(command);
  } else if (reward.model) {
    flags = "--reward-model " + shell_word(*reward.model);
  } else {
    flags = "--reward " + shell_word(reward.reward.empty() ? reward.name : reward.reward);
    if (reward.field != rewards::RewardSection().field)
      flags += " --reward-field " + shell_word(reward.field);
    if (reward.pattern) flags += " --reward-pattern " + shell_word(*reward.pattern);
  }
  return str(flags, " --temperature ", config.rollout.sampling.temperature, " --max-new-tokens ",
             config.rollout.max_new_tokens, sampling_flags(config.rollout));
}

std::string next_steps(const train::RunConfig& config, const std::string& eval_flags) {
  const std::string final_model = config.output_dir + "/final", verb = config.verb.value_or("");
  const bool adapter = exists(final_model + "/adapter_config.json");
  const std::string model = "--model " + shell_word(final_model) + format_flags(config, adapter);
  const std::string input = input_flags(config.data);
  std::string text = (adapter ? "adapter: " : "model:   ") + final_model +
                     "\nreport:  " + config.output_dir + "/report.html\n";
  std::string label = "try:     ";
  const auto add = [&](const std::string& command) {
    text += std::exchange(label, "         ") + "temper " + command + "\n";
  };
  if (!input.empty() && !eval_flags.empty()) add("eval " + model + " " + input + " " + eval_flags);
  const bool has_text =
      exists(final_model + "/tokenizer.json") || exists(final_model + "/tokenizer.model");
  if (has_text && verb != "reward") {
    if (has_chat_template(final_model) && !has_text_prompts(config.data))
      add("chat " + model);
    else if (encodes(final_model, kBeginning))
      add("generate " + model + " --prompt " + shell_word(kBeginning));
  }
  if (adapter)
    add("export --model " + shell_word(config.model.path) + " --adapter " +
        shell_word(final_model) + " --output " + shell_word(config.output_dir + "/merged"));
  return text;
}

}  // namespace temper::cli
