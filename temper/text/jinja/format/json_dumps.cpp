#include <algorithm>
#include <cmath>
#include <cstdio>

#include "temper/base/error.h"
#include "temper/text/jinja/format/format.h"
#include "temper/text/jinja/objects.h"
#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {
namespace {
std::string unicode_escape(char32_t c) {
  char buffer[16];
  if (c < 0x10000) {
    std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
  } else {
    const auto pair = static_cast<unsigned>(c) - 0x10000;
    std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xd800 + (pair >> 10),
                  0xdc00 + (pair & 0x3ff));
  }
  return buffer;
}

std::string quoted(const std::string& text, bool ensure_ascii) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_code_point(text, i);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < ' ' || (ensure_ascii && c > '~'))
          out += unicode_escape(c);
        else
          out.append(text, start, i - start);
    }
  }
  return out + '"';
}

std::string scalar(const Value& value) {
  if (value.is_none()) return "null";
  if (const auto* b = value.get_if<bool>()) return *b ? "true" : "false";
  if (const auto* i = value.get_if<int64_t>()) return std::to_string(*i);
  const double d = value.real();
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
  return float_repr(d);
}

class Writer {
 public:
  Writer(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, size_t level) {
    if (value.is_string()) {
      out_ += quoted(value.text(), style_.ensure_ascii);
    } else if (const Values* items = value.elements()) {
      container('[', ']', items->size(), level, [&](size_t i) { write((*items)[i], level + 1); });
    } else if (const auto* dict = value.get_if<Dict>()) {
      write_dict(*dict->data, level);
    } else if (value.is_none() || value.is_number()) {
      out_ += scalar(value);
    } else if (const auto* big = value.object<BigInteger>()) {
      out_ += big->digits();
    } else {
      throw Failure(str("Object of type ", type_name(value), " is not JSON serializable"));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  template <class Element>
  void container(char open, char close, size_t n, size_t level, Element element) {
    out_ += open;
    for (size_t i = 0; i < n; ++i) {
      if (i) out_ += style_.item_separator;
      line(level + 1);
      element(i);
    }
    if (n) line(level);
    out_ += close;
  }

  void line(size_t level) {
    if (!style_.pretty) return;
    runtime_.charge(1, 1 + level * style_.indent.size());
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) out_ += style_.indent;
  }

  void write_dict(const Mapping& mapping, size_t level) {
    std::vector<const std::pair<Value, Value>*> pairs;
    for (const auto& pair : mapping.pairs) pairs.push_back(&pair);
    if (style_.sort_keys) {
      std::stable_sort(pairs.begin(), pairs.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    }
    container('{', '}', pairs.size(), level, [&](size_t i) {
      const Value& key = pairs[i]->first;
      if (!key.is_string() && !key.is_none() && !key.is_number()) {
        throw Failure(str("keys must be str, int, float, bool or None, not ", type_name(key)));
      }
      out_ += quoted(key.is_string() ? key.text() : scalar(key), style_.ensure_ascii);
      out_ += style_.key_separator;
      write(pairs[i]->second, level + 1);
    });
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
};
}  // namespace

std::string json_dumps(Runtime& runtime, const Value& value, const JsonStyle& style) {
  runtime.charge(weight(value));
  Writer writer(runtime, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace temper::jinja
