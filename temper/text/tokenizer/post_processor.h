// The "post_processor" of a tokenizer.json: the special tokens around a text.
// Knows TemplateProcessing, ByteLevel (which moves offsets only) and Sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/text/json_field.h"

namespace temper {

class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing
  explicit PostProcessor(const JsonField& field) { add(field); }

  std::vector<int32_t> apply(std::vector<int32_t> ids) const;

  // The special tokens that apply() puts before a text and behind it.
  std::vector<int32_t> before() const;
  std::vector<int32_t> after() const;

 private:
  static constexpr int32_t kText = -1;
  void add(const JsonField& field);
  void add_template(const JsonField& field);

  std::vector<std::vector<int32_t>>
      templates_;  // each: ids of special tokens, and kText where the text goes
};

}  // namespace temper
