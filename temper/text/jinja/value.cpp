#include "temper/text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "temper/base/error.h"
#include "temper/text/jinja/objects.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
// pairs from which on a dict has a hash index; smaller dicts are searched
constexpr size_t kIndexFrom = 9;

std::shared_ptr<const Sequence> make_sequence(Values items, bool grouped = false) {
  auto data = std::make_shared<Sequence>();
  int children = 0;
  for (const Value& item : items) {
    children = std::max(children, nesting(item));
    data->weight = saturating_add(data->weight, weight(item));
  }
  data->depth = nesting_above(children);
  data->items = std::move(items);
  data->grouped = grouped;
  return data;
}

// -1, 0, 1, or 2 where a NaN is involved. long double holds every int64_t and every double exactly.
int compare_numbers(const Value& a, const Value& b) {
  const long double x = a.is<double>() ? static_cast<long double>(a.real()) : a.integer();
  const long double y = b.is<double>() ? static_cast<long double>(b.real()) : b.integer();
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

bool same_kind(const Value& a, const Value& b) { return a.data().index() == b.data().index(); }

[[noreturn]] void cannot_compare(const char* op, const Value& a, const Value& b) {
  if (const auto* u = a.get_if<Undefined>()) throw Failure(*u->message);
  if (const auto* u = b.get_if<Undefined>()) throw Failure(*u->message);
  throw Failure(str("'", op, "' not supported between instances of '", type_name(a), "' and '",
                    type_name(b), "'"));
}

// The one order of values: < when strict, <= otherwise. Sequences compare by their first unequal
// elements.
bool ordered(const Value& a, const Value& b, bool strict) {
  if (a.is_number() && b.is_number()) {
    const int c = compare_numbers(a, b);
    return c == -1 || (!strict && c == 0);
  }
  if (a.is_string() && b.is_string()) {
    const int c = a.text().compare(b.text());
    return c < 0 || (!strict && c == 0);
  }
  if (a.elements() && same_kind(a, b)) {
    const Values &x = *a.elements(), &y = *b.elements();
    const size_t n = std::min(x.size(), y.size());
    for (size_t i = 0; i < n; ++i) {
      if (!equal(x[i], y[i])) return ordered(x[i], y[i], strict);
    }
    return strict ? x.size() < y.size() : x.size() <= y.size();
  }
  cannot_compare(strict ? "<" : "<=", a, b);
}

bool equal_dicts(const Mapping& a, const Mapping& b) {
  if (a.pairs.size() != b.pairs.size()) return false;
  for (const auto& [key, value] : a.pairs) {
    const Value* other = b.find(key);
    if (!other || !equal(value, *other)) return false;
  }
  return true;
}

std::string join_reprs(const Values& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out += ", ";
    out += to_repr(items[i]);
  }
  return out;
}
}  // namespace

const std::string& Value::text() const {
  static const std::string empty;
  const auto* s = get_if<String>();
  return s ? *s->text : empty;
}

int64_t Value::integer() const {
  if (const auto* i = get_if<int64_t>()) return *i;
  if (const auto* b = get_if<bool>()) return *b;
  return 0;
}

double Value::real() const {
  if (const auto* d = get_if<double>()) return *d;
  return static_cast<double>(integer());
}

const Values* Value::elements() const {
  if (const auto* l = get_if<List>()) return &l->data->items;
  if (const auto* t = get_if<Tuple>()) return &t->data->items;
  return nullptr;
}

std::string Object::repr() const { return str("<", type_name(), " object>"); }

const Value* Mapping::find(const Value& key) const {
  if (index.empty()) {
    hash(key);  // an unhashable key is an error even in an empty dict
    for (const auto& [k, v] : pairs) {
      if (equal(k, key)) return &v;
    }
    return nullptr;
  }
  const size_t wanted = hash(key);
  for (auto it = std::lower_bound(index.begin(), index.end(), std::pair{wanted, uint32_t{0}});
       it != index.end() && it->first == wanted; ++it) {
    const auto& [k, v] = pairs[it->second];
    if (equal(k, key)) return &v;
  }
  return nullptr;
}

