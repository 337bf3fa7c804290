// The tokenizers of tests/golden.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/json.h"
#include "temper/text/tokenizer.h"
#include "tests/golden.h"

namespace temper {

// tests/golden/tokenizers/NAME.json: `tokenizer` and what transformers' gives for texts.
inline Json golden_tokenizer_file(const std::string& name) {
  return read_json_file(golden_path("tokenizers/" + name + ".json"));
}
inline std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  const Json rows = golden_tokenizer_file(name);
  Json config = rows.at("tokenizer");
  if (rows.contains("tables_of")) {  // another file's: large ones are kept once
    const Json owner = golden_tokenizer_file(rows.at("tables_of").get<std::string>());
    for (const char* table : {"vocab", "merges"})
      config["model"][table] = owner.at("tokenizer").at("model").at(table);
  }
  return Tokenizer::parse(config.dump(), name);
}

}  // namespace temper
