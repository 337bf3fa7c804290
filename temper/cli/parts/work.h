// What the working verbs share: models with adapters, rows of prompts, and sampling with progress.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/cli/parts/images.h"
#include "temper/cli/parts/options.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/image/decoded.h"
#include "temper/models/model.h"
#include "temper/text/chat/chat_template.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::cli {

// Warns on stderr where the adapter was made for another model that is on this machine, too.
void warn_of_other_base(const std::string& model_dir, const std::string& adapter);
// The same, and where the adapter was trained on quantized weights and --storage is another format.
void warn_of_mismatch(const ModelFlags& flags, const std::string& adapter);
// Computes on what --device and --backend say. Throws ConfigError for what this build lacks.
void use_device(const ModelFlags& flags);
// The model with its adapters.
std::unique_ptr<models::CausalLM> load(const ModelFlags& flags);
// nn::Context::adapter of the adapter that the row's field `adapter` names; 0, the one without a
// name or the base model, where it names none. Throws DataError for an unknown name.
int adapter_of(const ModelFlags& flags, const Json& row, const std::string& where);
std::vector<int> adapters_of(const ModelFlags& flags, std::span<const data::PromptRow> rows);

// The dtype of weights that a verb writes: adds the flag --dtype (float32, bfloat16 or float16);
// `dtype` keeps its value where it is not given.
void add_written_dtype(Flags& f, std::string& dtype);
at::ScalarType scalar_type_of(const std::string& dtype);

// The tokenizer of a model directory, or null where it has none.
std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& directory);

// The field's ids, checked against the vocabulary. `where` names the row.
std::vector<int32_t> token_field(const Json& row, const char* field, int64_t vocabulary,
                                 const std::string& where);

// The rows of --input, their fields renamed as --columns says; a text prompt is a message where
// --prompts-as says so.
class InputRows {
 public:
  explicit InputRows(const InputFlags& flags);
  // False: there are no more. Throws DataError where there was none.
  bool next(Json& row);
  std::string where() const { return rows_->where(); }
  const std::string& directory() const { return directory_; }  // of the row's file

 private:
  void open_next();

  std::vector<std::string> files_;  // not yet opened, the last one first
  std::unique_ptr<data::RowReader> rows_;
  std::map<std::string, std::string> renamed_;
  bool prompts_as_user_;
  std::string input_, directory_;
  bool any_ = false;
};

// The chat templates of a model and of its adapters.
class ChatTemplates {
 public:
  explicit ChatTemplates(const ModelFlags& flags);
  // By the numbers of adapter_of: the adapter's own where its directory has one, else the model's,
  // which is one object for all of them; null where there is none. Read when it is first asked for.
  // Throws DataError.
  std::shared_ptr<const ChatTemplate> of(int adapter);
  // Makes templates write the date of this call, unless --template-date gave one.
  void read_date();

 private:
  std::string model_;
  jinja::RenderOptions render_;
  std::vector<std::string> adapters_;                          // directories; empty: none
  std::map<int, std::shared_ptr<const ChatTemplate>> loaded_;  // -1: the model's
};

// Prompts of rows {"tokens"}, {"prompt_tokens"}, {"prompt"} (text or messages), {"messages"} or
// {"prompt_ids"}, with their images.
class PromptReader {
 public:
  // vocabulary: the model's. The chat template of a row's adapter is loaded when a row has
  // messages.
  PromptReader(const ModelFlags& flags, std::shared_ptr<const Tokenizer> tokenizer,
               int64_t vocabulary);
  // Says on stderr, once, where a conversation's answer is left out. `directory`: paths of images
  // are relative to it. Throws DataError that begins with `where`.
  data::PromptRow read(Json row, const std::string& where, const std::string& directory = "");
  // As ChatTemplates::read_date().
  void read_date() { templates_.read_date(); }

 private:
  data::PromptRow read_prompt(Json row, const std::string& where);
  data::PromptRow read_tokens(Json row, const char* field, const std::string& where) const;

  ModelFlags flags_;
  ChatTemplates templates_;
  data::PromptFormat format_;
  DecodedImages decoded_;
  bool said_answer_ = false;
};
std::vector<data::PromptRow> read_all(InputRows& rows, PromptReader& reader);

// Warns on stderr where prompts and --max-new-tokens lead beyond the positions that the model was
// made for (max_position_embeddings of its config.json).
void warn_beyond_positions(const std::string& model_dir, std::span<const data::PromptRow> prompts,
                           int64_t max_new_tokens);

// Completions of all prompts under their `adapters`, `done` in order of (index, sample), with
// progress on a terminal. Gives what the engine counted; of a beam search nothing.
// Throws Interrupted when a signal asks to stop.
generate::Engine::Statistics sample(models::CausalLM& model,
                                    const std::vector<data::PromptRow>& prompts,
                                    const SamplingFlags& sampling, const BatchFlags& batch,
                                    std::shared_ptr<const Tokenizer> tokenizer,
                                    const std::vector<int>& adapters,
                                    const std::function<void(generate::Completion)>& done);

}  // namespace temper::cli
