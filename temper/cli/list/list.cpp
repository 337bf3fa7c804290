#include <algorithm>
#include <iostream>
#include <optional>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/cli/list/tables.h"
#include "temper/cli/verbs.h"
#include "temper/env/environment.h"
#include "temper/generate/remote/protocol.h"
#include "temper/metrics/sink.h"
#include "temper/rewards/reward.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::cli {
namespace {

void print_text(const ListTable& table) {
  for (const ListRow& row : table.rows) {
    if (row.name.empty()) continue;
    std::cout << row.name << std::string(row.name.size() < 13 ? 14 - row.name.size() : 1, ' ')
              << row.line << "\n";
  }
}

void print_cells(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) std::cout << "| " << cell << (cell.empty() ? "" : " ");
  std::cout << "|\n";
}
void print_markdown(const ListTable& table) {
  const auto in_pages = [](const ListRow& row) { return !row.cells.empty(); };
  if (std::none_of(table.rows.begin(), table.rows.end(), in_pages)) return;
  if (!table.title.empty()) std::cout << "## " << table.title << "\n\n";
  print_cells(table.header);
  for (size_t i = 0; i < table.header.size(); ++i) std::cout << "|---";
  std::cout << "|\n";
  for (const ListRow& row : table.rows)
    if (in_pages(row)) print_cells(row.cells);
  std::cout << "\n";
}

struct Topic {
  const char* name;
  std::vector<ListTable> (*tables)();
};
const std::vector<Topic>& topics() {
  using Tables = std::vector<ListTable>;
  static const std::vector<Topic> table{
      {"models", &model_tables},
      {"algorithms", &algorithm_tables},
      {"optimizers", [] { return Tables{table_of("`optimizer.name`", train::optimizers())}; }},
      {"servers",
       [] { return Tables{table_of("`rollout.server.kind`", generate::remote::server_kinds())}; }},
      {"rewards", [] { return Tables{table_of("`rewards[].name`", rewards::registry())}; }},
      {"environments", [] { return Tables{table_of("`environment.name`", env::environments())}; }},
      {"losses", &loss_tables},
      {"sinks", [] { return Tables{table_of("`metrics.sinks`", sinks())}; }},
      {"metrics", &metric_tables},
      {"papers", &paper_tables},
      {"synonyms", &synonym_tables}};
  return table;
}

}  // namespace

std::vector<std::string> list_topics() {
  std::vector<std::string> names;
  for (const Topic& topic : topics()) names.push_back(topic.name);
  return names;
}

std::string list_of_topics(const std::string& separator) {
  std::string names;
  for (const Topic& topic : topics()) names += (names.empty() ? "" : separator) + topic.name;
  return names;
}

// The keys of the trainer that --of names, removed from the words; none without --of.
std::optional<ListTable> take_peer(Arguments& words) {
  const auto option = std::ranges::find(words, "--of");
  if (option == words.end()) return std::nullopt;
  const bool is_missing = option + 1 == words.end() || option[1].starts_with('-');
  const std::string name = is_missing ? "" : option[1];
  words.erase(option, option + (is_missing ? 1 : 2));
  std::vector<std::string> known;
  std::string listed;
  for (const Peer& peer : peers()) {
    if (peer.name == name) return peer_table(peer);
    listed += (listed.empty() ? "" : ", ") + known.emplace_back(peer.name);
  }
  check<ConfigError>(!is_missing, "--of: the name of a trainer is missing, expected one of ",
                     listed);
  throw ConfigError("--of: found `" + name + "`, expected one of " + listed +
                    did_you_mean(name, known));
}

int run_list(const Arguments& arguments) {
  Arguments words = arguments;
  const std::optional<ListTable> peer = take_peer(words);
  const bool markdown = std::erase(words, "--markdown") > 0;
  const std::string what = words.empty() ? "--help" : words[0];
  if (what == "--help" || what == "-h") {
    std::cout << "usage: temper list " << list_of_topics("|") << " [--markdown]\n"
              << "       temper list synonyms --of NAME   keys of another trainer (trl, verl, "
                 "axolotl, tunix) and Temper's\n";
    return 0;
  }
  check<ConfigError>(!peer || what == "synonyms", "--of: found `", what,
                     "`, expected synonyms: temper list synonyms --of NAME");
  if (peer) {
    markdown ? print_markdown(*peer) : print_text(*peer);
    return 0;
  }
  for (const Topic& topic : topics())
    if (what == topic.name) {
      for (const ListTable& table : topic.tables())
        markdown ? print_markdown(table) : print_text(table);
      return 0;
    }
  throw ConfigError("temper list: found `" + what + "`, expected one of " + list_of_topics(", ") +
                    did_you_mean(what, list_topics()));
}

}  // namespace temper::cli
