#include "temper/io/pickle.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <unordered_map>
#include <variant>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/zip.h"

namespace temper {
namespace {

// objects of one file; a hundred thousand tensors make some three million
constexpr size_t kMaxObjects = size_t{1} << 22;

struct Value;
using Ref =
    Value*;  // into the unpickler's own values: they may be nested to any depth and hold themselves
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

std::optional<DType> storage_dtype(const std::string& global) {
  static const std::unordered_map<std::string, DType> known{
      {"torch.FloatStorage", DType::kFloat32}, {"torch.DoubleStorage", DType::kFloat64},
      {"torch.HalfStorage", DType::kFloat16},  {"torch.BFloat16Storage", DType::kBFloat16},
      {"torch.LongStorage", DType::kInt64},    {"torch.IntStorage", DType::kInt32},
      {"torch.ShortStorage", DType::kInt16},   {"torch.CharStorage", DType::kInt8},
      {"torch.ByteStorage", DType::kUInt8},    {"torch.BoolStorage", DType::kBool}};
  const auto it = known.find(global);
  return it == known.end() ? std::nullopt : std::optional(it->second);
}

// The stack machine of Python's pickle, protocols 0 to 5, less everything that runs code. What
// load() gives lives as long as the unpickler.
class Unpickler {
 public:
  Unpickler(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}
  Ref load();
  size_t position() const { return at_; }

