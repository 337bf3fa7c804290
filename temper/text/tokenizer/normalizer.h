// The "normalizer" of a tokenizer.json: what happens to text before it is split.
// Knows NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace and Sequence.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "temper/text/json_field.h"
#include "temper/text/tokenizer/pattern.h"
#include "temper/text/unicode.h"

namespace temper {

class Normalizer {
 public:
  Normalizer() = default;  // leaves text as it is
  explicit Normalizer(const JsonField& field) { add(field); }

  bool empty() const { return steps_.empty(); }

  // `at_start` says whether the first character stems from the start of the whole input; it is
  // updated (Strip may remove what stood there), for Metaspace's prepend_scheme "first". Throws
  // DataError where a text grows beyond all need, as only a tokenizer that was made for it does.
  std::string apply(std::string_view text, bool& at_start) const;

 private:
  struct Form {
    NormalForm form;
  };
  struct Lowercase {};
  struct Strip {
    bool left, right;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  using Step = std::variant<Form, Lowercase, Strip, Prepend, Replace>;

  void add(const JsonField& field);
  static std::string apply_step(const Step& step, std::string_view text, bool& at_start,
                                size_t most);

  std::vector<Step> steps_;
};

}  // namespace temper
