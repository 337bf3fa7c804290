#include "temper/generate/text_stream.h"

#include <algorithm>

namespace temper::generate {

namespace {

// Where the first stop text begins that ends behind the first `before` bytes.
size_t first_stop(std::string_view text, size_t before, std::span<const std::string> stop) {
  size_t cut = std::string::npos;
  for (const std::string& s : stop)
    cut = std::min(cut, text.find(s, before >= s.size() ? before - s.size() + 1 : 0));
  return cut;
}

}  // namespace

std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                    std::span<const std::string> stop, int64_t min_tokens) {
  std::string text = tokenizer.decode(tokens, true);
  size_t before = 0;
  StreamDecoder decoder(tokenizer);
  if (!stop.empty())
    for (size_t i = 0; static_cast<int64_t>(i) + 1 < min_tokens && i < tokens.size(); ++i)
      before += decoder.push(tokens[i]).size();
  text.resize(std::min(text.size(), first_stop(text, before, stop)));
  return text;
}

bool TextStream::push(int32_t token, bool may_stop) {
  const size_t before = text_.size();
  text_ += decoder_.push(token);
  if (may_stop) cut_ = std::min(cut_, first_stop(text_, before, stop_));
  return cut_ != std::string::npos;
}

std::string_view TextStream::shown() const {
  const std::string_view text = text_;
  if (cut_ != std::string::npos) return text.substr(0, cut_);
  size_t held_back = 0;
  for (const std::string& stop : stop_)
    for (size_t n = std::min(stop.size() - 1, text.size()); n > held_back; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) held_back = n;
  return text.substr(0, text.size() - held_back);
}

}  // namespace temper::generate