 private:
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

void Unpickler::global(const std::string& module, const std::string& name) {
  const std::string full = module + "." + name;
  static const std::vector<std::string> known{
      "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor",
      "torch._utils._rebuild_parameter", "collections.OrderedDict", "torch.Size"};
  const bool harmless =
      storage_dtype(full) || std::find(known.begin(), known.end(), full) != known.end();
  if (!harmless)
    fail("asks for `" + full +
         "`; loading it could run code. Only tensors are read: save the model as safetensors");
  push(make(Global{full}));
}

void Unpickler::reduce() {
  const Ref arguments = pop(), callee = pop();
  const Global* function = as<Global>(callee);
  const Items* args = as<Items>(arguments);
  need(function != nullptr && args != nullptr, "calls something that is not a function");
  if (function->name == "collections.OrderedDict") return push(make(Dict{}));
  if (function->name == "torch.Size") {
    need(args->size() == 1, "torch.Size takes one argument");
    return push((*args)[0]);
  }
  if (function->name == "torch._utils._rebuild_parameter") {
    need(!args->empty() && as<Tensor>((*args)[0]), "a parameter without its tensor");
    return push((*args)[0]);
  }
  need(function->name.starts_with("torch._utils._rebuild_tensor") && args->size() >= 4,
       "calls something that is not a function");
  const Storage* storage = as<Storage>((*args)[0]);
  const int64_t* offset = as<int64_t>((*args)[1]);
  need(storage != nullptr && offset != nullptr, "a tensor without a storage");
  push(make(Tensor{*storage, *offset, integers((*args)[2]), integers((*args)[3])}));
}

// ("storage", class, key, location, count)
void Unpickler::persistent_id() {
  const Ref id = pop();
  const Items* items = as<Items>(id);
  need(items != nullptr && items->size() >= 5 && as<std::string>((*items)[0]) &&
           as<Global>((*items)[1]) && as<std::string>((*items)[2]) && as<int64_t>((*items)[4]),
       "an unknown kind of storage");
  const auto dtype = storage_dtype(as<Global>((*items)[1])->name);
  need(*as<std::string>((*items)[0]) == "storage" && dtype.has_value(),
       "an unknown kind of storage");
  push(make(Storage{*dtype, as<std::string>((*items)[2])}));
}

Ref Unpickler::load() {
  while (true) {
    const uint8_t op = read<uint8_t>();
    switch (op) {
      case 0x80:
        need(read<uint8_t>() <= 5, "unknown protocol");
        break;  // PROTO
      case 0x95:
        read<uint64_t>();
        break;  // FRAME
      case '.':
        return pop();  // STOP
      case '(':
        marks_.push_back(stack_.size());
        need(marks_.size() < 65536, "nested too deep");
        break;
      case '0':
        pop();
        break;
      case '1':
        pop_mark();
        break;
      case '2':
        push(top());
        break;
      case 'N':
        push(make(std::monostate{}));
        break;
      case 0x88:
        push(make(true));
        break;
      case 0x89:
        push(make(false));
        break;
      case 'J':
        push(make(int64_t{read<int32_t>()}));
        break;
      case 'K':
        push(make(int64_t{read<uint8_t>()}));
        break;
      case 'M':
        push(make(int64_t{read<uint16_t>()}));
        break;
      case 0x8a: {  // LONG1, two's complement
        const uint8_t size = read<uint8_t>();
        need(size <= 8 || size == 10, "an integer of more than 64 bits");
        const std::string digits = text(size);
        int64_t value = 0;  // magic numbers of the legacy form have ten bytes; their low 64 bits
                            // tell them apart
        for (size_t i = 0; i < digits.size() && i < 8; ++i)
          value |= static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint8_t>(digits[i]))
                                        << (8 * i));
        if (size > 0 && size < 8 && (digits.back() & 0x80))
          value |= static_cast<int64_t>(~uint64_t{0} << (8 * size));
        push(make(value));
        break;
      }
      case 'G': {  // BINFLOAT, big endian
        uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) bits = bits << 8 | read<uint8_t>();
        double value;
        std::memcpy(&value, &bits, 8);
        push(make(value));
        break;
      }
      case 'X':
        push(make(text(read<uint32_t>())));
        break;
      case 0x8c:
        push(make(text(read<uint8_t>())));
        break;
      case 0x8d:
        push(make(text(read<uint64_t>())));
        break;
      case 'T':
        push(make(text(read<uint32_t>())));
        break;
      case 'U':
        push(make(text(read<uint8_t>())));
        break;
      case 'B':
        push(make(text(read<uint32_t>())));
        break;
      case 'C':
        push(make(text(read<uint8_t>())));
        break;
      case '}':
        push(make(Dict{}));
        break;
      case ']':
        push(make(Items{}));
        break;
      case ')':
        push(make(Items{}));
        break;
      case 't':
        push(make(pop_mark()));
        break;
      case 0x85: {
        Ref a = pop();
        push(make(Items{a}));
        break;
      }
      case 0x86: {
        Ref b = pop(), a = pop();
        push(make(Items{a, b}));
        break;
      }
      case 0x87: {
        Ref c = pop(), b = pop(), a = pop();
        push(make(Items{a, b, c}));
        break;
      }
      case 'a': {
        Ref item = pop();
        Items* list = as<Items>(top());
        need(list != nullptr, "appends to no list");
        list->push_back(item);
        break;
      }
      case 'e': {
        Items items = pop_mark();
        Items* list = as<Items>(top());
        need(list != nullptr, "appends to no list");
        list->insert(list->end(), items.begin(), items.end());
        break;
      }
      case 's': {
        Ref value = pop(), key = pop();
        set_items({key, value});
        break;
      }
      case 'u':
        set_items(pop_mark());
        break;
      case 'q':
        memoize(read<uint8_t>());
        break;
      case 'r':
        memoize(read<uint32_t>());
        break;
      case 0x94:
        memoize(memo_.size());
        break;
      case 'h':
        recall(read<uint8_t>());
        break;
      case 'j':
        recall(read<uint32_t>());
        break;
      case 'c': {
        const std::string module = line();
        global(module, line());
        break;
      }
      case 0x93: {
        const Ref name = pop(), module = pop();
        need(as<std::string>(name) && as<std::string>(module), "a global without a name");
        global(*as<std::string>(module), *as<std::string>(name));
        break;
      }
      case 'Q':
        persistent_id();
        break;
      case 'R':
        reduce();
        break;
      case 'b':
        pop();
        need(as<Dict>(top()) != nullptr || as<Tensor>(top()) != nullptr,
             "sets the state of an object");
        break;  // attributes of an OrderedDict
      default:
        fail(temper::str("opcode ", static_cast<int>(op),
                         " is not one that a file of tensors needs"));
    }
  }
}

