// Models with a scalar head that a user names: reward models and critics.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "temper/models/model.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::rl {

struct ScalarDirectory {
  std::unique_ptr<models::ScalarModel> model;
  std::string base;      // directory of the config; for an adapter, the base model's
  bool adapted = false;  // the model has the directory's adapter
};

// Where a model with a scalar head lies: a sequence classifier's directory, or that of an adapter
// with such a head and its base's.
struct ScalarPlace {
  std::string base, adapter;  // adapter empty: there is none
};
// Reads no weights. Throws ConfigError that begins with `where`; `wanted` is the kind of model that
// the error names ("reward model").
ScalarPlace find_scalar_directory(const std::string& path, const std::string& where,
                                  const std::string& wanted);
// The format of the base's weights when the adapter was trained; for a directory without an
// adapter, that of its files.
models::Storage trained_storage(const ScalarPlace& place);
// Loads the model, with one label. The base under an adapter is loaded in the format in which the
// adapter was trained (NF4 after QLoRA).
ScalarDirectory load_scalar_directory(const ScalarPlace& place);

// Throws ConfigError that begins with `where` for a model whose tokens are not the policy's: its
// tokenizer's, or where one of them has none, as many as `vocabulary`.
void check_reads_tokens(const std::string& path, const Tokenizer* tokenizer, int64_t vocabulary,
                        const std::string& where);

}  // namespace temper::rl
