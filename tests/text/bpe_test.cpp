// Every way through Bpe (scan, heap, cache, cuts before the space marker) against the definition,
// and the translation of regular expressions.
#include "temper/text/tokenizer/bpe.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/text/regex.h"
#include "temper/text/unicode.h"

using namespace temper;

namespace {

const std::string kMarker = "\xE2\x96\x81";

struct Model {
  Vocabulary vocabulary;
  MergeList merges;
};

// Random merges over a small alphabet, so that words have many ways to merge.
Model random_model(uint64_t seed, int merges) {
  const RandomStream random(seed, RandomPurpose::kDemo);
  Model model;
  std::vector<std::string> tokens{"a", "b", "c", kMarker};
  for (const std::string& token : tokens)
    model.vocabulary.add(token, static_cast<int32_t>(model.vocabulary.size()));
  for (int i = 0; i < merges; ++i) {
    const auto& left = tokens[random.below(static_cast<uint64_t>(2 * i), tokens.size())];
    const auto& right = tokens[random.below(static_cast<uint64_t>(2 * i + 1), tokens.size())];
    const std::string whole = left + right;
    // Markers stand only at the start of a token, as they do in most vocabularies; in every second
    // model "a" may stand before one.
    const size_t marker = whole.rfind(kMarker);
    const bool inside = marker != whole.npos && marker > 0;
    if (whole.size() > 12 || (inside && (seed % 2 == 0 || whole[marker - 1] != 'a'))) continue;
    model.merges.add(left, right);
    if (!model.vocabulary.find(whole)) {
      model.vocabulary.add(whole, static_cast<int32_t>(model.vocabulary.size()));
      tokens.push_back(whole);
    }
  }
  return model;
}

// The definition: again and again, the leftmost of the pairs with the lowest rank.
std::vector<std::string> merged_by_definition(const MergeList& merges,
                                              std::vector<std::string> parts) {
  // As in a table, the last of two equal merges counts.
  const auto rank_of = [&](const std::string& left, const std::string& right) {
    for (size_t rank = merges.size(); rank-- > 0;)
      if (merges[rank].left == left && merges[rank].right == right) return rank;
    return merges.size();
  };
  while (true) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const size_t rank = rank_of(parts[i], parts[i + 1]);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == merges.size()) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

}  // namespace

TEST_CASE("encoding is merging by definition, for words of any length") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Model model = random_model(seed, 40);
    const MergeList merges = model.merges;
    const Bpe bpe(std::move(model.vocabulary), merges, {}, "t");
    const RandomStream random(seed + 100, RandomPurpose::kDemo);
    for (uint64_t i = 0; i < 60; ++i) {
      const uint64_t length = i < 50 ? 1 + random.below(i, 60) : 300;
      std::vector<std::string> parts;
      std::string word;
      for (uint64_t k = 0; k < length; ++k) {
        const uint64_t c = random.below(1000 * (i + 1) + k, 4);
        parts.push_back(c == 3 ? kMarker : std::string(1, static_cast<char>('a' + c)));
        word += parts.back();
      }
      std::vector<int32_t> ids;
      bpe.encode(word, false, SIZE_MAX, ids);
      std::vector<std::string> found;
      for (const int32_t id : ids) found.emplace_back(bpe.vocabulary().token(id));
      CHECK(found == merged_by_definition(merges, parts));
    }
  }
}

TEST_CASE("unknown characters") {
  const auto encode = [](BpeOptions options, std::string_view word) {
    Vocabulary vocabulary;
    for (const char* token : {"a", "?", "<0xC3>", "<0xA9>"})
      vocabulary.add(token, static_cast<int32_t>(vocabulary.size()));
    std::vector<int32_t> ids;
    Bpe(std::move(vocabulary), {}, std::move(options), "t").encode(word, false, SIZE_MAX, ids);
    return ids;
  };
  using Ids = std::vector<int32_t>;
  CHECK(encode({}, "axya") == Ids{0, 0});
  CHECK(encode({.unk_token = "?"}, "axya") == Ids{0, 1, 1, 0});
  CHECK(encode({.unk_token = "?", .fuse_unk = true}, "axya") == Ids{0, 1, 0});
  CHECK(encode({.unk_token = "?", .byte_fallback = true}, "aéx") == Ids{0, 2, 3, 1});
  // The unknown x waits behind the bytes of é, as it does in tokenizers.
  CHECK(encode({.unk_token = "?", .byte_fallback = true}, "xéa") == Ids{2, 3, 1, 0});
  CHECK_THROWS_AS(encode({.unk_token = "<unk>"}, "x"), DataError);
}

