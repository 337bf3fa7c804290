// What environments of text grids share: how a turn says its moves, and fields of the row.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/env/environment.h"

namespace temper::env {

// A move on a grid, rows from the top.
struct Move {
  const char* name;
  int64_t down, right;
};
inline constexpr std::array<Move, 4> kMoves{
    {{"Left", 0, -1}, {"Down", 1, 0}, {"Right", 0, 1}, {"Up", -1, 0}}};  // gymnasium's order
inline constexpr size_t kMostMoves = 10;                                 // of a turn

// The moves that a turn says, as indices of kMoves: those in its last <answer>..</answer>, in any
// case, separated by commas, || or spaces; without such a part the first word that is a move.
// Empty: it says none, or something else stands in the answer. What is beyond kMostMoves is left
// out.
std::vector<size_t> moves_of(const std::string& completion);

// Fields of a row, of an environment that errors name. Throw DataError.
struct RowFields {
  const char* environment;
  const Json& row;
  int64_t whole(const char* field, int64_t otherwise, int64_t least, int64_t most) const;
  double number(const char* field, double otherwise, double least, double most) const;
  bool truth(const char* field, bool otherwise) const;
  // A grid of characters, a text a row, all of one width; empty: the row has none. Characters are
  // some of `known`, at most 64 each way.
  std::vector<std::string> grid(const char* field, const std::string& known) const;
};

// The user's message: the instructions, where the row does not say `instructions: false`, and the
// grid; or after an answer without a move that it had none, and the grid.
void show_grid(Observation& observation, const std::string& before, const std::string& grid);
inline constexpr const char* kNoMove = "That is no move. Answer as in <answer>Right</answer>.\n";

}  // namespace temper::env
