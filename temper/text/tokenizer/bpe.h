// Byte-pair encoding: from a word's characters, merges the adjacent pair of lowest rank (the
// leftmost among equals) until no pair has a rank. Sennrich et al., "Neural Machine Translation of
// Rare Words with Subword Units", 2016.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "temper/text/tokenizer/vocabulary.h"

namespace temper {

struct BpeOptions {
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       // neighbouring unknown characters become one unk_token
  bool byte_fallback = false;  // an unknown character becomes its bytes' tokens "<0x0A>"
  bool ignore_merges = false;  // a word that is a token is that token, whatever its merges
};

// The merges of a file in the order of their rank: `left` + `right` lie together in one string.
class MergeList {
 public:
  struct Merge {
    std::string_view left, right, whole;
  };
  void add(std::string_view left, std::string_view right);
  size_t size() const { return items_.size(); }
  Merge operator[](size_t rank) const;

 private:
  struct Item {
    uint32_t offset, left, right;
  };
  std::string text_;
  std::vector<Item> items_;
};

// Map from a pair (left id, right id) to its merge: open addressing.
class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNone;
    int32_t id = -1;
  };
  explicit MergeTable(size_t count);
  void set(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    Merge merge;
  };
  size_t first_slot(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15) >> shift_; }
  std::vector<Slot> slots_;
  int shift_;
};

class Bpe {
 public:
  // Throws DataError("WHERE...") when a merge names a token that is not in the vocabulary.
  Bpe(Vocabulary vocabulary, const MergeList& merges, BpeOptions options, const std::string& where);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the ids of a word. With `bytes` each byte counts as its character in the byte-level
  // alphabet, else the word is UTF-8. Once `out` has `limit` ids, the rest may be left out. Throws
  // DataError when the unk_token is needed and is not a token.
  void encode(std::string_view word, bool bytes, size_t limit, std::vector<int32_t>& out) const;

 private:
  void index_characters();
  void index_marker(const MergeList& merges);
  int32_t symbol_of(char32_t c) const;  // -1: not in the vocabulary

  bool may_cut_before(std::string_view word, size_t at) const;
  void encode_cached(std::string_view word, bool bytes, std::vector<int32_t>& out) const;
  void encode_uncached(std::string_view word, bool bytes, std::vector<int32_t>& out) const;
  void append_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  bool append_fallback(std::string_view character, std::vector<int32_t>& symbols) const;
  size_t merge_short(int32_t* symbols, size_t count) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::string where_;
  uint32_t cache_owner_;  // tells this model's words from another's in a thread's cache
  // [256] id of each byte's character in the byte-level alphabet; -1: not in the vocabulary
  std::array<int32_t, 256> byte_symbols_;
  bool all_bytes_ = false;             // byte_symbols_ has no -1
  std::array<int32_t, 256> fallback_;  // [256] ids of the tokens "<0x00>" ... "<0xFF>"
  std::vector<int32_t> symbols_;       // id of each character below U+10000
  std::unordered_map<char32_t, int32_t> high_symbols_;  // ids of the other characters
  bool cuts_ = false;                                   // words may be cut before the space marker
  std::unordered_set<char32_t>
      joined_to_marker_;  // characters that some merge joins to a marker behind them
};

}  // namespace temper