TEST_CASE("a later merge of the same pair takes the place of an earlier one") {
  Vocabulary vocabulary;
  for (const char* token : {"a", "b", "c", "ab", "bc"})
    vocabulary.add(token, static_cast<int32_t>(vocabulary.size()));
  MergeList merges;
  merges.add("a", "b");
  merges.add("b", "c");
  merges.add("a", "b");
  std::vector<int32_t> ids;
  Bpe(std::move(vocabulary), merges, {}, "t").encode("abc", false, SIZE_MAX, ids);
  CHECK(ids == std::vector<int32_t>{0, 4});
}

TEST_CASE("regular expressions mean what they mean to Oniguruma") {
  const auto first = [](const char* pattern, const char* text) {
    Regex::Match match{};
    return Regex(pattern, "t").find(text, 0, match)
               ? std::string(text).substr(match.begin, match.end - match.begin)
               : std::string("none");
  };
  CHECK(first("\\s+", "a\u180e\u2003b") == "\u2003");  // U+180E is no space
  CHECK(first("\\h+", "xyz12afg") == "12af");          // a hexadecimal digit
  CHECK(first("(?m:a.b)", "a\nb") == "a\nb");          // m: the dot matches line ends
  CHECK(first("a.b", "a\nb") == "none");
  CHECK(first("^b$", "a\nb\nc") == "b");  // lines, always
  CHECK(first("\\bb", "e\u0301b b") == "b");
  CHECK(first("[^\\p{L}]+", "a\U0001e030 1") == " 1");  // a letter since Unicode 15
  CHECK(first("\\u0041+", "xAA") == "AA");
  CHECK(first("[]a]+", "x]a") == "]a");
  for (const char* bad :
       {"[a&&b]", "[a[b]]", "(*ACCEPT)", "(a", "[a", "\\", "\\p{", "\\p{Nope}", "\\C", "\\u12"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(Regex(bad, "t"), DataError);
  }
  // Exponential in principle: given up, not waited for.
  Regex::Match match{};
  CHECK_THROWS_AS(Regex("(a|aa)+$", "t").find(std::string(200, 'a') + "b", 0, match), DataError);
}

TEST_CASE("characters that are not seen, or turn others around, are shown escaped") {
  CHECK(printable("a\u202Eb\u2066c\u200F\u00ADd") == "a\\u202eb\\u2066c\\u200f\\u00add");
  CHECK(printable("\uFEFFx\u200By\u2028") == "\\ufeffx\\u200by\\u2028");
  CHECK(printable("\U000E0041") == "\\u{e0041}");
  // Joiners belong to emoji and to scripts of India; letters and their marks stay.
  const std::string family = "\U0001F468\u200D\U0001F469", persian = "\u0645\u06CC\u200C\u062E";
  CHECK(printable(family) == family);
  CHECK(printable(persian) == persian);
  CHECK(printable_line("e\u0301\n\u202A") == "e\u0301\\n\\u202a");
}

TEST_CASE("UTF-8 prefixes and repairs") {
  CHECK(valid_utf8_prefix("ab\xC3\xA9") == 4);
  CHECK(valid_utf8_prefix("ab\xC3") == 2);
  size_t tail = 9;
  CHECK(repair_utf8("ab\xE4\xBD", true, &tail) == "ab");
  CHECK(tail == 2);
  CHECK(repair_utf8("\xE4x\xE4\xBD", true, &tail) == "\xEF\xBF\xBDx");
  CHECK(repair_utf8("a\xF0\x9F\x98") == "a\xEF\xBF\xBD");
  CHECK(printable("a\tb\n\x1B]0;t\x07\r\x7F\xC2\x9B\xC2\xA0\xE4") ==
        "a\tb\n\\x1b]0;t\\x07\\x0d\\x7f\\x9b\xC2\xA0\xEF\xBF\xBD");
  CHECK(printable_line("a\tb\n\x1B[2J\xE2\x80\xA6") == "a\\tb\\n\\x1b[2J\xE2\x80\xA6");
}
