// Flags of the working verbs, on CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "temper/cli/verbs.h"
#include "temper/generate/beam_search.h"
#include "temper/generate/engine.h"
#include "temper/generate/sampling/option_values.h"
#include "temper/models/model.h"
#include "temper/text/jinja/template.h"

namespace temper::cli {

// Parses the arguments; false when help was asked for and printed. Throws ConfigError.
bool parse_flags(CLI::App& app, const Arguments& arguments);

// Checks of a flag's value that say in a line what was found and what was expected.
CLI::Validator whole_number();  // of 64 bits, without a sign
CLI::Validator at_least_one();
CLI::Validator non_negative();
CLI::Validator above_zero();
CLI::Validator any_number();  // no NaN
// A number that is within [low, high], which NaN is not; `expected` says so in words.
CLI::Validator within(double low, double high, const std::string& expected);

// A flag as --help shows it.
struct Flag {
  std::string name, help;  // "--device"
  std::vector<std::string> choices;
  bool takes_value;
};
// The flags that a verb and its tools declare; none where it parses its arguments itself.
std::vector<Flag> flags_of(const Verb& verb);
// The tools of a verb that has some (temper data stats): CLI11's subcommands.
std::vector<std::string> tools_of(const Verb& verb);

// The words of a command line as a POSIX shell splits it: at blanks, with '..', ".." and \ as
// quotes. Nothing is expanded, and |, > and the like mean nothing. Throws ConfigError where a quote
// is not closed.
std::vector<std::string> split_command(const std::string& line);

// --model: a directory, a GGUF file, or the id of a model in the local Hugging Face cache, whose
// snapshot it becomes.
CLI::Option* add_model(CLI::App& app, std::string& model, const std::string& help);
// --tokenizer of that model: models::use_tokenizer.
void add_tokenizer(CLI::App& app, const std::string& model, std::string& tokenizer);

// The directory of the model that --model names. An adapter's directory stands for its base model
// with the adapter on it: `adapter` is then set. Throws CLI::ValidationError where that base is not
// here.
std::string take_model(const std::string& path, std::string& adapter);

// --storage.
void add_storage(CLI::App& app, std::string& storage);

// An adapter that rows ask for by its name.
struct NamedAdapter {
  std::string name, directory;
};

// --model and --adapter, as several verbs take them.
struct ModelFlags {
  std::string model, device = "auto", backend = "auto", dtype, storage, arithmetic, cache_dtype;
  std::string tokenizer;            // --tokenizer DIR; empty: none
  std::string adapter;              // --adapter DIR; empty: none
  std::vector<NamedAdapter> named;  // --adapter NAME=DIR, where the verb has rows that name one
  std::string template_date;        // --template-date, where the verb has it; empty: now
  void add_to(CLI::App& app, bool rows_name_adapters = false);
  // What --dtype, --storage, --arithmetic and --cache-dtype say, on the chosen device.
  models::Storage kept() const;

 private:
  void take_adapters(const std::vector<std::string>& given, bool may_be_named);
};

// Adds the flag --template-date.
void add_template_date(CLI::App& app, std::string& date);
// Render options whose clock shows `date` (YYYY-MM-DD, with or without a time), or now where it is
// empty. Throws ConfigError naming the flag.
jinja::RenderOptions render_options(const std::string& date);

// --input and --columns.
struct InputFlags {
  std::string input;
  std::vector<std::string> columns;
  bool prompts_as_user = false;                                 // data.prompts_as: user
  CLI::Option* add_to(CLI::App& app, const std::string& rows);  // gives --input
  void add_prompts_as(CLI::App& app);
  // What --columns says: the verb's field -> the row's field. Throws ConfigError.
  std::map<std::string, std::string> renamed() const;
};

// How a completion is sampled.
struct SamplingFlags {
  generate::GenerationOptions options;
  void add_to(CLI::App& app);

 private:
  generate::GrammarChoice grammar_;
};

// Sets the options whose flags were not given to what the model's generation_config.json suggests,
// and says on stderr which. `app` has parsed the flags of SamplingFlags. Throws DataError.
void follow_suggested(const CLI::App& app, const std::string& model_dir,
                      generate::SamplingOptions& sampling);
// Where the options differ from what the file suggests, prints both to stderr. Throws DataError.
void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling);

// --speculative.
void add_speculative(CLI::App& app, generate::EngineOptions& engine);

// How many are sampled, and at once.
struct BatchFlags {
  int64_t num_samples = 1;
  generate::BeamOptions beams;
  generate::EngineOptions engine;
  void add_to(CLI::App& app);
};

}  // namespace temper::cli
