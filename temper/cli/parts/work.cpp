#include "temper/cli/parts/work.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/parts/progress.h"
#include "temper/data/images/row_images.h"
#include "temper/data/read/row_set.h"
#include "temper/data/rows/row_fields.h"
#include "temper/generate/beams.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/device.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/models/files/untied_head.h"
#include "temper/models/vision/image_rows.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

// Fields, besides `tokens`, that are a prompt or a conversation that holds one.
constexpr const char* kPromptFields[] = {"prompt", "prompt_ids", "messages", "conversations",
                                         "instruction"};

}  // namespace

void warn_of_other_base(const std::string& model_dir, const std::string& adapter) {
  namespace fs = std::filesystem;
  const std::optional<std::string> name = models::adapter_base(adapter);
  std::optional<std::string> base;
  try {
    base = models::find_adapter_base(adapter);
  } catch (const ConfigError&) {  // a hub's model that is not on this machine
  }
  // Another path may hold the same model; one that is here and is another directory does not.
  std::error_code none;
  if (!base || !fs::exists(*base, none) || fs::equivalent(*base, model_dir, none)) return;
  std::cerr << "warning: " << printable(adapter) << " was made for " << printable(*name)
            << ", not for " << printable(model_dir) << std::endl;
}

void warn_of_mismatch(const ModelFlags& flags, const std::string& adapter) {
  warn_of_other_base(flags.model, adapter);
  const std::optional<models::BaseFormat> trained = models::adapter_base_format(adapter);
  if (!trained || !trained->is_rounded() || trained->storage == flags.storage) return;
  const std::optional<ops::WeightFormat> format = ops::format_named(trained->storage);
  if (flags.kept().file && format && models::held_formats(flags.model).contains(*format)) return;
  std::cerr << "warning: " << printable(adapter) << " was trained on " << trained->storage
            << " weights, and these are not: --storage " << trained->storage
            << " gives what it was trained with" << std::endl;
}

void use_device(const ModelFlags& flags) {
  models::use_device({flags.device, flags.backend, "--device", "--backend"});
}

std::unique_ptr<models::CausalLM> load(const ModelFlags& flags) {
  use_device(flags);
  auto model = models::load_model(flags.model, flags.kept());
  if (const std::string untied = models::untied_head(flags.model); !untied.empty())
    std::cerr << "warning: " << printable(untied) << std::endl;
  // In this order they have the numbers of adapter_of.
  for (const NamedAdapter& named : flags.named) {
    warn_of_mismatch(flags, named.directory);
    models::load_frozen_adapter(*model, named.directory);
  }
  if (!flags.adapter.empty()) {
    warn_of_mismatch(flags, flags.adapter);
    models::load_adapter(*model, flags.adapter);
  }
  return model;
}

int adapter_of(const ModelFlags& flags, const Json& row, const std::string& where) {
  const auto field = row.find("adapter");
  if (field == row.end() || field->is_null()) return 0;
  std::string names;
  for (size_t i = 0; i < flags.named.size(); ++i) {
    if (*field == flags.named[i].name) return static_cast<int>(i) + 1;
    names += (i ? ", " : "") + flags.named[i].name;
  }
  throw DataError(temper::str(where, ": `adapter`: found ", dump_json(*field), ", expected ",
                              names.empty() ? "none: --adapter NAME=DIR gives an adapter a name"
                                            : names + " (--adapter NAME=DIR)"));
}

std::vector<int> adapters_of(const ModelFlags& flags, std::span<const data::PromptRow> rows) {
  std::vector<int> out;
  for (const data::PromptRow& row : rows) out.push_back(adapter_of(flags, *row.fields, row.where));
  for (size_t i = 0; i < flags.named.size(); ++i)
    if (std::find(out.begin(), out.end(), static_cast<int>(i) + 1) == out.end())
      std::cerr
          << "warning: no row has \"adapter\": \"" << flags.named[i].name
          << "\", so this adapter is not used; --adapter DIR, without a name, is for every row"
          << std::endl;
  return out;
}

