#include <algorithm>
#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/verbs.h"
#include "temper/distill/strategy.h"
#include "temper/env/environment.h"
#include "temper/metrics/sink.h"
#include "temper/models/model.h"
#include "temper/preference/losses.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithm.h"
#include "temper/train/update_rule.h"

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
      {"models",
       [] {
         for (const auto& family : models::families().list())
           print_entry(family.name.c_str(), family.help.c_str());
       }},
      {"algorithms", [] { lines(rl::algorithms().list()); }},
      {"optimizers", [] { lines(train::optimizers().list()); }},
      {"rewards", [] { lines(rewards::registry()); }},
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

int run_list(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what == "--help" || what == "-h") {
    std::cout
        << "usage: temper list models|algorithms|optimizers|rewards|environments|losses|sinks\n";
    return 0;
  }
  for (const Topic& topic : topics())
    if (what == topic.name) {
      topic.print();
      return 0;
    }
  throw ConfigError(
      "temper list: found `" + what +
      "`, expected models, algorithms, optimizers, rewards, environments, losses or sinks");
}

}  // namespace temper::cli
