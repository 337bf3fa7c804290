#include "temper/text/tokenizer/vocabulary.h"

#include <cstring>

#include "temper/base/error.h"

namespace temper {

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  uint64_t hash = bytes.size() * kFactor;
  while (!bytes.empty()) {
    uint64_t chunk = 0;
    const size_t n = bytes.size() < 8 ? bytes.size() : 8;
    std::memcpy(&chunk, bytes.data(), n);
    hash = (hash ^ chunk) * kFactor;
    hash ^= hash >> 32;
    bytes.remove_prefix(n);
  }
  return hash * kFactor;
}

size_t Vocabulary::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = (hash_bytes(token) >> 32) & mask;
  while (slots_[slot] != 0 && spelling(entries_[slots_[slot] - 1]) != token)
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 4, 0);
  for (size_t i = 0; i < entries_.size(); ++i)
    slots_[slot_of(spelling(entries_[i]))] = static_cast<uint32_t>(i) + 1;
}

void Vocabulary::add(std::string_view token, int32_t id) {
  check<DataError>(text_.size() + token.size() < UINT32_MAX, "a vocabulary of more than 4 GB");
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  uint32_t& slot = slots_[slot_of(token)];
  if (slot == 0) {
    entries_.push_back(
        {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(token.size()), id});
    text_ += token;
    slot = static_cast<uint32_t>(entries_.size());
  } else {
    entries_[slot - 1].id = id;
  }
  if (static_cast<size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<size_t>(id) + 1);
  by_id_[static_cast<size_t>(id)] = slot;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  if (entries_.empty()) return std::nullopt;
  const uint32_t slot = slots_[slot_of(token)];
  return slot == 0 ? std::nullopt : std::optional<int32_t>(entries_[slot - 1].id);
}

bool Vocabulary::has(int32_t id) const {
  return id >= 0 && id < end_id() && by_id_[static_cast<size_t>(id)] != 0;
}

std::string_view Vocabulary::token(int32_t id) const {
  return has(id) ? spelling(entries_[by_id_[static_cast<size_t>(id)] - 1]) : std::string_view();
}

}  // namespace temper
