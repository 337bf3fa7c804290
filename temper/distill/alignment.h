// The same text in the tokens of two tokenizers: which tokens of both mean the same, and which runs
// of tokens cover the same bytes (GOLD, Patiño et al., 2025).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "temper/ops/logits/aligned_divergence.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/train/forward_pass.h"

namespace temper::distill {

// Runs of tokens between two places where both sides end a token, the shortest: [begin, end) of
// each. `ends`: where each token ends, in bytes, not falling. Places beyond `common` are none.
struct AlignedRun {
  int64_t student_begin, student_end, teacher_begin, teacher_end;
  bool operator==(const AlignedRun&) const = default;
};
std::vector<AlignedRun> align_ends(std::span<const int64_t> student_ends,
                                   std::span<const int64_t> teacher_ends, int64_t common);

// What the teacher reads for a pass of the student's.
struct Alignment {
  train::ForwardPass teacher;  // the same text; its targets are the tokens of the spans
  // Spans all of whose tokens are targets of both.
  ops::SpanTokens student_spans, teacher_spans;
  int64_t aligned = 0;  // targets of the student's pass that are in spans

  int64_t num_spans() const { return static_cast<int64_t>(student_spans.last.size()); }
};

// A model's side of the comparison.
struct Vocabulary {
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t size = 0;                    // the model's
  std::vector<int32_t> end_token_ids;  // the model's
};

// Two vocabularies. Special tokens of one spelling mean the same; so do end tokens that the other
// side does not have. A special token that the teacher does not know is read as its spelling.
class TokenBridge {
 public:
  // Throws ConfigError that begins with `where` for a tokenizer that decodes the text as a whole.
  TokenBridge(Vocabulary student, Vocabulary teacher, const std::string& where);

  std::shared_ptr<const ops::VocabularyMatch> match() const { return match_; }
  // Reads each path of the pass's forest, from a root to a leaf, as one text. The result stays with
  // the bridge until another pass is asked for.
  std::shared_ptr<const Alignment> align(const train::ForwardPass& pass) const;

 private:
  struct Read;
  void match_tokens();
  std::string bytes_in_run(int32_t id, bool first) const;
  std::vector<int32_t> read_text(std::span<const int32_t> run, const std::string& text) const;
  void read_run(std::span<const int32_t> run, int64_t begin, Read& read) const;
  Read read(std::span<const int32_t> tokens) const;

  Vocabulary student_, teacher_;
  std::shared_ptr<const ops::VocabularyMatch> match_;
  std::vector<int32_t> special_;  // by the student's id: the teacher's; -1: read as text
  mutable std::shared_ptr<const Forest> last_pass_;
  mutable std::shared_ptr<const Alignment> last_;
};

}  // namespace temper::distill
