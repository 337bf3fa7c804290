#include "temper/text/tokenizer/token_boundaries.h"

#include <algorithm>
#include <span>

#include "temper/base/error.h"

namespace temper {

// The tokens of the text before the byte say where it falls. When they are the first tokens of the
// whole, the byte is a boundary. Otherwise both agree up to some token, and from there the whole's
// tokens are taken until they decode to something that begins with what is left of the text before
// the byte. Decoding both sides makes this right for tokenizers that normalize as well.
size_t TokenBoundaries::tokens_before(size_t byte) {
  check(byte >= known_byte_ && byte <= text_.size(), "token boundary asked out of order");
  const auto is_next = [&](const std::vector<int32_t>& part, size_t at) {
    return part.size() <= tokens_.size() - at &&
           std::equal(part.begin(), part.end(), tokens_.begin() + static_cast<std::ptrdiff_t>(at));
  };
  // In a text whose tokens were cut at the limit: true where all tokens from `at` on lie before the
  // byte.
  const auto is_behind = [&](const std::vector<int32_t>& part, size_t at) {
    return cut_ && part.size() > tokens_.size() - at &&
           std::equal(tokens_.begin() + static_cast<std::ptrdiff_t>(at), tokens_.end(),
                      part.begin());
  };
  // Cheaper first: only the piece since the last boundary. Equal ids are equal text, however they
  // came about.
  const auto first_tokens = [&](size_t from, size_t count) {
    return tokenizer_.encode_first(text_.substr(from, byte - from), cut_ ? count : SIZE_MAX,
                                   quotes_);
  };
  const auto piece = first_tokens(known_byte_, tokens_.size() - known_token_ + 1);
  if (is_next(piece, known_token_)) {
    known_byte_ = byte;
    return known_token_ += piece.size();
  }
  const auto prefix = first_tokens(0, tokens_.size() + 1);
  if (is_behind(prefix, 0)) return tokens_.size();
  if (is_next(prefix, 0)) {
    known_byte_ = byte;
    return known_token_ = prefix.size();
  }
  const auto split = std::mismatch(prefix.begin(), prefix.end(), tokens_.begin(), tokens_.end());
  const auto same = static_cast<size_t>(split.first - prefix.begin());
  const std::string rest = tokenizer_.decode(std::span(prefix).subspan(same));
  for (size_t end = same + 1; end <= tokens_.size(); ++end) {
    const std::string decoded = tokenizer_.decode(std::span(tokens_).subspan(same, end - same));
    if (decoded.starts_with(rest)) return end;
    // A token more cannot repair a text that is longer already; the slack is for characters cut at
    // its end.
    if (decoded.size() > rest.size() + 16) break;
  }
  throw DataError(
      str("cannot tell which tokens lie before byte ", byte,
          " of the rendered conversation: this tokenizer's tokens there do not decode to its text; "
          "train_on: all trains every token"));
}

}  // namespace temper
