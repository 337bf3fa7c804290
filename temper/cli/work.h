// What the working verbs share: models with adapters, rows of tokens, and output written beside and
// renamed at the end.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "temper/base/json.h"
#include "temper/cli/options.h"
#include "temper/models/model.h"
#include "temper/text/tokenizer.h"

namespace temper::cli {

std::unique_ptr<models::CausalLM> load(const ModelFlags& flags);

// The tokenizer of a model directory, or null where it has none.
std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& directory);

// The field's ids, checked against the vocabulary. `where` names the row.
std::vector<int32_t> token_field(const Json& row, const char* field, int64_t vocabulary,
                                 const std::string& where);

// Lines of output. Nothing appears under the path until finish(); what an earlier run left is kept
// until then. A link is followed; a pipe or a device is written as it is.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  void line(const std::string& text);
  void finish();
  // Ends the file early: what it has stands in PATH.partial. Returns a message that says so.
  std::string stop();

 private:
  void close();
  void move_to(const std::string& path);

  std::string path_, temporary_;  // the latter empty where the path is written itself
  int64_t lines_ = 0;
  std::FILE* file_;
};

std::string json_list(const std::vector<int32_t>& values);
std::string json_list(const std::vector<float>& values);

}  // namespace temper::cli
