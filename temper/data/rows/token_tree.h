// A row of supervised tuning as a tree of token segments. Most rows are one segment. A conversation
// that is trained turn by turn has a path for each trained turn, from a root to the turn's last
// token; beginnings that paths share are there once, so the model computes them once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/image/image_span.h"

namespace temper::data {

// A run of tokens that follows its parent's last token. labels[i] stands where tokens[i] stands:
// the token itself where it is trained, -100 elsewhere. A child's first token is predicted by its
// parent's last one; a root's has nothing before it.
struct Segment {
  int32_t parent = -1;  // index of an earlier segment; -1: a root
  std::vector<int32_t> tokens, labels;
  ImageSpans images = {};  // which of the tokens stand for images; their labels are -100
};

struct SftRow {
  std::vector<Segment> segments;  // in depth-first order, each with at least one token
  // Tokens of each path, where the row is trained turn by turn. Empty: one path, the only segment.
  std::vector<int64_t> path_lengths;
  std::string untrained;  // why no token is trained; empty where one is
  std::string group;      // TextFormat::groups' name for the row; empty: none

  // How many tokens are trained. A root's first label has nothing before it and is not counted.
  int64_t supervised() const;
  // The tokens of every path in full, as if each trained turn were a row of its own.
  int64_t num_tokens() const;
  // The tokens that go through the model: shared beginnings once.
  int64_t num_computed() const;
  // Whether this token is trained somewhere.
  bool trains(int32_t token) const;
};

// One path of a row: all its tokens, with labels.
struct TokenPath {
  std::vector<int32_t> tokens, labels;
  ImageSpans images = {};
};

// The row of one path: a single root segment.
SftRow row_of(TokenPath path);

// The tree of the paths, which are not empty, without their images: a trie, in which paths part
// where their tokens first differ. A token is trained where one of the paths that contain it trains
// it; where two do, it is the same prediction after the same tokens and counts once. Children stand
// in the order of their paths.
SftRow tree_of(const std::vector<TokenPath>& paths);

}  // namespace temper::data
