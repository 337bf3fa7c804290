#include "temper/text/tokenizer/bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "temper/base/error.h"
#include "temper/text/tokenizer/byte_level.h"
#include "temper/text/unicode.h"

namespace temper {
namespace {

constexpr std::string_view kMarker =
    "\xE2\x96\x81";  // U+2581, a space in the vocabularies of Llama 2 and Gemma
constexpr char32_t kMarkerChar = 0x2581;
// symbols of the longest word that is merged by scanning; longer ones use a heap
constexpr size_t kShortWord = 40;
constexpr int32_t kUnknown = -1;

// A word and its ids in one cache line. A slot holds the last word that hashed to it: bounded, and
// nothing to evict.
struct CachedWord {
  uint32_t owner = 0;
  uint8_t length = 0, count = 0;
  char word[26];
  int32_t ids[8];
};
static_assert(sizeof(CachedWord) == 64);
constexpr size_t kCacheSlots = 1 << 14;  // 1 MiB a thread

std::atomic<uint32_t> next_cache_owner{1};

}  // namespace

void MergeList::add(std::string_view left, std::string_view right) {
  check<DataError>(text_.size() + left.size() + right.size() < UINT32_MAX,
                   "merges of more than 4 GB");
  items_.push_back({static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(left.size()),
                    static_cast<uint32_t>(right.size())});
  text_.append(left).append(right);
}

MergeList::Merge MergeList::operator[](size_t rank) const {
  const Item& item = items_[rank];
  const auto whole = std::string_view(text_).substr(item.offset, item.left + item.right);
  return {whole.substr(0, item.left), whole.substr(item.left), whole};
}

MergeTable::MergeTable(size_t count) {
  const int bits = std::max(4, static_cast<int>(std::bit_width(2 * count)));
  slots_.resize(size_t{1} << bits);
  shift_ = 64 - bits;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  size_t i = first_slot(pair);
  while (slots_[i].pair != UINT64_MAX && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {pair, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  for (size_t i = first_slot(pair);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].pair == pair) return slots_[i].merge;
    if (slots_[i].pair == UINT64_MAX) return {};
  }
}

Bpe::Bpe(Vocabulary vocabulary, const MergeList& merges, BpeOptions options,
         const std::string& where)
    : vocabulary_(std::move(vocabulary)),
      merges_(merges.size()),
      options_(std::move(options)),
      where_(where),
      cache_owner_(next_cache_owner++) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const MergeList::Merge merge = merges[rank];
    const auto id_of = [&](std::string_view token) {
      const auto id = vocabulary_.find(token);
      check<DataError>(id.has_value(), where, ".merges[", rank, "]: \"", token,
                       "\" is not in the vocabulary");
      return *id;
    };
    const int32_t left = id_of(merge.left), right = id_of(merge.right);
    merges_.set(left, right, {static_cast<uint32_t>(rank), id_of(merge.whole)});
  }
  index_characters();
  index_marker(merges);
}

void Bpe::index_characters() {
  symbols_.assign(0x10000, kUnknown);
  for (int32_t id = 0; id < vocabulary_.end_id(); ++id) {
    const std::string_view token = vocabulary_.token(id);
    if (token.empty() || token.size() > 4) continue;
    size_t end = 0;
    const char32_t c = next_char(token, end);
    if (end != token.size()) continue;
    const int32_t symbol = *vocabulary_.find(token);
    if (c < 0x10000) {
      symbols_[c] = symbol;
    } else {
      high_symbols_[c] = symbol;
    }
  }
  all_bytes_ = true;
  for (size_t b = 0; b < 256; ++b) {
    byte_symbols_[b] = symbol_of(byte_to_char(static_cast<unsigned char>(b)));
    if (byte_symbols_[b] == kUnknown) all_bytes_ = false;
    constexpr char kHex[] = "0123456789ABCDEF";
    const char code[] = {'<', '0', 'x', kHex[b >> 4], kHex[b & 15], '>'};
    fallback_[b] = vocabulary_.find(std::string_view(code, sizeof code)).value_or(kUnknown);
  }
}

// Without a pre-tokenizer a whole text is one word. No merge crosses the place before a marker
// where the character before it is known and joined to a marker by no merge: the word is cut there
// into shorter ones, which repeat and are cached.
void Bpe::index_marker(const MergeList& merges) {
  if (options_.ignore_merges || !vocabulary_.find(kMarker)) return;
  cuts_ = true;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view token = merges[rank].whole;
    for (size_t at = token.find(kMarker, 1); at != token.npos; at = token.find(kMarker, at + 1)) {
      size_t end = at;
      joined_to_marker_.insert(previous_char(token, end));
    }
  }
}

int32_t Bpe::symbol_of(char32_t c) const {
  if (c < 0x10000) return symbols_[c];
  const auto found = high_symbols_.find(c);
  return found == high_symbols_.end() ? kUnknown : found->second;
}

bool Bpe::may_cut_before(std::string_view word, size_t at) const {
  const char32_t before = previous_char(word, at);
  return symbol_of(before) != kUnknown && !joined_to_marker_.contains(before);
}

