// Drafts for speculative decoding (Leviathan et al., arXiv 2211.17192): what may come next in a
// sample, found where its last tokens stand in its prompt, its own completion or a sibling's
// (prompt lookup decoding; SuffixDecoding, Oliaro et al., 2411.04975). A draft decides nothing but
// speed: it is verified by the choices that would have been made without it (speculation.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "temper/generate/sampling/sampler.h"

namespace temper::generate {

// What is known of a drafted token before it is verified: how many tokens before it were found
// elsewhere, and what came after them there.
class DraftEvidence {
 public:
  enum class Agreement { kOne, kAgree, kDiffer };  // places: one, several of one mind, of several
  static constexpr size_t kCount = 15;

  DraftEvidence(int64_t matched, Agreement agreement);
  size_t number() const { return number_; }  // below kCount
  // The share of such tokens that is taken for chosen as long as none was tried.
  double prior() const;

 private:
  size_t number_;
};

struct DraftToken {
  int32_t token;
  DraftEvidence evidence;
};

// A prompt with its samples, finished and running, by pairs of tokens.
class DraftTexts {
 public:
  static constexpr int64_t kPrompt = -1;      // names the prompt in place of a sample
  static constexpr int64_t kMostTokens = 16;  // of a draft

  // The prompt, and what of its samples' requests decides random numbers: the seed, the index, and
  // the position of their first token.
  DraftTexts(std::span<const int32_t> prompt, const SamplingOptions& sampling, int64_t index,
             int64_t position);

  // A token was added to the sample of this number, the first of which is `first_sample` (any
  // number that none is below).
  void append(int64_t sample, int32_t token);

  // What may follow in the sample, at most `most` tokens. `goes_on` is asked about each before the
  // next one is looked for: false ends the draft behind it.
  std::vector<DraftToken> draft(int64_t sample, int64_t most,
                                const std::function<bool(const DraftToken&)>& goes_on) const;

 private:
  struct Text {
    std::vector<int32_t> tokens;
    int64_t sample;
  };
  // The pair of tokens that ends at token `at` of a text, and the one before it that is the same.
  struct Occurrence {
    int32_t text, at, before;
  };
  struct Candidate {
    int32_t text, next;  // the token that would come next
    int64_t matched;
  };

  const Text& text(int32_t number) const { return texts_[static_cast<size_t>(number)]; }
  // Token `at` of a text; negative: of the prompt, which goes before.
  int32_t token(int32_t text, int64_t at) const;
  int64_t matched(int32_t a, int64_t a_at, int32_t b, int64_t b_at) const;
  void add_place(int32_t text);
  std::vector<Candidate> find(int32_t text) const;
  DraftToken next_token(const std::vector<Candidate>& candidates, int64_t sample,
                        int64_t position) const;
  double random_number(int64_t sample, int64_t position) const;

  const bool greedy_;
  const uint64_t seed_, index_;
  const int64_t position_;
  std::vector<Text> texts_;  // the prompt first
  std::unordered_map<int64_t, int32_t> text_of_sample_;
  std::vector<Occurrence> places_;
  std::unordered_map<uint64_t, int32_t> last_place_;  // of a pair of tokens
};

}  // namespace temper::generate
