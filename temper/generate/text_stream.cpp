#include "temper/generate/text_stream.h"

#include <algorithm>

namespace temper::generate {

std::string text_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens,
                    std::span<const std::string> stop) {
  std::string text = tokenizer.decode(tokens, true);
  size_t cut = text.size();
  for (const std::string& s : stop) cut = std::min(cut, text.find(s));
  text.resize(cut);
  return text;
}

bool TextStream::push(int32_t token) {
  const size_t before = text_.size();
  text_ += decoder_.push(token);
  for (const std::string& stop : stop_) {
    // A stop text that ends in what is new may begin up to its length before.
    const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    cut_ = std::min(cut_, text_.find(stop, from));
  }
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
