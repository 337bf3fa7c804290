// Tokens and their ids, both ways: a flat hash table over one string of all spellings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

// A hash of short strings, good in its high bits.
uint64_t hash_bytes(std::string_view bytes);

class Vocabulary {
 public:
  static constexpr int32_t kMaxId =
      (1 << 22) - 1;  // bounds the table by id; real vocabularies end below 2^19

  // Gives the token this id, 0 <= id <= kMaxId; what either stood for before is forgotten.
  void add(std::string_view token, int32_t id);

  std::optional<int32_t> find(std::string_view token) const;
  std::string_view token(int32_t id) const;  // empty when unknown
  bool has(int32_t id) const;
  size_t size() const { return entries_.size(); }                         // number of tokens
  int32_t end_id() const { return static_cast<int32_t>(by_id_.size()); }  // highest id + 1

 private:
  struct Entry {
    uint32_t offset, length;
    int32_t id;
  };
  std::string_view spelling(const Entry& entry) const {
    return std::string_view(text_).substr(entry.offset, entry.length);
  }
  size_t slot_of(std::string_view token) const;  // where it is, or the free slot where it would be
  void grow();

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<uint32_t>
      slots_;  // index into entries_ + 1; 0: free. A power of two, at most half full
  std::vector<uint32_t> by_id_;  // [id] index into entries_ + 1; 0: no such id
};

}  // namespace temper
