// The tables that `temper list` prints, as text for a terminal or as Markdown for docs/, made from
// the registries.
#pragma once

#include <string>
#include <vector>

#include "temper/base/registry.h"
#include "temper/cli/synonyms/synonyms.h"

namespace temper::cli {

struct ListRow {
  std::string name;                // empty: the row is in the Markdown only
  std::string line;                // the text beside the name in a terminal
  std::vector<std::string> cells;  // Markdown, the first for the name; empty: terminal only
};
struct ListTable {
  std::string title;                // heading above the table in a page; empty: none
  std::vector<std::string> header;  // the titles of the columns
  std::vector<ListRow> rows;
};

// Text as a Markdown table cell: keys, paths and tags become code, and special characters are
// escaped.
std::string cell_of(const std::string& text);
std::string code_of(const std::string& name);
// "help (arXiv 2402.03300)": the line in a terminal of an entry with a paper.
std::string with_paper(const std::string& help, const std::string& paper);

// A table of a registry's names and help; `key` is the title of the column of names.
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
// Keys of other trainers, for a terminal alone.
std::vector<ListTable> synonym_tables();
// What each key of another trainer is here, or "no: why".
ListTable peer_table(const Peer& peer);

}  // namespace temper::cli
