// The likeliest next tokens at given places of given rows, as a teacher gives them to a student in
// another process: the route /top_tokens of `temper serve` (distill.teacher: {url}). Both ends of
// it. GET says what the teacher is; POST takes JSON:
//   tokens  the segments of a token forest, lists of ids
//   parent  of each segment the number of the one that it continues, an earlier one; -1: none. Left
//           out: none continues another
//   places  numbers of tokens, counted from 0 through all segments: those after them are predicted
//   top_k   how many tokens to give of each place, at most the vocabulary's size
// and answers bytes, in little-endian order: int32 ids [places, top_k], likeliest first, and then
// float32 logits [places, top_k], the numbers of a teacher in the student's process, to the bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "temper/models/model.h"
#include "temper/ops/logits/top_tokens.h"
#include "temper/train/forward_pass.h"

namespace temper::distill {

inline constexpr const char* kTopTokens = "/top_tokens";
// Of an answer: places times top_k times 8.
inline constexpr int64_t kMostTopBytes = int64_t{128} << 20;

struct TopTokensAsk {
  train::ForwardPass pass;  // its forest and row_M, the places
  int64_t top_k = 1;
};

std::string top_tokens_body(const train::ForwardPass& pass, int64_t top_k);
// Throws DataError, which names the member, for what is not such a request, for ids outside of the
// vocabulary, for a path of segments longer than most_positions and for an answer that is too
// large.
TopTokensAsk parse_top_tokens(std::string_view body, int64_t vocabulary, int64_t most_positions);

// In passes of some thousand tokens; no place's numbers depend on other trees.
ops::TopTokens likeliest_of(models::CausalLM& model, const TopTokensAsk& ask);

std::string top_tokens_bytes(const ops::TopTokens& top);
// Throws DataError unless these are finite numbers of `count` places, of distinct ids in the
// vocabulary.
ops::TopTokens parse_top_tokens_bytes(std::string_view bytes, int64_t count, int64_t top_k,
                                      int64_t vocabulary);

}  // namespace temper::distill