// A strided view of a storage as a contiguous tensor. Copies where it must, at most `may_copy`
// bytes, and subtracts the bytes copied from `may_copy`.
TensorView materialize(const Tensor& tensor, std::span<const std::byte> storage,
                       const std::string& place, const std::shared_ptr<const void>& owner,
                       size_t& may_copy) {
  const size_t width = dtype_size(tensor.storage.dtype);
  check<DataError>(tensor.size.size() == tensor.stride.size() && tensor.offset >= 0, place,
                   ": bad shape or stride");
  const auto bytes = shape_bytes(tensor.size, tensor.storage.dtype);
  check<DataError>(bytes.has_value(), place, ": bad shape");
  TensorView view{tensor.storage.dtype, tensor.size, nullptr, *bytes, owner};
  if (*bytes == 0) return view;
  uint64_t last = static_cast<uint64_t>(tensor.offset), expected = 1;
  bool contiguous = true;
  for (size_t d = tensor.size.size(); d-- > 0;) {
    uint64_t reach;
    check<DataError>(tensor.stride[d] >= 0 &&
                         !__builtin_mul_overflow(static_cast<uint64_t>(tensor.size[d] - 1),
                                                 static_cast<uint64_t>(tensor.stride[d]), &reach) &&
                         !__builtin_add_overflow(last, reach, &last),
                     place, ": bad stride");
    if (tensor.size[d] != 1 && static_cast<uint64_t>(tensor.stride[d]) != expected)
      contiguous = false;
    expected *= static_cast<uint64_t>(tensor.size[d]);
  }
  check<DataError>(last < storage.size() / width, place, ": reaches past its storage of ",
                   storage.size(), " bytes");
  const std::byte* base = storage.data() + static_cast<size_t>(tensor.offset) * width;
  if (contiguous) {
    view.data = base;
    return view;
  }
  check<DataError>(*bytes <= may_copy, place, ": an expanded tensor of ", *bytes,
                   " bytes over a storage of ", storage.size());
  may_copy -= *bytes;
  auto copy = std::make_shared<std::vector<std::byte>>(*bytes);
  std::vector<int64_t> index(tensor.size.size(), 0);
  for (size_t at = 0; at < *bytes; at += width) {
    size_t from = 0;
    for (size_t d = 0; d < index.size(); ++d)
      from += static_cast<size_t>(index[d] * tensor.stride[d]);
    std::memcpy(copy->data() + at, base + from * width, width);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == tensor.size[d];) index[d] = 0;
  }
  view.data = copy->data();
  view.owner = copy;
  return view;
}

template <class Find>
TensorMap tensors_of(Ref root, std::span<const std::byte> file, const std::string& where,
                     const std::shared_ptr<const void>& owner, Find storage_of) {
  size_t may_copy = file.size() * 16;  // thousands of small entries could expand one storage
  const Dict* dict = std::get_if<Dict>(&root->is);
  check<DataError>(dict != nullptr, where, ": expected a dict of tensors");
  TensorMap tensors;
  for (const auto& [key, value] : dict->items) {
    const std::string* name = std::get_if<std::string>(&key->is);
    const Tensor* tensor = std::get_if<Tensor>(&value->is);
    check<DataError>(name != nullptr, where,
                     ": a key that is not text; expected a dict of tensors");
    const std::string place = where + ": tensor `" + *name + "`";
    check<DataError>(
        tensor != nullptr, place,
        ": not a tensor; expected a state dict (a training checkpoint must be exported first)");
    tensors[*name] =
        materialize(*tensor, storage_of(tensor->storage, place), place, owner, may_copy);
  }
  return tensors;
}

