// Rows whose texts are nearly the same, in time linear in their number: MinHash signatures (Broder,
// "On the resemblance and containment of documents", 1997) by one permutation with densified bins
// (Shrivastava, "Optimal densification for fast and accurate minwise hashing", ICML 2017), bands of
// them in one table (Indyk and Motwani, STOC 1998), and every candidate verified by the exact
// Jaccard similarity of the two sets of shingles.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace temper::data {

// The hashes of every run of `words` words of a text (Words of row_texts.h), ascending, each once;
// of a shorter text that is not empty, one of all its words.
using Shingles = std::vector<uint64_t>;
Shingles shingles_of(std::string_view text, int words);

// |a and b| / |a or b|; 0 where both are empty.
double jaccard(const Shingles& a, const Shingles& b);

// A byte of each minimum. Two texts agree in a byte with the probability of their similarity.
inline constexpr size_t kSignatureBytes = 128;
using Signature = std::array<uint8_t, kSignatureBytes>;
Signature signature_of(const Shingles& shingles);

// Two bytes of each shingle, ascending: what two texts share of them is at least what they share of
// the shingles.
using Sketch = std::vector<uint16_t>;

// Grows by the texts that are kept; takes about 250 bytes for each at a threshold of 0.8, and 2 for
// each shingle of those that are not long.
class NearDuplicates {
 public:
  // Gives the shingles of the text that was kept under a number.
  using ShinglesOf = std::function<Shingles(int64_t number)>;

  // threshold: (0, 1]. A pair of that similarity is missed with a probability of at most 0.002
  // where texts are long, and pairs above it with less.
  NearDuplicates(double threshold, ShinglesOf shingles_of);

  struct Match {
    int64_t number;  // of the text kept earlier
    double similarity;
  };
  // An earlier kept text whose similarity is at least the threshold; where there is none, the text
  // is kept under `number`. A text without words is like no other. At most 16 texts that share a
  // band are compared for it, so that texts from one template take no quadratic time.
  std::optional<Match> match_or_keep(int64_t number, const Shingles& shingles,
                                     const Signature& signature);

  size_t bands() const { return bands_; }

 private:
  struct Kept {
    int64_t number;
    uint32_t shingles;
    Signature signature;
    Sketch sketch;  // empty: of a long text
  };
  // Calls `visit` with each slot's text that has this band; gives the empty slot behind them.
  template <class Visit>
  size_t probe(const Signature& signature, size_t band, const Visit& visit) const;
  bool is_near(const Kept& kept, const Shingles& shingles, const Signature& signature,
               const Sketch& sketch, double& similarity) const;
  void keep(int64_t number, const Shingles& shingles, const Signature& signature, Sketch sketch);
  void grow();

  double threshold_;
  ShinglesOf shingles_of_;
  size_t rows_ = 1, bands_ = kSignatureBytes;
  std::deque<Kept> kept_;
  std::vector<uint32_t> slots_;  // 1 + an index of kept_; 0: empty
  size_t filled_ = 0;
};

}  // namespace temper::data
