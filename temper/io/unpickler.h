// Python's pickle, as files of torch.save need it: values of a state dict and nothing that runs.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "temper/base/error.h"
#include "temper/io/tensor_view.h"

namespace temper::pickle {

struct Value;
// Into the unpickler's own values, which may be nested to any depth and hold themselves.
using Ref = Value*;
using Items = std::vector<Ref>;

struct Global {
  std::string name;
};
struct Storage {
  DType dtype;
  const std::string* key;  // not a copy: a file may name one long key a million times
};
struct Tensor {
  Storage storage;
  int64_t offset = 0;
  std::vector<int64_t> size, stride;
};
struct Dict {
  std::vector<std::pair<Ref, Ref>> items;
};
struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, Items, Dict, Global, Storage,
               Tensor>
      is;
};

// The stack machine of Python's pickle, protocols 0 to 5, less everything that runs code. What
// load() gives lives as long as the unpickler.
class Unpickler {
 public:
  Unpickler(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}
  // The next object. Throws DataError, with the byte, for what is cut short or malformed, for more
  // objects than a file of tensors has, and for what would run code.
  Ref load();
  size_t position() const { return at_; }

 private:
  // Objects of one file; a hundred thousand tensors make some three million.
  static constexpr size_t kMaxObjects = size_t{1} << 22;

  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(temper::str(where_, ": pickle, byte ", at_, ": ", problem));
  }
  void need(bool ok, const char* problem) const {
    if (!ok) fail(problem);
  }
  template <class T>
  T read() {
    need(bytes_.size() - at_ >= sizeof(T), "cut short");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text(uint64_t size) {
    need(size <= bytes_.size() - at_, "a string runs past the end");
    std::string out(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
    return out;
  }
  std::string line() {
    std::string out;
    while (true) {
      const char c = static_cast<char>(read<uint8_t>());
      if (c == '\n') return out;
      out += c;
    }
  }
  template <class T>
  Ref make(T value) {
    return &values_.emplace_back(Value{std::move(value)});
  }
  void push(Ref value) {
    need(++made_ <= kMaxObjects, "too many objects");
    stack_.push_back(value);
  }
  Ref pop() {
    need(!stack_.empty() && (marks_.empty() || stack_.size() > marks_.back()),
         "the stack is empty");
    const Ref value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Items pop_mark() {
    need(!marks_.empty(), "no mark on the stack");
    const size_t mark = marks_.back();
    marks_.pop_back();
    need(mark <= stack_.size(), "no mark on the stack");
    Items items(stack_.begin() + static_cast<ptrdiff_t>(mark), stack_.end());
    stack_.resize(mark);
    return items;
  }
  Ref top() const {
    need(!stack_.empty() && (marks_.empty() || stack_.size() > marks_.back()),
         "the stack is empty");
    return stack_.back();
  }
  template <class T>
  T* as(Ref value) const {
    return std::get_if<T>(&value->is);
  }
  std::vector<int64_t> integers(Ref value) const {
    std::vector<int64_t> out;
    const Items* items = as<Items>(value);
    need(items != nullptr && items->size() <= 16, "expected a short tuple of integers");
    for (const Ref item : *items) {
      const int64_t* i = as<int64_t>(item);
      need(i != nullptr, "expected an integer");
      out.push_back(*i);
    }
    return out;
  }
  void set_items(const Items& items) {
    Dict* dict = as<Dict>(top());
    need(dict != nullptr && items.size() % 2 == 0, "items for something that is not a dict");
    for (size_t i = 0; i < items.size(); i += 2) dict->items.emplace_back(items[i], items[i + 1]);
  }
  void global(const std::string& module, const std::string& name);
  void reduce();
  void persistent_id();
  void memoize(uint64_t key) {
    need(memo_.size() < kMaxObjects, "too many memo entries");
    memo_[key] = top();
  }
  void recall(uint64_t key) {
    const auto it = memo_.find(key);
    need(it != memo_.end(), "refers to nothing");
    push(it->second);
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t at_ = 0, made_ = 0;
  std::deque<Value> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Ref> memo_;
};

}  // namespace temper::pickle