void add_written_dtype(Flags& f, std::string& dtype) {
  f.add("--dtype", dtype, "dtype of the written weights",
        one_of({"float32", "bfloat16", "float16"}));
}

at::ScalarType scalar_type_of(const std::string& dtype) {
  if (dtype == "bfloat16") return at::kBFloat16;
  return dtype == "float16" ? at::kHalf : at::kFloat;
}

std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& directory) {
  return Tokenizer::load_directory(directory);
}

std::vector<int32_t> token_field(const Json& row, const char* field, int64_t vocabulary,
                                 const std::string& where) {
  const auto it = row.find(field);
  check<DataError>(it != row.end(), where, ": no `", field, "`");
  return data::token_ids(*it, field, vocabulary, where);
}

InputRows::InputRows(const InputFlags& flags)
    : files_(data::find_row_files(flags.input == "-" ? "/dev/stdin" : flags.input)),
      renamed_(flags.columns),
      prompts_as_user_(flags.prompts_as == data::PromptsAs::kUser),
      input_(flags.input == "-" ? "standard input" : flags.input) {
  std::reverse(files_.begin(), files_.end());
  open_next();
}

void InputRows::open_next() {
  rows_ = std::make_unique<data::RowReader>(files_.back());
  const bool piped = files_.back() == "/dev/stdin";
  directory_ = piped ? "" : std::filesystem::path(files_.back()).parent_path().string();
  files_.pop_back();
}

bool InputRows::next(Json& row) {
  while (!rows_->next(row)) {
    check<DataError>(any_ || !files_.empty(), input_, ": no rows");
    if (files_.empty()) return false;
    open_next();
  }
  any_ = true;
  data::rename_columns(row, renamed_, rows_->where());
  if (prompts_as_user_ && row.contains("prompt") && row["prompt"].is_string())
    row["prompt"] = Json::array({{{"role", "user"}, {"content", row["prompt"]}}});
  return true;
}

ChatTemplates::ChatTemplates(const ModelFlags& flags)
    : model_(flags.model), render_(render_options(flags.template_date)), adapters_{flags.adapter} {
  for (const NamedAdapter& named : flags.named) adapters_.push_back(named.directory);
}

std::shared_ptr<const ChatTemplate> ChatTemplates::of(int adapter) {
  if (const auto found = loaded_.find(adapter); found != loaded_.end()) return found->second;
  std::shared_ptr<const ChatTemplate> chat;
  ChatOptions options;
  options.render = render_;
  if (adapter >= 0) options.adapter = adapters_.at(static_cast<size_t>(adapter));
  if (adapter >= 0 && !ChatTemplate::has_own(model_, options.adapter))
    chat = of(-1);
  else
    chat = ChatTemplate::find(model_, options);
  loaded_[adapter] = chat;
  return chat;
}

void ChatTemplates::read_date() {
  for (auto& [adapter, chat] : loaded_)
    if (chat) chat = std::make_shared<const ChatTemplate>(chat->at_now());
}

PromptReader::PromptReader(const ModelFlags& flags, std::shared_ptr<const Tokenizer> tokenizer,
                           int64_t vocabulary)
    : flags_(flags), templates_(flags) {
  format_.tokenizer = std::move(tokenizer);
  format_.max_length = INT64_MAX;
  format_.vocabulary = vocabulary;
  format_.images = image_format(flags.model, format_.tokenizer.get());
}

data::PromptRow PromptReader::read(Json row, const std::string& where,
                                   const std::string& directory) {
  format_.directory = directory;
  data::PromptRow out = read_prompt(std::move(row), where);
  decoded_.check(out.images, where);
  return out;
}

data::PromptRow PromptReader::read_tokens(Json row, const char* field,
                                          const std::string& where) const {
  data::PromptRow out{nullptr, token_field(row, field, format_.vocabulary, where), where};
  check<DataError>(!out.tokens.empty(), where, ": the prompt has no tokens");
  const data::RowImages images = data::place_images(format_, row, {}, where);
  out.images = data::spans_of(format_, images, out.tokens, where);
  out.fields = std::make_shared<const Json>(std::move(row));
  return out;
}

