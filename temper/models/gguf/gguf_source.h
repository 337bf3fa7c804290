// The keys of a GGUF file's architecture, typed; errors name the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/io/gguf.h"

namespace temper::models {

class GgufSource {
 public:
  // `where` names the file. Throws ConfigError where it has no architecture.
  GgufSource(const GgufFile& file, std::string where);

  const std::string& architecture() const { return architecture_; }
  const std::string& where() const { return where_; }
  const GgufFile& file() const { return file_; }

  // "ARCHITECTURE.key", as are the keys of all that follow.
  std::string full(std::string_view key) const;
  bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }
  // A whole number from 0 on. The second form: the key must be there.
  int64_t number(std::string_view key, int64_t fallback) const;
  int64_t number(std::string_view key) const;
  // The double with the fewest decimals that rounds to the file's float32: mostly the original.
  double real(std::string_view key, double fallback) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, const std::string& fallback) const;
  // A number for each of so many layers: an array of at least as many, or one for all; empty: there
  // is no such key.
  std::vector<double> by_layer(std::string_view key, int64_t layers) const;

  bool has_tensor(const std::string& name) const;
  // Whether some block has a tensor of this name: "attn_q.bias".
  bool any_block_has(std::string_view name) const;
  // The shape of a tensor. Throws ConfigError where it is missing.
  const std::vector<int64_t>& shape_of(const std::string& name) const;
  // The values of a float32 tensor of one dimension; empty: there is none.
  std::vector<float> values_of(const std::string& name) const;

  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;

 private:
  const GgufFile& file_;
  std::string where_, architecture_;
};

// All numbers of a value, its flags as 0 and 1; nullopt: it is text.
std::optional<std::vector<double>> gguf_numbers(const GgufValue& value);
// The value as messages show it.
std::string gguf_shown(const GgufValue& value);

}  // namespace temper::models
