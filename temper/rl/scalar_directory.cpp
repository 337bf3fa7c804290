#include "temper/rl/scalar_directory.h"

#include <filesystem>
#include <optional>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/family.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/text/tokens.h"

namespace temper::rl {
namespace {

// The model directory: of an adapter, its base.
std::string base_of(const std::string& directory) {
  if (!std::filesystem::exists(directory + "/adapter_config.json")) return directory;
  const std::optional<std::string> base = models::find_adapter_base(directory);
  check<ConfigError>(base.has_value(), directory,
                     "/adapter_config.json: no `base_model_name_or_path`");
  return *base;
}

}  // namespace

ScalarPlace find_scalar_directory(const std::string& path, const std::string& where,
                                  const std::string& wanted) {
  const std::string directory = models::named_model(path, where + wanted, true);
  ScalarPlace place{base_of(directory), {}};
  if (place.base != directory) place.adapter = directory;
  models::HfConfig::load(place.base);  // that it is a model at all, before what it lacks
  check<ConfigError>(models::has_scalar_head(place.base, place.adapter), where, directory, ": no ",
                     wanted, ": it has no scalar head, score.weight; `temper reward` trains one");
  return place;
}

models::Storage trained_storage(const ScalarPlace& place) {
  if (place.adapter.empty()) return {};
  const auto trained = models::adapter_base_format(place.adapter);
  return trained ? models::storage_of(*trained) : models::Storage();
}

ScalarDirectory load_scalar_directory(const ScalarPlace& place) {
  models::Storage storage = trained_storage(place);
  storage.whole = true;
  ScalarDirectory found{models::load_scalar_model(place.base, storage), place.base,
                        !place.adapter.empty()};
  if (found.adapted) models::load_adapter(*found.model, place.adapter);  // trained with LoRA
  return found;
}

void check_reads_tokens(const std::string& path, const Tokenizer* tokenizer, int64_t vocabulary,
                        const std::string& where) {
  const std::string directory = models::named_model(path, where, true);
  const auto theirs = Tokenizer::load_directory(directory);
  const int64_t count = models::vocabulary_of(base_of(directory));
  if (tokenizer && theirs)
    check<ConfigError>(!first_difference(*tokenizer, *theirs), where,
                       " has another tokenizer than the policy, whose token ids it must read");
  else
    check<ConfigError>(count == vocabulary, where, " has ", count, " tokens, the policy ",
                       vocabulary, "; it must read the policy's token ids");
}

}  // namespace temper::rl
