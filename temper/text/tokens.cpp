#include "temper/text/tokens.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/base/sha256.h"

namespace temper {

std::optional<int32_t> first_difference(const Tokenizer& a, const Tokenizer& b) {
  for (int32_t id = 0; id < std::max(a.vocab_size(), b.vocab_size()); ++id)
    if (a.token_of(id) != b.token_of(id)) return id;
  return {};
}

std::string digest_of_tokens(const Tokenizer& tokenizer) {
  std::string all;
  int32_t end = tokenizer.vocab_size();
  while (end > 0 && tokenizer.token_of(end - 1).empty()) --end;
  for (int32_t id = 0; id < end; ++id) {
    const std::string token = tokenizer.token_of(id);
    all += str(token.size(), ":") + token;
  }
  return sha256_hex(all);
}

}  // namespace temper
