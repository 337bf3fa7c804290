#include "temper/text/tokens.h"

#include <algorithm>

namespace temper {

std::optional<int32_t> first_difference(const Tokenizer& a, const Tokenizer& b) {
  for (int32_t id = 0; id < std::max(a.vocab_size(), b.vocab_size()); ++id)
    if (a.token_of(id) != b.token_of(id)) return id;
  return {};
}

}  // namespace temper
