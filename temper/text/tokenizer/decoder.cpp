#include "temper/text/tokenizer/decoder.h"

#include "temper/base/error.h"
#include "temper/text/tokenizer/byte_level.h"
#include "temper/text/unicode.h"

namespace temper {
namespace {
using Tokens = std::vector<std::string>;
constexpr size_t kMaxDecoders = 64;

void join(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, std::move(all));
}

// A run of byte tokens that is UTF-8 becomes one token; of any other run, each byte becomes U+FFFD.
Tokens fuse_bytes(const Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (valid_utf8_prefix(run) == run.size()) {
      out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\xEF\xBF\xBD");
    }
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const int byte = byte_of_fallback_token(token); byte >= 0) {
      run += static_cast<char>(byte);
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

std::string replace_marker(std::string_view token, char32_t marker, bool drop) {
  std::string out;
  for (size_t i = 0; i < token.size();) {
    const char32_t c = next_char(token, i);
    if (c != marker) {
      append_char(out, c);
    } else if (!drop) {
      out += ' ';
    }
  }
  return out;
}

std::string strip(std::string_view token, char32_t content, size_t start, size_t stop) {
  for (; start > 0 && !token.empty(); --start) {
    size_t i = 0;
    if (next_char(token, i) != content) break;
    token.remove_prefix(i);
  }
  for (; stop > 0 && !token.empty(); --stop) {
    size_t end = token.size();
    if (previous_char(token, end) != content) break;
    token = token.substr(0, end);
  }
  return std::string(token);
}

}  // namespace

int byte_of_fallback_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  if (token[3] == '+') return digit(token[4]);  // how Rust reads a number
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Decoder::Decoder(const JsonField& field) : joins_by_space_(false) { add(field); }

void Decoder::add(const JsonField& field) {
  if (steps_.size() >= kMaxDecoders) field.fail(str("more than ", kMaxDecoders, " decoders"));
  const std::string type = field.type();
  if (type == "Sequence") {
    for (const JsonField& item : field["decoders"].items()) add(item);
  } else if (type == "ByteLevel") {
    steps_.push_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.push_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.push_back(Fuse{});
  } else if (type == "Metaspace") {
    const auto scheme = field.find("prepend_scheme");
    const bool never =
        (scheme && scheme->text() == "never") || !field.flag_or("add_prefix_space", true);
    steps_.push_back(Metaspace{field["replacement"].character(), !never});
  } else if (type == "Replace") {
    steps_.push_back(Replace{Pattern::parse(field["pattern"]), field["content"].text()});
  } else if (type == "Strip") {
    const auto count = [&](const char* key) {
      return static_cast<size_t>(field[key].integer(0, INT32_MAX));
    };
    steps_.push_back(Strip{field["content"].character(), count("start"), count("stop")});
  } else {
    field.unsupported("decoder");
  }
}

std::string Decoder::decode(Tokens tokens, bool at_start) const {
  // the text is one token: steps that act at a token's start act at the text's start
  bool fused = false;
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      for (std::string& token : tokens) token = from_byte_level(token);
      join(tokens);
      tokens[0] = repair_utf8(tokens[0]);
      fused = true;
    } else if (std::holds_alternative<ByteFallback>(step)) {
      tokens = fuse_bytes(tokens);
    } else if (std::holds_alternative<Fuse>(step)) {
      join(tokens);
      fused = true;
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replace_marker(tokens[i], metaspace->replacement,
                                   metaspace->drop_first && at_start && i == 0);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      for (std::string& token : tokens)
        token = replace_all(replace->pattern, token, replace->content);
    } else {
      const auto& ends = std::get<Strip>(step);
      const size_t start = fused && !at_start ? 0 : ends.start;
      for (std::string& token : tokens) token = strip(token, ends.content, start, ends.stop);
    }
  }
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (joins_by_space_ && (i > 0 || !at_start)) out += ' ';
    out += tokens[i];
  }
  return out;
}

Decoder::Streaming Decoder::streaming() const {
  if (steps_.size() == 1 && std::holds_alternative<ByteLevel>(steps_[0])) return Streaming::kBytes;
  bool fused = false, bytes = false;
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) return Streaming::kWhole;
    if (std::holds_alternative<Fuse>(step)) fused = true;
    if (std::holds_alternative<ByteFallback>(step)) {
      if (fused || bytes) return Streaming::kWhole;
      bytes = true;
    }
    if (!fused) continue;
    // At the start Strip is done as soon as some text is left; at the end it would have to know the
    // end.
    const auto* ends = std::get_if<Strip>(&step);
    if (ends ? ends->stop > 0 : !std::holds_alternative<Fuse>(step)) return Streaming::kWhole;
  }
  return bytes ? Streaming::kAfterText : Streaming::kTokens;
}

}  // namespace temper
