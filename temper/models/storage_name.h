// The names of model.storage and --storage.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "temper/ops/formats.h"

namespace temper::models {

// Those of ops::kStorageNames, in their order, and that of weights in their files' formats.
enum class StorageName { kFloat32, kBFloat16, kInt8, kNf4, kMxFp4, kFile };
inline constexpr const char* kFileStorage = "file";

// None of kFile.
constexpr std::optional<ops::WeightFormat> format_of(StorageName name) {
  static_assert(static_cast<size_t>(StorageName::kFile) == ops::kStorageNames.size());
  if (name == StorageName::kFile) return {};
  return ops::kWeightFormats[static_cast<size_t>(name)].format;
}
// None where no storage has that name.
constexpr std::optional<StorageName> storage_named(std::string_view name) {
  if (name == kFileStorage) return StorageName::kFile;
  const std::optional<ops::WeightFormat> format = ops::format_named(name);
  if (!format) return {};
  return static_cast<StorageName>(*format);
}

}  // namespace temper::models
