#include "temper/cli/parts/options.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/models/config.h"
#include "temper/models/device.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/models/gguf/gguf_files.h"
#include "temper/text/chat/template_date.h"

namespace temper::cli {
namespace {

constexpr double kUnbounded = 1e300;

// "TEXT:{auto,cpu,cuda}": what CLI::IsMember makes of an option's type.
std::vector<std::string> flag_choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

// Those of the app's tools, too, each name once.
void collect_flags(const CLI::App& app, std::vector<Flag>& flags) {
  for (const CLI::Option* option : app.get_options()) {
    const auto known = [&](const Flag& flag) { return flag.name == option->get_name(); };
    if (std::none_of(flags.begin(), flags.end(), known))
      flags.push_back({option->get_name(), option->get_description(), flag_choices(*option),
                       option->get_items_expected_max() > 0});
  }
  for (const CLI::App* tool : app.get_subcommands({})) collect_flags(*tool, flags);
}

std::vector<std::string> names_of_tools(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* tool : app.get_subcommands({})) names.push_back(tool->get_name());
  return names;
}

// The tool that the arguments chose, or the app itself.
CLI::App& chosen_tool(CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

// What is wrong with the first word that no flag takes; empty: there is none.
std::string unexpected_word(CLI::App& app) {
  const CLI::App& tool = chosen_tool(app);
  const std::vector<std::string> left = app.remaining(true);
  const std::vector<std::string> tools = names_of_tools(app);
  const bool lacks_tool = &tool == &app && !tools.empty();
  std::string expected;
  for (const std::string& name : tools) expected += (expected.empty() ? "" : ", ") + name;
  if (left.empty()) return lacks_tool ? "expected one of " + expected : "";
  const std::string word = left[0].substr(0, left[0].find('='));
  if (lacks_tool && !word.starts_with("-"))
    return "found `" + word + "`, expected one of " + expected + did_you_mean(word, tools);
  if (!word.starts_with("-")) return "unexpected `" + word + "`";
  std::vector<std::string> names;
  for (const CLI::Option* option : tool.get_options()) names.push_back(option->get_name());
  return "unknown flag `" + word + "`" + did_you_mean(word, names);
}

// --help says what a flag is where it is not given, unless that is nothing.
void show_defaults(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_required()) continue;
    option->capture_default_str();
    const std::string value = option->get_default_str();
    if (value.empty() || value == "\"\"" || value == "[]" || value == "{}" || value == "false")
      option->default_str("");
  }
  for (CLI::App* tool : app.get_subcommands({})) show_defaults(*tool);
}

}  // namespace

CLI::Validator within(double low, double high, const std::string& expected) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        return is_number && value >= low && value <= high
                   ? std::string()
                   : temper::str("found ", text, ", expected ", expected);
      },
      "");
}

CLI::Validator whole_number() {
  return CLI::Validator(
      [](std::string& text) {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        return error == std::errc() && end == text.data() + text.size()
                   ? std::string()
                   : temper::str("found ", text, ", expected a whole number of at least 0");
      },
      "");
}
CLI::Validator at_least_one() { return within(1, kUnbounded, "a whole number of at least 1"); }
CLI::Validator non_negative() { return within(0, kUnbounded, "a number of at least 0"); }
CLI::Validator above_zero() { return within(1e-300, kUnbounded, "a number above 0"); }
CLI::Validator any_number() { return within(-kUnbounded, kUnbounded, "a number"); }

std::vector<Flag> flags_of(const Verb& verb) {
  if (!verb.make) return {};
  CLI::App app("", verb.name);
  const std::unique_ptr<Command> command = verb.make();
  command->declare(app);
  std::vector<Flag> flags;
  collect_flags(app, flags);
  return flags;
}

std::vector<std::string> tools_of(const Verb& verb) {
  if (!verb.make) return {};
  CLI::App app("", verb.name);
  verb.make()->declare(app);
  return names_of_tools(app);
}

int Verb::run(const Arguments& arguments) const {
  if (parse_and_run) return parse_and_run(arguments);
  CLI::App app("", name);
  const std::unique_ptr<Command> command = make();
  command->declare(app);
  return parse_flags(app, arguments) ? command->run() : 0;
}

bool parse_flags(CLI::App& app, const Arguments& arguments) {
  app.name("temper " + app.get_name());
  show_defaults(app);
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    // Of a verb with tools, all of their flags, or those of the tool that was chosen.
    std::cout << app.help("", CLI::AppFormatMode::All);
    return false;
  } catch (const CLI::ParseError& e) {
    // A misspelt flag is also a required one that is missing: it comes first.
    const std::string unexpected = unexpected_word(app);
    const CLI::App& tool = chosen_tool(app);
    throw ConfigError(temper::str(unexpected.empty() ? e.what() : unexpected, "; see ",
                                  app.get_name(), &tool == &app ? "" : " " + tool.get_name(),
                                  " --help"));
  }
  return true;
}

