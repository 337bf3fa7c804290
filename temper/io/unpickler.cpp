#include "temper/io/unpickler.h"

#include <algorithm>
#include <optional>

namespace temper::pickle {
namespace {

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

}  // namespace

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

}  // namespace temper::pickle
