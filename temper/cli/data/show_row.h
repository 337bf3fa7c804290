// Prints which tokens of a row a run trains.
#pragma once

#include <ostream>

#include "temper/base/json.h"
#include "temper/check/shown_row.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::cli {

// On a terminal trained tokens are green and others faint; elsewhere trained ones stand between
// ⟦ and ⟧. Without a tokenizer ids are printed.
void show_row(std::ostream& out, const checks::ShownRow& row, const Tokenizer* tokenizer,
              bool terminal);

// {"where", "paths": [{"name", "tokens", "trained": [0 | 1, ..], "text"}]}.
Json json_of_row(const checks::ShownRow& row, const Tokenizer* tokenizer);

}  // namespace temper::cli