std::vector<std::string> split_command(const std::string& line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool blank = c == ' ' || c == '\t' || c == '\n';
    if (quote == 0 && blank) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    const char next = i + 1 < line.size() ? line[i + 1] : 0;
    const bool escapes =
        quote == 0 ? next != 0 : quote == '"' && next != 0 && std::strchr("$`\"\\", next);
    if (c == '\\' && escapes)
      words.back() += line[++i];
    else if (quote == 0 && (c == '\'' || c == '"'))
      quote = c;
    else if (c == quote)
      quote = 0;
    else
      words.back() += c;
  }
  check<ConfigError>(quote == 0, "a quote is not closed in the command `", line, "`");
  return words;
}

CLI::Option* add_model(CLI::App& app, std::string& model, const std::string& help) {
  return app.add_option("--model", model, help)->required()->transform([](const std::string& path) {
    return models::resolve_model_path(path);
  });
}

void add_tokenizer(CLI::App& app, const std::string& model, std::string& tokenizer) {
  app.add_option("--tokenizer", tokenizer,
                 "of a .gguf file: a directory with tokenizer.json, whose tokenizer and chat "
                 "template are read in place of the file's");
  app.parse_complete_callback([&model, &tokenizer] {
    if (!tokenizer.empty()) models::use_tokenizer(model, tokenizer, "--tokenizer");
  });
}

namespace {

// Where the `=` of NAME=DIR stands; 0: it is the path of a directory.
size_t end_of_name(const std::string& given) {
  const size_t equals = given.find('=');
  std::error_code none;
  const bool is_path = equals == std::string::npos || given.find('/') < equals ||
                       std::filesystem::is_directory(given, none);
  return is_path ? 0 : equals;
}

}  // namespace

void ModelFlags::take_adapters(const std::vector<std::string>& given, bool may_be_named) {
  const auto wrong = [](const std::string& message) {
    throw CLI::ValidationError("--adapter", message);
  };
  for (const std::string& one : given) {
    const size_t equals = end_of_name(one);
    if (equals == 0) {
      if (one.starts_with("=")) wrong("found `" + one + "`, expected NAME=DIR");
      if (!adapter.empty())
        wrong("found two unnamed adapters, " + adapter + " and " + one +
              (may_be_named ? "; give them names: NAME=DIR" : ""));
      adapter = one;
      continue;
    }
    NamedAdapter found{one.substr(0, equals), one.substr(equals + 1)};
    if (!may_be_named)
      wrong("found `" + one + "`, expected a directory: rows cannot choose adapters here");
    for (const NamedAdapter& other : named)
      if (other.name == found.name) wrong("two adapters have the name " + found.name);
    named.push_back(std::move(found));
  }
}

namespace {

const std::vector<std::string> kCacheDtypes(enum_names<ops::CacheDtype>.begin(),
                                            enum_names<ops::CacheDtype>.end());

}  // namespace

void ModelFlags::add_to(CLI::App& app, bool rows_name_adapters) {
  app.add_option(
         "--model", model,
         "directory of a Hugging Face model or of an adapter on one, a .gguf file, or a model's id "
         "in the local cache")
      ->required()
      ->transform([this](const std::string& path) { return take_model(path, adapter); });
  add_tokenizer(app, model, tokenizer);
  const std::string help =
      rows_name_adapters
          ? "directory of a PEFT LoRA or DoRA adapter; or NAME=DIR (may be repeated), for rows "
            "with \"adapter\": \"NAME\" or requests with \"model\": \"NAME\" (others: the unnamed "
            "adapter, or none)"
          : "directory of a PEFT LoRA or DoRA adapter";
  app.add_option_function<std::vector<std::string>>(
         "--adapter",
         [this, rows_name_adapters](const std::vector<std::string>& given) {
           take_adapters(given, rows_name_adapters);
         },
         help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  // The names that completion offers; cuda:N is as good.
  const CLI::Validator names = CLI::IsMember({"auto", "cpu", "cuda"});
  app.add_option(
         "--device", device,
         "device on which the model computes: auto (the default: a GPU where this program and "
         "machine have one, else the CPU), cpu, cuda or cuda:N")
      ->type_name("TEXT:" + names.get_description());
  app.add_option("--backend", backend,
                 "implementation of the operations: native (CPU kernels), aten (LibTorch's "
                 "operators) or auto (default): TEMPER_BACKEND if it is set, else native on the "
                 "CPU and aten elsewhere")
      ->check(CLI::IsMember({"auto", "native", "aten"}));
  app.add_option("--dtype", dtype,
                 "dtype of weights in matrix products: float32 or bfloat16; sums are float32; "
                 "default: float32 on the CPU; elsewhere bfloat16 for models saved in bfloat16 or "
                 "float16, float32 for others")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option(
         "--arithmetic", arithmetic,
         "matrix products with bfloat16 weights: exact, or fast, which also rounds activations to "
         "bfloat16, or amx, which does so in the order of Intel's AMX and for quantized weights, "
         "too; or integer, of quantized weights (--storage) alone, by activations rounded to 8 "
         "bits, in integers; default: exact on the CPU, fast elsewhere")
      ->check(CLI::IsMember(
          std::vector<std::string>(ops::kArithmeticNames.begin(), ops::kArithmeticNames.end())));
  add_storage(app, storage);
  app.add_option(
         "--cache-dtype", cache_dtype,
         "dtype to which attention rounds keys and values: float32 (default on the CPU), float16 "
         "or bfloat16, which halve the key-value cache; default elsewhere: bfloat16 for models "
         "saved in 16 bits. Use the one of training (rollout.cache_dtype)")
      ->check(CLI::IsMember(kCacheDtypes));
}

void add_template_date(CLI::App& app, std::string& date) {
  app.add_option(
      "--template-date", date,
      "date for chat templates that write today's date (strftime_now), as in 2026-11-23; default: "
      "now. That of a run is data.template_date in its config.yaml");
}

jinja::RenderOptions render_options(const std::string& date) {
  jinja::RenderOptions options;
  if (!date.empty()) options.clock = [now = parse_date(date, "--template-date")] { return now; };
  return options;
}

void add_storage(CLI::App& app, std::string& storage) {
  app.add_option("--storage", storage,
                 "storage format of weights: " + models::storage_help() +
                     "; the rest follows --dtype; default: file")
      ->check(CLI::IsMember(models::storage_names()));
}

namespace {

// Whether the model's weights were saved in bfloat16 or float16, by its config.json.
bool is_half_precision(const std::string& directory) {
  const models::HfConfig config = models::HfConfig::load(directory);
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto it = config.json().find(key); it != config.json().end() && it->is_string())
      return *it == "bfloat16" || *it == "float16";
  return false;
}

}  // namespace

