#include <algorithm>
#include <iostream>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/cli/verbs.h"
#include "temper/distill/strategy.h"
#include "temper/env/environment.h"
#include "temper/generate/remote/protocol.h"
#include "temper/metrics/sink.h"
#include "temper/models/model.h"
#include "temper/preference/losses.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::cli {
namespace {

void print_entry(const std::string& name, const std::string& help) {
  std::cout << name << std::string(name.size() < 13 ? 14 - name.size() : 1, ' ') << help << "\n";
}
template <class Table>
void lines(const Table& table) {
  for (const auto& entry : table) print_entry(entry.name, entry.help);
}

struct Topic {
  const char* name;
  void (*print)();
};
const std::vector<Topic>& topics() {
  static const std::vector<Topic> table{
      {"models", [] { lines(models::families().list()); }},
      {"algorithms", [] { lines(rl::algorithms().list()); }},
      {"optimizers", [] { lines(train::optimizers().list()); }},
      {"servers", [] { lines(generate::remote::server_kinds().list()); }},
      {"rewards", [] { lines(rewards::registry().list()); }},
      {"environments", [] { lines(env::environments().list()); }},
      {"losses",
       [] {
         print_entry("sft", "negative log-likelihood of the supervised tokens");
         for (const auto& loss : preference::losses().list())
           print_entry(loss.name, "dpo: " + loss.help);
         print_entry("orpo", "negative log-likelihood of chosen plus the odds-ratio loss");
         for (const auto& strategy : distill::strategies().list())
           print_entry(strategy.name, "distill: " + strategy.help);
         print_entry("reward", "-log sigmoid of the difference of two rewards (Bradley-Terry)");
       }},
      {"sinks", [] { lines(sinks().list()); }}};
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

int run_list(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "--help" : arguments[0];
  if (what == "--help" || what == "-h") {
    std::cout << "usage: temper list " << list_of_topics("|") << "\n";
    return 0;
  }
  for (const Topic& topic : topics())
    if (what == topic.name) {
      topic.print();
      return 0;
    }
  throw ConfigError("temper list: found `" + what + "`, expected one of " + list_of_topics(", ") +
                    did_you_mean(what, list_topics()));
}

}  // namespace temper::cli
