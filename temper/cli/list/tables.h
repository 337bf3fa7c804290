// The tables of `temper list`, made from the registries.
#pragma once

#include <string>
#include <vector>

#include "temper/base/registry.h"

namespace temper::cli {

struct ListRow {
  std::string name;                // empty: the row is in pages alone
  std::string line;                // what stands beside it in a terminal
  std::vector<std::string> cells;  // Markdown, the first for the name; empty: not in pages
};
struct ListTable {
  std::string title;                // the heading above it in a page; empty: none
  std::vector<std::string> header;  // of the cells
  std::vector<ListRow> rows;
};

// Text for a terminal as a cell: keys, paths and tags become code, and what Markdown would read
// otherwise is escaped.
std::string cell_of(const std::string& text);
std::string code_of(const std::string& name);
// "help (arXiv 2402.03300)": as `temper list` prints an entry that follows a paper.
std::string with_paper(const std::string& help, const std::string& paper);

// Names and help; `key` is what the page calls the column of the names.
template <class Value>
ListTable table_of(const std::string& key, const Registry<Value>& entries) {
  ListTable table{{}, {key, "what it is"}, {}};
  for (const auto& entry : entries.list())
    table.rows.push_back({entry.name,
                          with_paper(entry.help, entry.paper),
                          {code_of(entry.name), cell_of(entry.help)}});
  return table;
}

std::vector<ListTable> model_tables();
std::vector<ListTable> algorithm_tables();
std::vector<ListTable> loss_tables();
std::vector<ListTable> metric_tables();
std::vector<ListTable> paper_tables();
// Keys of other trainers; in a page by what they are called here.
std::vector<ListTable> synonym_tables();

}  // namespace temper::cli
