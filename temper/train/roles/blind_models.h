// Models that read the rows of a run beside the policy and see no images: the rows that have some
// are refused as they are read, by the run and by `temper check`.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "temper/base/error.h"
#include "temper/train/config.h"

namespace temper::train {

// How an error begins about rows with images, where the model that the config's `key` names sees
// none; empty: it sees them. `directory` resolves `path`; what it throws is left to those who load
// the model, and so are models that cannot be read.
std::string blind_model(const RunConfig& config, const char* key, const std::string& path,
                        const std::function<std::string()>& directory);
// The same of the directory or id of a model with a head over the vocabulary.
std::string blind_model(const RunConfig& config, const char* key, const std::string& path);
// The same of what never sees images.
std::string blind(const RunConfig& config, const char* key, const std::string& found);

// Throws ConfigError that begins with `blind`, unless that is empty or the row at `where` has no
// images.
void check_seen(const std::string& blind, bool has_images, const std::string& where);

template <class Row>
bool has_images(const Row& row) {
  if constexpr (requires { row.segments; })
    return std::ranges::any_of(row.segments,
                               [](const auto& segment) { return !segment.images.empty(); });
  else
    return !row.images.empty();
}

// The readers throw ConfigError, as check_seen(), for a row with images.
template <class Row>
void refuse_unseen(VerbRows<Row>& rows, const std::string& blind) {
  if (blind.empty()) return;
  for (auto* read : {&rows.train, &rows.evaluation})
    *read = [read = std::move(*read), blind](const data::RowOrder::Drawn& drawn,
                                             data::LoaderState& state) {
      std::optional<Row> row = read(drawn, state);
      if (row) check_seen(blind, has_images(*row), drawn.file->where(drawn.row));
      return row;
    };
}

}  // namespace temper::train
