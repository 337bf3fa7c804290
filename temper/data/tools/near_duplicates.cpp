#include "temper/data/tools/near_duplicates.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "temper/base/error.h"
#include "temper/data/rows/row_texts.h"

namespace temper::data {
namespace {

constexpr double kMostMissed = 0.002;
constexpr size_t kMostCompared = 16;   // of those that share a band
constexpr size_t kMostRows = 16;       // of a band
constexpr size_t kMostSketched = 512;  // shingles; of longer texts signatures tell more

uint64_t mixed(uint64_t x) {  // SplitMix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t hash_of_word(std::string_view word) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mixed(hash);
}

uint64_t hash_of_band(const uint8_t* bytes, size_t size, size_t band) {
  uint64_t hash = mixed(band + 1);
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<size_t>(8, size - i));
    hash = mixed(hash ^ word);
  }
  return hash;
}

}  // namespace

Shingles shingles_of(std::string_view text, int words) {
  const Words found(text);
  std::vector<uint64_t> hashes;
  hashes.reserve(found.all().size());
  for (const std::string_view word : found.all()) hashes.push_back(hash_of_word(word));
  const size_t size = std::min(hashes.size(), static_cast<size_t>(words));
  Shingles shingles;
  for (size_t i = 0; size > 0 && i + size <= hashes.size(); ++i) {
    uint64_t hash = 0;
    for (size_t k = 0; k < size; ++k) hash = mixed(hash ^ std::rotl(hashes[i + k], 23));
    shingles.push_back(hash);
  }
  std::sort(shingles.begin(), shingles.end());
  shingles.erase(std::unique(shingles.begin(), shingles.end()), shingles.end());
  return shingles;
}

namespace {

// The similarity of two ascending lists, in which a value may stand several times.
template <class Values>
double similarity_of(const Values& a, const Values& b) {
  size_t shared = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    shared += a[i] == b[j];
    const bool next_a = a[i] <= b[j], next_b = b[j] <= a[i];
    i += next_a;
    j += next_b;
  }
  const size_t all = a.size() + b.size() - shared;
  return all == 0 ? 0 : static_cast<double>(shared) / static_cast<double>(all);
}

Sketch sketch_of(const Shingles& shingles) {
  Sketch sketch;
  if (shingles.size() > kMostSketched) return sketch;
  sketch.reserve(shingles.size());
  // The highest bits, so that they ascend as the shingles do.
  for (const uint64_t shingle : shingles) sketch.push_back(static_cast<uint16_t>(shingle >> 48));
  return sketch;
}

}  // namespace

double jaccard(const Shingles& a, const Shingles& b) { return similarity_of(a, b); }

Signature signature_of(const Shingles& shingles) {
  Signature signature{};
  if (shingles.empty()) return signature;
  std::array<uint64_t, kSignatureBytes> least;
  least.fill(UINT64_MAX);
  for (const uint64_t shingle : shingles) {
    uint64_t& bin = least[shingle % kSignatureBytes];
    bin = std::min(bin, shingle / kSignatureBytes);
  }
  for (size_t bin = 0; bin < kSignatureBytes; ++bin) {
    // An empty bin takes the value of one that is not, chosen by a hash of its own.
    size_t from = bin;
    for (uint64_t tries = 1; least[from] == UINT64_MAX; ++tries)
      from = mixed(bin * 0x10000 + tries) % kSignatureBytes;
    signature[bin] = static_cast<uint8_t>(mixed(least[from] * kSignatureBytes + from) >> 56);
  }
  return signature;
}

NearDuplicates::NearDuplicates(double threshold, ShinglesOf shingles_of)
    : threshold_(threshold), shingles_of_(std::move(shingles_of)), slots_(1024) {
  check<ConfigError>(threshold > 0 && threshold <= 1, "similarity ", threshold,
                     ": expected a number above 0 and at most 1");
  for (size_t rows = 2; rows <= kMostRows; ++rows) {
    const size_t bands = kSignatureBytes / rows;
    const double together = std::pow(threshold, static_cast<double>(rows));
    if (std::pow(1 - together, static_cast<double>(bands)) > kMostMissed) break;
    rows_ = rows;
    bands_ = bands;
  }
}

template <class Visit>
size_t NearDuplicates::probe(const Signature& signature, size_t band, const Visit& visit) const {
  const uint8_t* const bytes = signature.data() + band * rows_;
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of_band(bytes, rows_, band) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const size_t index = slots_[slot] - 1;
    if (std::memcmp(kept_[index].signature.data() + band * rows_, bytes, rows_) == 0) visit(index);
  }
  return slot;
}

bool NearDuplicates::is_near(const Kept& kept, const Shingles& shingles, const Signature& signature,
                             const Sketch& sketch, double& similarity) const {
  const auto size = static_cast<double>(shingles.size()),
             other = static_cast<double>(kept.shingles);
  if (std::min(size, other) < threshold_ * std::max(size, other)) return false;
  // Six deviations below the threshold, as the signature's agreement estimates the similarity.
  size_t agree = 0;
  for (size_t i = 0; i < kSignatureBytes; ++i) agree += signature[i] == kept.signature[i];
  const double bins = std::min({size, other, double{kSignatureBytes}});
  if (static_cast<double>(agree) / kSignatureBytes < threshold_ - 3 / std::sqrt(bins)) return false;
  if (!sketch.empty() && !kept.sketch.empty() && similarity_of(kept.sketch, sketch) < threshold_)
    return false;
  similarity = jaccard(shingles_of_(kept.number), shingles);
  return similarity >= threshold_;
}

std::optional<NearDuplicates::Match> NearDuplicates::match_or_keep(int64_t number,
                                                                   const Shingles& shingles,
                                                                   const Signature& signature) {
  if (shingles.empty()) return {};
  std::vector<size_t> candidates;
  for (size_t band = 0; band < bands_; ++band) {
    size_t compared = 0;
    probe(signature, band, [&](size_t index) {
      if (++compared <= kMostCompared) candidates.push_back(index);
    });
  }
  // The earliest first.
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  Sketch sketch = sketch_of(shingles);
  for (const size_t index : candidates) {
    double similarity = 0;
    if (is_near(kept_[index], shingles, signature, sketch, similarity))
      return Match{kept_[index].number, similarity};
  }
  keep(number, shingles, signature, std::move(sketch));
  return {};
}

void NearDuplicates::keep(int64_t number, const Shingles& shingles, const Signature& signature,
                          Sketch sketch) {
  check(kept_.size() < UINT32_MAX - 1, "more than ", UINT32_MAX, " rows without near duplicates");
  kept_.push_back({number, static_cast<uint32_t>(shingles.size()), signature, std::move(sketch)});
  for (size_t band = 0; band < bands_; ++band) {
    size_t same = 0;
    const size_t slot = probe(signature, band, [&](size_t) { ++same; });
    if (same >= kMostCompared) continue;
    slots_[slot] = static_cast<uint32_t>(kept_.size());
    if (++filled_ * 4 > slots_.size() * 3) grow();
  }
}

void NearDuplicates::grow() {
  const size_t size = slots_.size() * 2;
  slots_ = {};
  slots_.resize(size);
  // Which band an entry is of is not kept: the bands of all texts are entered anew.
  filled_ = 0;
  for (size_t index = 0; index < kept_.size(); ++index)
    for (size_t band = 0; band < bands_; ++band) {
      size_t same = 0;
      const size_t slot = probe(kept_[index].signature, band, [&](size_t) { ++same; });
      if (same >= kMostCompared) continue;
      slots_[slot] = static_cast<uint32_t>(index + 1);
      ++filled_;
    }
}

}  // namespace temper::data
