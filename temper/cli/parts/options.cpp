#include "temper/cli/parts/options.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/generate/sampling/option_values.h"
#include "temper/models/config.h"
#include "temper/models/device.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/gguf/gguf_files.h"
#include "temper/text/chat/template_date.h"

namespace temper::cli {

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

namespace {

// The directory of the model that --model names, and the adapter where it is one.
std::string take_model(const std::string& path, std::string& adapter) {
  const std::string directory = models::resolve_model_path(path);
  const auto has = [&](const char* file) { return is_file(directory + "/" + file); };
  if (has("config.json") || !has("adapter_config.json")) return directory;
  const std::optional<std::string> base = models::find_adapter_base(directory);
  if (!base || !is_file(*base + "/config.json"))
    throw ConfigError(str("--model: ", path, " is an adapter, and its base model ",
                          base.value_or(""),
                          base ? " is not here" : "is not named in adapter_config.json",
                          "; give it as --model BASE --adapter ", path));
  adapter = directory;
  return *base;
}

}  // namespace

void add_base_model(Flags& f, std::string& model, std::string& adapter) {
  f.add(
      "--model", model,
      "directory of a Hugging Face model or of an adapter on one, a .gguf file, or a model's id in "
      "the local cache",
      required());
  f.then([&] {
    std::string own;
    model = take_model(model, own);
    if (adapter.empty()) adapter = own;
  });
}

void add_tokenizer(Flags& f, const std::string& model, std::string& tokenizer) {
  f.add("--tokenizer", tokenizer,
        "for a .gguf file: a directory with tokenizer.json, whose tokenizer and chat template "
        "replace the file's");
  f.then([&model, &tokenizer] {
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

void ModelFlags::take_adapters(bool may_be_named) {
  for (const std::string& one : adapters_) {
    const size_t equals = end_of_name(one);
    if (equals == 0) {
      check<ConfigError>(!one.starts_with("="), "--adapter: found `", one, "`, expected NAME=DIR");
      check<ConfigError>(adapter.empty(), "--adapter: found two unnamed adapters, ", adapter,
                         " and ", one, may_be_named ? "; give them names: NAME=DIR" : "");
      adapter = one;
      continue;
    }
    NamedAdapter found{one.substr(0, equals), one.substr(equals + 1)};
    check<ConfigError>(may_be_named, "--adapter: found `", one,
                       "`, expected a directory: rows cannot choose adapters here");
    for (const NamedAdapter& other : named)
      check<ConfigError>(other.name != found.name, "--adapter: two adapters have the name ",
                         found.name);
    named.push_back(std::move(found));
  }
  std::vector<std::string> all;
  for (const NamedAdapter& one : named) all.push_back(one.directory);
  if (!adapter.empty()) all.push_back(adapter);
  models::use_tokens_of_adapters(model, all);
}

void ModelFlags::add_to(Flags& f, bool rows_name_adapters) {
  add_base_model(f, model, adapter);
  add_tokenizer(f, model, tokenizer);
  f.add("--adapter", adapters_,
        rows_name_adapters ? "directory of a PEFT LoRA or DoRA adapter; or NAME=DIR (may be "
                             "repeated), for rows with \"adapter\": \"NAME\" or requests with "
                             "\"model\": \"NAME\" (others: the unnamed adapter, or none)"
                           : "directory of a PEFT LoRA or DoRA adapter");
  f.then([this, rows_name_adapters] { take_adapters(rows_name_adapters); });
  f.add("--device", device,
        "device on which the model computes: auto (the default: a GPU where this program and "
        "machine have one, else the CPU), cpu, cuda or cuda:N")
      .choices = {"auto", "cpu", "cuda"};  // cuda:N is as good
  f.add("--backend", backend,
        "implementation of the operations: native (CPU kernels), aten (LibTorch's operators) or "
        "auto (default): TEMPER_BACKEND if it is set, else native on the CPU and aten elsewhere",
        one_of({"auto", "native", "aten"}));
  f.add("--dtype", dtype,
        "dtype of weights in matrix products: float32 or bfloat16; sums are float32; default: "
        "float32 on the CPU; elsewhere bfloat16 for models saved in bfloat16 or float16, float32 "
        "for others",
        one_of({"float32", "bfloat16"}));
  f.add("--arithmetic", arithmetic,
        "how matrices are multiplied: exact: by activations in float32; fast: bfloat16 weights by "
        "activations rounded to bfloat16; amx: the same in the order of Intel's AMX, for quantized "
        "weights, too; integer: quantized weights by activations rounded to 8 bits; default: exact "
        "on the CPU, fast elsewhere",
        one_of({ops::kArithmeticNames.begin(), ops::kArithmeticNames.end()}));
  f.add("--storage", storage,
        "storage format of weights: " + models::storage_help() +
            "; the rest follows --dtype; default: file",
        one_of(models::storage_names()));
  f.add("--cache-dtype", cache_dtype,
        "dtype to which attention rounds keys and values: float32 (default on the CPU), float16 or "
        "bfloat16, which halve the key-value cache; default elsewhere: bfloat16 for models saved "
        "in 16 bits. Use the one of training (rollout.cache_dtype)");
}

void add_template_date(Flags& f, std::string& date) {
  f.add("--template-date", date,
        "date for chat templates that write today's date (strftime_now), as in 2026-11-23; "
        "default: now. That of a run is data.template_date in its config.yaml");
}

jinja::RenderOptions render_options(const std::string& date) {
  jinja::RenderOptions options;
  if (!date.empty()) options.clock = [now = parse_date(date, "--template-date")] { return now; };
  return options;
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
  check<ConfigError>(
      models::uses_arithmetic(kept, {}) ||  // else the files are opened
          (kept.file && models::uses_arithmetic(kept, models::held_formats(model))),
      "--arithmetic ", product, ": expected ",
      kept.arithmetic == ops::Arithmetic::kInteger
          ? "quantized weights with it (not FP8), as --storage int8 or nf4 makes them"
          : "--dtype or --storage bfloat16 with it",
      kept.arithmetic == ops::Arithmetic::kAmx ? ", or quantized weights" : "");
  if (as_model) kept.cache_dtype = ops::CacheDtype::kBFloat16;
  if (cache_dtype) kept.cache_dtype = *cache_dtype;
  return kept;
}

void InputFlags::add_to(Flags& f, const std::string& rows, const Rule& rule) {
  f.add("--columns", columns,
        "names of the rows' fields in the file, as in prompt=question or '{prompt: question}', or "
        "paths in its objects (answer=reward_model.ground_truth)")
      .several = true;
  f.add("--input", input,
        "file, directory or pattern of rows, data set id (openai/gsm8k:main/test), or - for "
        "standard input: " +
            rows,
        rule);
}

void InputFlags::add_prompts_as(Flags& f) {
  f.add("--prompts-as", prompts_as,
        "how a text prompt is read (data.prompts_as): text (default), or user, a user message");
}

}  // namespace temper::cli