const Value* Mapping::find_text(const std::string& key) const {
  if (!index.empty()) return find(Value(key));
  for (const auto& [k, v] : pairs) {
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

Value make_list(Values items) { return List{make_sequence(std::move(items))}; }
Value make_tuple(Values items) { return Tuple{make_sequence(std::move(items))}; }

Value make_group(Value grouper, Value list) {
  return Tuple{make_sequence({std::move(grouper), std::move(list)}, true)};
}

Value make_dict(Pairs pairs) {
  auto data = std::make_shared<Mapping>();
  int children = 0;
  for (const auto& [key, value] : pairs) {
    children = std::max({children, nesting(key), nesting(value)});
    data->weight = saturating_add(data->weight, saturating_add(weight(key), weight(value)));
  }
  data->depth = nesting_above(children);

  std::vector<std::pair<size_t, uint32_t>> order;
  order.reserve(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) order.emplace_back(hash(pairs[i].first), i);
  std::sort(order.begin(), order.end());
  // Among equal keys the first keeps its place and takes the last one's value.
  std::vector<bool> dropped(pairs.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (dropped[order[i].second]) continue;
    auto& first = pairs[order[i].second];
    for (size_t j = i + 1; j < order.size() && order[j].first == order[i].first; ++j) {
      auto& later = pairs[order[j].second];
      if (dropped[order[j].second] || !equal(first.first, later.first)) continue;
      first.second = std::move(later.second);
      dropped[order[j].second] = true;
    }
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!dropped[i]) data->pairs.push_back(std::move(pairs[i]));
  }
  if (data->pairs.size() >= kIndexFrom) {
    for (size_t i = 0; i < data->pairs.size(); ++i) {
      data->index.emplace_back(hash(data->pairs[i].first), i);
    }
    std::sort(data->index.begin(), data->index.end());
  }
  return Dict{std::move(data)};
}

Value make_undefined(std::string message) {
  return Undefined{std::make_shared<const std::string>(std::move(message))};
}

int nesting(const Value& value) {
  if (const auto* l = value.get_if<List>()) return l->data->depth;
  if (const auto* t = value.get_if<Tuple>()) return t->data->depth;
  if (const auto* d = value.get_if<Dict>()) return d->data->depth;
  if (const auto* object = value.get_if<std::shared_ptr<Object>>()) return (*object)->nesting();
  return 0;
}

int nesting_above(int children) {
  if (children >= kMaxNesting) throw Failure(str("values nested deeper than ", kMaxNesting));
  return children + 1;
}

size_t saturating_add(size_t a, size_t b) {
  constexpr size_t kMost = size_t{1} << 60;
  return std::min(kMost, a + b);
}

size_t weight(const Value& value) {
  if (value.is_string()) return 1 + value.text().size() / 16;
  if (const auto* l = value.get_if<List>()) return l->data->weight;
  if (const auto* t = value.get_if<Tuple>()) return t->data->weight;
  if (const auto* d = value.get_if<Dict>()) return d->data->weight;
  if (const auto* object = value.get_if<std::shared_ptr<Object>>()) return (*object)->weight();
  return 1;
}

std::string type_name(const Value& value) {
  static const char* const names[] = {"Undefined", "NoneType", "bool",  "int", "float",
                                      "str",       "list",     "tuple", "dict"};
  if (const auto* object = value.get_if<std::shared_ptr<Object>>()) return (*object)->type_name();
  return value.is_markup() ? "Markup" : names[value.data().index()];
}

bool truth(const Value& value) {
  if (const auto* b = value.get_if<bool>()) return *b;
  if (const auto* i = value.get_if<int64_t>()) return *i != 0;
  if (const auto* d = value.get_if<double>()) return *d != 0;
  if (value.is_string()) return !value.text().empty();
  if (const Values* items = value.elements()) return !items->empty();
  if (const auto* d = value.get_if<Dict>()) return !d->data->pairs.empty();
  if (const auto* object = value.get_if<std::shared_ptr<Object>>()) return (*object)->truth();
  return false;
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return {};
  return value.is_string() ? value.text() : to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const auto* b = value.get_if<bool>()) return *b ? "True" : "False";
  if (const auto* i = value.get_if<int64_t>()) return std::to_string(*i);
  if (const auto* d = value.get_if<double>()) return float_repr(*d);
  if (value.is_string()) {
    std::string text = string_repr(value.text());
    return value.is_markup() ? "Markup(" + text + ")" : text;
  }
  if (value.is<List>()) return "[" + join_reprs(*value.elements()) + "]";
  if (value.is<Tuple>()) {
    const Values& items = *value.elements();
    return "(" + join_reprs(items) + (items.size() == 1 ? ",)" : ")");
  }
  if (const auto* dict = value.get_if<Dict>()) {
    std::string out = "{";
    for (const auto& [k, v] : dict->data->pairs) {
      if (out.size() > 1) out += ", ";
      out += to_repr(k) + ": " + to_repr(v);
    }
    return out + "}";
  }
  return (*value.get_if<std::shared_ptr<Object>>())->repr();
}

// Python's repr: the shortest digits that read back, as a plain decimal for exponents from -4
// to 15.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // to_chars has Python's two exponent digits
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string out(buffer, fixed);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string string_repr(std::string_view text) {
  const bool double_quoted =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  static const char* const hex = "0123456789abcdef";
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_code_point(text, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(start, i - start);
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      for (int d = digits - 1; d >= 0; --d) out += hex[(c >> (4 * d)) & 15];
    }
  }
  return out + quote;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (!same_kind(a, b)) return false;
  if (a.is_string()) return a.text() == b.text();
  if (a.elements()) {
    const Values &x = *a.elements(), &y = *b.elements();
    return &x == &y || std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
  }
  if (const auto* d = a.get_if<Dict>()) return equal_dicts(*d->data, *b.get_if<Dict>()->data);
  if (const auto* object = a.get_if<std::shared_ptr<Object>>()) {
    const auto *x = a.object<BigInteger>(), *y = b.object<BigInteger>();
    return x && y ? x->digits() == y->digits() : *object == *b.get_if<std::shared_ptr<Object>>();
  }
  return true;  // None == None, Undefined == Undefined
}

bool less(const Value& a, const Value& b) { return ordered(a, b, true); }
bool less_equal(const Value& a, const Value& b) { return ordered(a, b, false); }

size_t hash(const Value& value) {
  if (value.is_string()) return std::hash<std::string>()(value.text());
  if (value.is_number()) return std::hash<double>()(value.real() == 0 ? 0.0 : value.real());
  if (value.is<Tuple>()) {
    size_t seed = 0x345678;
    for (const Value& item : *value.elements()) seed = seed * 1000003 ^ hash(item);
    return seed;
  }
  if (const auto* object = value.get_if<std::shared_ptr<Object>>()) {
    if (const auto* big = value.object<BigInteger>())
      return std::hash<std::string>()(big->digits());
    return std::hash<const void*>()(object->get());
  }
  if (value.is_none() || value.is_undefined()) return 0x9e3779b9 + value.data().index();
  throw Failure(str("unhashable type: '", type_name(value), "'"));
}

}  // namespace temper::jinja
