// Flags that several working verbs have.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/cli/verbs.h"
#include "temper/data/config_names.h"
#include "temper/generate/beam_search.h"
#include "temper/generate/config.h"
#include "temper/generate/engine.h"
#include "temper/models/model.h"
#include "temper/text/jinja/template.h"

namespace temper::cli {

// The words of a command line as a POSIX shell splits it: at blanks, with '..', ".." and \ as
// quotes. Nothing is expanded, and |, > and the like mean nothing. Throws ConfigError where a quote
// is not closed.
std::vector<std::string> split_command(const std::string& line);

// --model: a directory, a GGUF file, or the id of a model in the local Hugging Face cache, whose
// snapshot it becomes. An adapter's directory stands for its base model with the adapter on it:
// `adapter` is then set, unless --adapter names one. Throws ConfigError where that base is not
// here.
void add_base_model(Flags& f, std::string& model, std::string& adapter);
// --tokenizer of that model: models::use_tokenizer.
void add_tokenizer(Flags& f, const std::string& model, std::string& tokenizer);

// An adapter that rows ask for by its name.
struct NamedAdapter {
  std::string name, directory;
};

// --model and --adapter, as several verbs take them.
struct ModelFlags {
  std::string model, device = "auto", backend = "auto", dtype, storage, arithmetic;
  std::optional<ops::CacheDtype> cache_dtype;
  std::string tokenizer;            // --tokenizer DIR; empty: none
  std::string adapter;              // --adapter DIR; empty: none
  std::vector<NamedAdapter> named;  // --adapter NAME=DIR, where the verb has rows that name one
  std::string template_date;        // --template-date, where the verb has it; empty: now
  void add_to(Flags& f, bool rows_name_adapters = false);
  // What --dtype, --storage, --arithmetic and --cache-dtype say, on the chosen device.
  models::Storage kept() const;

 private:
  void take_adapters(bool may_be_named);
  std::vector<std::string> adapters_;  // as given
};

// Adds the flag --template-date.
void add_template_date(Flags& f, std::string& date);
// Render options whose clock shows `date` (YYYY-MM-DD, with or without a time), or now where it is
// empty. Throws ConfigError naming the flag.
jinja::RenderOptions render_options(const std::string& date);

// --input and --columns.
struct InputFlags {
  std::string input;
  std::map<std::string, std::string> columns;  // the verb's field -> the row's field
  data::PromptsAs prompts_as = data::PromptsAs::kText;
  void add_to(Flags& f, const std::string& rows, const Rule& rule = {});
  void add_prompts_as(Flags& f);
};

// How a completion is sampled.
struct SamplingFlags {
  generate::WrittenOptions written;  // set before add_to: the verb's own defaults
  int64_t seed = 0;
  generate::GenerationOptions options;  // what the flags mean
  void add_to(Flags& f);
  // Sets the options whose flags were not given to what the model's generation_config.json
  // suggests, and says on stderr which. Throws DataError.
  void follow_suggested(const std::string& model_dir);

 private:
  const Flags* flags_ = nullptr;
};

// Where the options differ from what the file suggests, prints both to stderr. Throws DataError.
void say_what_is_used(const std::string& model_dir, const generate::SamplingOptions& sampling);

// --cache-bytes.
void add_cache_bytes(Flags& f, generate::EngineOptions& engine);
// --max-batch, --cache-bytes and --speculative.
struct EngineFlags {
  generate::EngineOptions options;
  std::string speculative = "auto";
  void add_to(Flags& f);
};

// How many are sampled, and at once.
struct BatchFlags {
  int64_t num_samples = 1;
  generate::BeamOptions beams;
  EngineFlags engine;
  void add_to(Flags& f);
};

}  // namespace temper::cli