data::PromptRow PromptReader::read_prompt(Json row, const std::string& where) {
  const auto has = [&row](const char* field) { return row.contains(field); };
  if (has("tokens")) return read_tokens(std::move(row), "tokens", where);
  const bool known = std::ranges::any_of(kPromptFields, has);
  if (!known && has("prompt_tokens")) return read_tokens(std::move(row), "prompt_tokens", where);
  check<DataError>(known, where, ": the row has ", data::field_names(row),
                   "; expected `tokens`, `prompt` or `messages`; --columns renames fields, as in "
                   "prompt=question");
  const bool conversation = !has("prompt_ids") && !(has("prompt") && row["prompt"].is_string());
  if (conversation) format_.chat = templates_.of(adapter_of(flags_, row, where));
  bool truncated = false;
  data::PromptRow out = *data::read_prompt_row(format_, std::move(row), where, &truncated);
  if (out.has_answer && !std::exchange(said_answer_, true))
    std::cerr << "note: " << printable(where)
              << ": the conversation ends with an answer of the assistant, which is left out: a "
                 "completion is sampled in its place, here and in other such rows"
              << std::endl;
  return out;
}

std::vector<data::PromptRow> read_all(InputRows& rows, PromptReader& reader) {
  std::vector<data::PromptRow> prompts;
  Json row;
  while (rows.next(row))
    prompts.push_back(reader.read(std::move(row), rows.where(), rows.directory()));
  return prompts;
}

void warn_beyond_positions(const std::string& model_dir, std::span<const data::PromptRow> prompts,
                           int64_t max_new_tokens) {
  const int64_t positions =
      models::HfConfig::load(model_dir).integer("max_position_embeddings", INT32_MAX);
  const auto is_beyond = [&](const data::PromptRow& prompt) {
    return static_cast<int64_t>(prompt.tokens.size()) + max_new_tokens > positions;
  };
  const auto first = std::find_if(prompts.begin(), prompts.end(), is_beyond);
  if (first == prompts.end()) return;
  std::cerr << "warning: " << printable(first->where) << ": " << first->tokens.size()
            << " tokens and " << max_new_tokens
            << " new ones (--max-new-tokens) are more than the model's "
            << "max_position_embeddings, " << positions;
  const auto count = std::count_if(prompts.begin(), prompts.end(), is_beyond);
  if (count > 1) std::cerr << "; so are those of " << count - 1 << " more rows";
  std::cerr << std::endl;
}

generate::Engine::Statistics sample(models::CausalLM& model,
                                    const std::vector<data::PromptRow>& prompts,
                                    const SamplingFlags& sampling, const BatchFlags& batch,
                                    std::shared_ptr<const Tokenizer> tokenizer,
                                    const std::vector<int>& adapters,
                                    const std::function<void(generate::Completion)>& done) {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<ExternalRows>> rows;
  for (const data::PromptRow& prompt : prompts) {
    tokens.push_back(prompt.tokens);
    rows.push_back(models::external_rows(prompt.images));
  }
  catch_interrupts();
  Progress progress("sampled", static_cast<int64_t>(prompts.size()) * batch.num_samples);
  const auto finished = [&](generate::Completion c) {
    progress.advance(1, 0);
    done(std::move(c));
  };
  const auto look = [] {
    if (interrupted()) throw Interrupted();
  };
  const auto on_token = [&](const generate::Completion& c) {
    look();
    progress.advance(0, c.added);
  };
  if (batch.beams.beams == 1)
    return generate::generate(model, tokens, batch.num_samples, sampling.options, finished,
                              std::move(tokenizer), on_token, batch.engine.options, adapters, look,
                              rows);
  generate::beam_search(model, tokens, batch.num_samples, sampling.options, batch.beams, finished,
                        std::move(tokenizer), on_token, batch.engine.options, adapters, rows);
  return {};
}

}  // namespace temper::cli
