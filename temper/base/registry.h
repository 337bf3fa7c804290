// A table of things that users choose by name: model families, algorithms, rewards, sinks.
//
//   Registry<MakeReward>& table() {
//     static Registry<MakeReward> rewards("reward", {{"gsm8k", make_gsm8k, "1 where ..."}, ...});
//     return rewards;
//   }
//
// Keep it in a function, as above: other programs add to it while their own globals are being made.
// It has no lock: add before threads read.
#pragma once

#include <deque>
#include <initializer_list>
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
  };

  // `kind` is the noun for one entry in messages: "reward", "model family".
  Registry(std::string kind, std::initializer_list<Entry> entries) : kind_(std::move(kind)) {
    for (const Entry& entry : entries) add(entry);
  }

  // Throws ConfigError "reward `x` exists already". References to other entries stay valid.
  void add(Entry entry) {
    if (contains(entry.name)) registry_detail::fail_taken(kind_, entry.name);
    entries_.push_back(std::move(entry));
  }

  bool contains(std::string_view name) const { return lookup(name) != nullptr; }

  // Throws ConfigError "WHERE: unknown reward `x`; expected one of a, b; did you mean `a`?".
  // `where` is what the message begins with, as a config key with its file and line.
  const Value& find(std::string_view name, std::string_view where = {}) const {
    if (const Entry* entry = lookup(name)) return entry->value;
    registry_detail::fail_unknown(kind_, name, names(), where);
  }

  // In the order in which they were added.
  const std::deque<Entry>& list() const { return entries_; }
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
  std::deque<Entry> entries_;
};

}  // namespace temper
