// The tokenizers of tests/golden.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/json.h"
#include "temper/text/tokenizer/tokenizer.h"
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
// Qwen2's with the marks of chatml as special tokens.
inline std::shared_ptr<const Tokenizer> tokenizer_with_marks() {
  Json file = golden_tokenizer_file("qwen2").at("tokenizer");
  int id = 0;
  for (const Json& token : file["added_tokens"]) id = std::max(id, token["id"].get<int>());
  for (const char* text : {"<|im_start|>", "<|im_end|>"}) {
    Json token = file["added_tokens"][0];
    token["id"] = ++id;
    token["content"] = text;
    file["added_tokens"].push_back(token);
  }
  return Tokenizer::parse(file.dump(), "qwen");
}

}  // namespace temper
