// Speculative decoding that changes no bit. A sequence's draft goes through the model in the same
// pass as its last token, as further rows, and of each row the token is chosen that would have been
// chosen anyway: by its keyed random number, after the history that the draft gives it. Tokens are
// kept up to the first that is not the drafted one. As rows do not depend on each other, nothing
// but the number of passes knows of it.
//
// How much is drafted follows from counts alone, never from the time that something took, so that
// ranks that compute the same rows draft alike.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "temper/generate/sampling/drafts.h"
#include "temper/models/model.h"

namespace temper::generate {

struct Sequence;

// EngineOptions::speculative: as much as pays (kAutomatic), nothing (0), or as much as is found, at
// most so many tokens a sequence.
inline constexpr int64_t kAutomatic = -1;

// "auto", "off" or a number of tokens. Throws ConfigError naming the key.
int64_t read_speculative(const std::string& text, const std::string& key);

// How many rows of a decoding step take as long as reading the weights does, so that a step of r
// rows takes reading_rows + r times the same. Measured for each format of weights.
double reading_rows(models::CausalLM& model);

class Speculation {
 public:
  Speculation(int64_t most, double reading_rows) : most_(most), reading_rows_(reading_rows) {}
  bool on() const { return most_ != 0; }

  // Gives the sequences that decode in one pass their drafts. A drafted row is kept where its
  // probability of acceptance (the product of the acceptance rates up to it) exceeds the pass's
  // expected tokens / cost so far.
  void plan(std::span<Sequence* const> decoding);
  // Records how many of the sequence's drafted tokens were chosen.
  void record(const Sequence& sequence, int64_t accepted);
  // What was learnt long ago counts less, so that what was given up is tried again at times.
  void end_step();
  void forget() { outcomes_ = {}; }

  struct Statistics {
    int64_t drafted_tokens = 0, accepted_tokens = 0;
    Statistics operator+(const Statistics& more) const {
      return {drafted_tokens + more.drafted_tokens, accepted_tokens + more.accepted_tokens};
    }
    Statistics operator-(const Statistics& before) const {
      return {drafted_tokens - before.drafted_tokens, accepted_tokens - before.accepted_tokens};
    }
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  struct Outcomes {
    double tried = 0, accepted = 0;
  };
  double expected(const Sequence& sequence, DraftEvidence evidence) const;
  void find(Sequence& sequence, double least) const;
  void keep_what_pays(std::span<Sequence* const> decoding) const;

  int64_t most_;
  double reading_rows_;
  // Outcomes of greedy sequences and of others, by evidence.
  std::array<std::array<Outcomes, DraftEvidence::kCount>, 2> outcomes_{};
  Statistics statistics_;
};

}  // namespace temper::generate
