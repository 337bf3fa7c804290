// A table of things that users choose by name: model families, algorithms, rewards, sinks.
//
//   Registry<MakeReward>& table() {
//     static Registry<MakeReward> rewards("reward", {{"gsm8k", make_gsm8k, "1 where ..."}, ...});
//     return rewards;
//   }
//
// Keep it in a function, as above: entries are also added while the globals of other files are
// being made, by those files (`const Registered<MakeReward> gsm8k(table, {...})`) and by other
// programs. It has no lock: add before threads read.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace temper {

namespace registry_detail {
[[noreturn]] void fail_taken(std::string_view kind, std::string_view name);
[[noreturn]] void fail_unknown(std::string_view kind, std::string_view name,
                               const std::vector<std::string>& known, std::string_view where);
}  // namespace registry_detail

template <class Value>
class Registry {
 public:
  struct Entry {
    std::string name;
    Value value;
    std::string help;  // one line, for `temper list`
    // What the entry follows, for `temper list papers`: "Chen et al., arXiv 2302.06675, algorithm
    // 2".
    std::string paper = {};
  };

  // `kind` is the noun for one entry in messages: "reward", "model family".
  Registry(std::string kind, std::initializer_list<Entry> entries) : kind_(std::move(kind)) {
    for (const Entry& entry : entries) add(entry);
  }
  // For entries that register themselves, in no order that anybody chose: listed by name.
  explicit Registry(std::string kind) : kind_(std::move(kind)), by_name_(true) {}

  // Throws ConfigError "reward `x` exists already". References to other entries stay valid.
  void add(Entry entry) {
    if (contains(entry.name)) registry_detail::fail_taken(kind_, entry.name);
    const auto after = [&](const Entry& other) { return by_name_ && other.name > entry.name; };
    entries_.insert(std::find_if(entries_.begin(), entries_.end(), after), std::move(entry));
  }

  bool contains(std::string_view name) const { return lookup(name) != nullptr; }

  // Throws ConfigError "WHERE: unknown reward `x`; expected one of a, b; did you mean `a`?".
  // `where` is what the message begins with, as a config key with its file and line.
  const Value& find(std::string_view name, std::string_view where = {}) const {
    if (const Entry* entry = lookup(name)) return entry->value;
    registry_detail::fail_unknown(kind_, name, names(), where);
  }

  // In the order in which they were added, or by name.
  const std::list<Entry>& list() const { return entries_; }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const Entry& entry : entries_) out.push_back(entry.name);
    return out;
  }

 private:
  const Entry* lookup(std::string_view name) const {
    for (const Entry& entry : entries_)
      if (entry.name == name) return &entry;
    return nullptr;
  }

  std::string kind_;
  bool by_name_ = false;
  std::list<Entry> entries_;
};

// A global of this type adds an entry when the program starts: the file that defines it is all that
// the entry needs.
template <class Value>
struct Registered {
  Registered(Registry<Value>& (*table)(), typename Registry<Value>::Entry entry) {
    table().add(std::move(entry));
  }
};

}  // namespace temper