models::Storage ModelFlags::kept() const {
  const bool chosen = !dtype.empty() || !storage.empty() || !arithmetic.empty();
  const bool as_model = !chosen && !models::chosen_device().is_cpu() && is_half_precision(model);
  models::Storage kept = models::storage_of({as_model ? "bfloat16" : dtype, storage});
  const std::string product = as_model ? "fast" : arithmetic;
  kept.arithmetic = ops::arithmetic_named(product).value_or(ops::Arithmetic::kExact);
  check<ConfigError>(models::uses_arithmetic(kept, model), "--arithmetic ", product, ": expected ",
                     kept.arithmetic == ops::Arithmetic::kInteger
                         ? "weights of 8 or fewer bits, as --storage int8 or nf4 makes them"
                         : "--dtype or --storage bfloat16 with it",
                     kept.arithmetic == ops::Arithmetic::kAmx ? ", or quantized weights" : "");
  if (as_model) kept.cache_dtype = ops::CacheDtype::kBFloat16;
  const auto found = std::ranges::find(kCacheDtypes, cache_dtype);  // none: the default
  if (found != kCacheDtypes.end())
    kept.cache_dtype = static_cast<ops::CacheDtype>(found - kCacheDtypes.begin());
  return kept;
}

CLI::Option* InputFlags::add_to(CLI::App& app, const std::string& rows) {
  app.add_option("--columns", columns,
                 "names of the rows' fields in the file, as in prompt=question or "
                 "'{prompt: question}', or paths in its objects (answer=reward_model.ground_truth)")
      ->expected(1, 100);
  return app.add_option(
      "--input", input,
      "file, directory or pattern of rows, data set id (openai/gsm8k:main/test), or - for "
      "standard input: " +
          rows);
}

void InputFlags::add_prompts_as(CLI::App& app) {
  app.add_option_function<std::string>(
         "--prompts-as", [this](const std::string& how) { prompts_as_user = how == "user"; },
         "how a text prompt is read (data.prompts_as): text (default), or user, a user message")
      ->check(CLI::IsMember({"text", "user"}));
}

std::map<std::string, std::string> InputFlags::renamed() const {
  // Words of {prompt: question}, which a shell takes apart at the blank.
  std::string text;
  for (const std::string& column : columns) text += (text.empty() ? "" : " ") + column;
  struct Columns {
    std::map<std::string, std::string> columns;
    void fields(Fields& f) { f.add("--columns", columns, "names"); }
  } out;
  if (text.empty()) return {};
  YamlNode value = text.starts_with('{') ? parse_yaml(text, "--columns") : YamlNode::scalar(text);
  YamlNode node = YamlNode::map();
  node.entries.push_back({"--columns", {}, std::move(value), {}});
  try {
    read_fields(node, "", Fields::of(out));
  } catch (const ConfigError&) {
    throw ConfigError(
        temper::str("--columns: found `", text,
                    "`, expected NAME=FIELD as in prompt=question, or {NAME: FIELD}"));
  }
  return out.columns;
}

}  // namespace temper::cli