TensorMap parse_zip(std::span<const std::byte> bytes, const std::string& where,
                    const std::shared_ptr<const void>& owner) {
  const auto entries = stored_entries(bytes, where);
  std::string root;
  for (const auto& [name, data] : entries)
    if (name.ends_with("/data.pkl")) root = name.substr(0, name.size() - 8);
  check<DataError>(!root.empty(), where,
                   ": a zip archive without data.pkl; torch.save did not write it");
  if (const auto order = entries.find(root + "byteorder"); order != entries.end()) {
    const std::string text(reinterpret_cast<const char*>(order->second.data()),
                           order->second.size());
    check<DataError>(text == "little", where, ": byte order `", text, "` is not supported");
  }
  Unpickler unpickler(entries.at(root + "data.pkl"), where);
  return tensors_of(unpickler.load(), bytes, where, owner,
                    [&](const Storage& storage, const std::string& place) {
                      const auto it = entries.find(root + "data/" + *storage.key);
                      check<DataError>(it != entries.end(), place, ": its storage `", *storage.key,
                                       "` is not in the archive");
                      return it->second;
                    });
}

// Before torch 1.6: five pickles in a row (magic number, protocol, system, the object, storage
// keys), then each storage's element count and bytes.
TensorMap parse_legacy(std::span<const std::byte> bytes, const std::string& where,
                       const std::shared_ptr<const void>& owner) {
  size_t at = 0;
  std::deque<Unpickler> unpicklers;
  const auto next = [&] {
    Unpickler& unpickler = unpicklers.emplace_back(bytes.subspan(at), where);
    const Ref value = unpickler.load();
    at += unpickler.position();
    return value;
  };
  const Ref magic = next();
  const int64_t* number = std::get_if<int64_t>(&magic->is);
  constexpr uint64_t kMagic = 0xa86a20f9469cfc6c;  // the low 64 bits of 0x1950a86a20f9469cfc6c
  check<DataError>(number != nullptr && static_cast<uint64_t>(*number) == kMagic, where,
                   ": not a file of torch.save");
  next();
  next();
  const Ref object = next(), keys = next();
  const Items* order = std::get_if<Items>(&keys->is);
  check<DataError>(order != nullptr, where, ": no list of storages");
  // The widths stand in the object's tensors.
  std::unordered_map<std::string, size_t> width;
  if (const Dict* dict = std::get_if<Dict>(&object->is))
    for (const auto& item : dict->items)
      if (const Tensor* tensor = std::get_if<Tensor>(&item.second->is))
        width[*tensor->storage.key] = dtype_size(tensor->storage.dtype);
  std::unordered_map<std::string, std::span<const std::byte>> storages;
  for (const Ref key : *order) {
    const std::string* name = std::get_if<std::string>(&key->is);
    check<DataError>(name != nullptr && width.contains(*name) && bytes.size() - at >= 8, where,
                     ": storages are cut short");
    uint64_t count, size;
    std::memcpy(&count, bytes.data() + at, 8);
    at += 8;
    check<DataError>(!__builtin_mul_overflow(count, static_cast<uint64_t>(width[*name]), &size) &&
                         size <= bytes.size() - at,
                     where, ": storage `", *name, "` of ", count, " elements is cut short");
    storages[*name] = bytes.subspan(at, size);
    at += size;
  }
  return tensors_of(
      object, bytes, where, owner, [&](const Storage& storage, const std::string& place) {
        const auto it = storages.find(*storage.key);
        check<DataError>(it != storages.end(), place, ": its storage is not in the file");
        return it->second;
      });
}

}  // namespace

TensorMap parse_torch_file(std::span<const std::byte> bytes, const std::string& where,
                           std::shared_ptr<const void> owner) {
  check<DataError>(bytes.size() >= 4, where, ": ", bytes.size(),
                   " bytes are not a file of torch.save");
  const bool zip = std::memcmp(bytes.data(), "PK\x03\x04", 4) == 0;
  return zip ? parse_zip(bytes, where, owner) : parse_legacy(bytes, where, owner);
}

TensorMap read_torch_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  TensorMap tensors = parse_torch_file({file->data(), file->size()}, path, file);
  for (auto& [name, view] : tensors)  // others were copied
    view.mapped = view.data >= file->data() && view.data < file->data() + file->size();
  return tensors;
}

}  // namespace temper
