// The tables that the documentation takes from the registries.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "temper/cli/list/tables.h"
#include "temper/models/family.h"
#include "temper/rl/algorithms/algorithm.h"

using namespace temper;
using namespace temper::cli;

namespace {

const ListRow& row_of(const std::vector<ListTable>& tables, const std::string& name) {
  for (const ListTable& table : tables)
    for (const ListRow& row : table.rows)
      if (row.name == name) return row;
  FAIL(name);
  return tables.at(0).rows.at(0);
}

}  // namespace

TEST_CASE("text for a terminal becomes a cell: keys, paths and tags are code") {
  CHECK(cell_of("a share of rollout.max_new_tokens, negative") ==
        "a share of `rollout.max_new_tokens`, negative");
  CHECK(cell_of("(OUTPUT_DIR/x); 0.5 of 10.") == "(`OUTPUT_DIR/x`); 0.5 of 10.");
  CHECK(cell_of("<think>...</think> and nothing else") == "`<think>...</think>` and nothing else");
  CHECK(cell_of("the row's `answer field` and `a_b`") == "the row's `answer field` and `a_b`");
  CHECK(cell_of("KL(p || q)") == "KL(p \\|\\| q)");
  CHECK(cell_of("") == "");
  CHECK(code_of("a|b") == "`a\\|b`");
}

TEST_CASE("an entry is printed with the first paper that it follows") {
  CHECK(with_paper("help", "A et al., arXiv 2402.03300, section 1; B, arXiv 2106.09685") ==
        "help (arXiv 2402.03300)");
  CHECK(with_paper("help", "C, arXiv 1412.6550") == "help (arXiv 1412.6550)");
  CHECK(with_paper("help", "Jordan, a page") == "help");
}

TEST_CASE("every row has as many cells as its table has columns, and none is empty by mistake") {
  for (const auto& tables : {model_tables(), algorithm_tables(), loss_tables(), metric_tables(),
                             paper_tables(), synonym_tables()})
    for (const ListTable& table : tables) {
      CHECK(!table.rows.empty());
      for (const ListRow& row : table.rows) {
        CAPTURE(row.name);
        CHECK((row.cells.empty() || row.cells.size() == table.header.size()));
        CHECK((row.name.empty() || !row.line.empty()));
        const size_t said = table.header[1] == "unit" ? 2 : 1;  // a number may have no unit
        if (row.cells.size() > said) CHECK(!row.cells[said].empty());
        for (const std::string& cell : row.cells)
          CHECK(std::count(cell.begin(), cell.end(), '`') % 2 == 0);
      }
    }
}

TEST_CASE("a family's row says what its config class and its registry entry have") {
  const auto tables = model_tables();
  CHECK(tables.at(0).rows.size() == models::families().list().size());
  const auto& mixtral = row_of(tables, "mixtral").cells;
  CHECK(mixtral == std::vector<std::string>{"`mixtral`", "Mixtral", "two of eight experts", "yes",
                                            "yes", "arXiv 2401.04088"});
  const auto& qwen3 = row_of(tables, "qwen3").cells;
  CHECK(qwen3[3] == "");
  CHECK(row_of(tables, "granite").cells[4] == "");  // transformers has no such class
}

TEST_CASE(
    "an algorithm's row has the defaults in which it is not GRPO, and no key that it ignores") {
  const auto tables = algorithm_tables();
  CHECK(row_of(tables, "grpo").cells[2] == "");
  const std::string cispo = row_of(tables, "cispo").cells[2];
  CHECK(cispo.find("`epsilon_high: 4.0`") != cispo.npos);
  CHECK(cispo.find("dual_clip") == cispo.npos);
  CHECK(row_of(tables, "dro").cells[2].find("`dro_beta: ") != std::string::npos);
}

TEST_CASE("metrics that a name declares twice stand in different tables") {
  for (const ListTable& table : metric_tables()) {
    std::set<std::string> names;
    for (const ListRow& row : table.rows) CHECK(names.insert(row.name).second);
  }
}