void Bpe::encode(std::string_view word, bool bytes, size_t limit, std::vector<int32_t>& out) const {
  if (cuts_ && !bytes) {
    size_t start = 0;
    for (size_t at = word.find(kMarker, 1); at != word.npos; at = word.find(kMarker, at + 1)) {
      if (!may_cut_before(word, at)) continue;
      encode_cached(word.substr(start, at - start), false, out);
      start = at;
      if (out.size() >= limit) return;
    }
    word.remove_prefix(start);
  }
  encode_cached(word, bytes, out);
}

void Bpe::encode_cached(std::string_view word, bool bytes, std::vector<int32_t>& out) const {
  if (word.size() > sizeof CachedWord::word) return encode_uncached(word, bytes, out);
  thread_local std::vector<CachedWord> cache(kCacheSlots);
  const uint64_t hash = hash_bytes(word) + cache_owner_ * 0x9E3779B97F4A7C15;
  CachedWord& slot = cache[hash >> 32 & (kCacheSlots - 1)];
  if (slot.owner == cache_owner_ && slot.length == word.size() &&
      std::memcmp(slot.word, word.data(), word.size()) == 0) {
    out.insert(out.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  const size_t start = out.size();
  encode_uncached(word, bytes, out);
  const size_t count = out.size() - start;
  if (count > std::size(slot.ids)) return;
  slot.owner = cache_owner_;
  slot.length = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(count);
  std::copy(word.begin(), word.end(), slot.word);
  std::copy(out.begin() + static_cast<ptrdiff_t>(start), out.end(), slot.ids);
}

void Bpe::encode_uncached(std::string_view word, bool bytes, std::vector<int32_t>& out) const {
  std::string spelled;
  if (bytes && (options_.ignore_merges || !all_bytes_)) spelled = to_byte_level(word);
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(bytes ? spelled : word)) {
      out.push_back(*id);
      return;
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  if (bytes && all_bytes_) {
    for (const char b : word) symbols.push_back(byte_symbols_[static_cast<unsigned char>(b)]);
  } else {
    append_symbols(bytes ? spelled : word, symbols);
  }
  if (symbols.size() <= kShortWord) {
    symbols.resize(merge_short(symbols.data(), symbols.size()));
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

bool Bpe::append_fallback(std::string_view character, std::vector<int32_t>& symbols) const {
  const auto missing = [&](char b) { return fallback_[static_cast<unsigned char>(b)] == kUnknown; };
  if (!options_.byte_fallback || std::any_of(character.begin(), character.end(), missing))
    return false;
  for (const char b : character) symbols.push_back(fallback_[static_cast<unsigned char>(b)]);
  return true;
}

void Bpe::append_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  // An unknown character waits until a known one follows, in front of which it is put; bytes do not
  // make it move.
  int32_t pending = kUnknown;
  const auto flush = [&] {
    if (pending != kUnknown) symbols.push_back(pending);
    pending = kUnknown;
  };
  for (size_t i = 0; i < word.size();) {
    const size_t at = i;
    const int32_t symbol = symbol_of(next_char(word, i));
    if (symbol != kUnknown) {
      flush();
      symbols.push_back(symbol);
    } else if (!append_fallback(word.substr(at, i - at), symbols) && options_.unk_token) {
      if (!options_.fuse_unk) flush();
      const auto unknown = vocabulary_.find(*options_.unk_token);
      check<DataError>(unknown.has_value(), where_, ".unk_token: \"", *options_.unk_token,
                       "\" is needed for \"", word.substr(at, i - at),
                       "\" but is not in the vocabulary");
      pending = *unknown;
    }
  }
  flush();
}

size_t Bpe::merge_short(int32_t* symbols, size_t count) const {
  MergeTable::Merge pairs[kShortWord];  // pairs[i]: merge of symbols i and i + 1
  const auto look_up = [&](size_t i) { pairs[i] = merges_.find(symbols[i], symbols[i + 1]); };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == MergeTable::kNone) break;
    symbols[best] = pairs[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  struct Link {
    uint32_t previous, next;
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Link> links(count);
  // [count] merge of each symbol with the next one; rank kNone also for symbols merged away
  std::vector<MergeTable::Merge> pairs(count);
  std::vector<uint64_t> heap;  // (rank, position); stale where the pair's rank has changed
  const auto later = std::greater<uint64_t>();
  const auto look_up = [&](uint32_t i) {
    pairs[i] = links[i].next < count ? merges_.find(symbols[i], symbols[links[i].next])
                                     : MergeTable::Merge{};
    if (pairs[i].rank == MergeTable::kNone) return;
    heap.push_back(static_cast<uint64_t>(pairs[i].rank) << 32 | i);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (uint32_t i = 0; i < count; ++i) {
    links[i] = {i - 1, i + 1};  // the first one's previous is beyond the end as well
    look_up(i);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto i = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (pairs[i].rank != rank) continue;
    const uint32_t gone = links[i].next;
    symbols[i] = pairs[i].id;
    symbols[gone] = kUnknown;
    pairs[gone] = {};
    links[i].next = links[gone].next;
    if (links[i].next < count) links[links[i].next].previous = i;
    if (links[i].previous < count) look_up(links[i].previous);
    look_up(i);
  }
  std::erase(symbols, kUnknown);
}

}  // namespace temper
