#include "temper/text/jinja/attribute_path.h"

#include "temper/base/error.h"
#include "temper/text/jinja/strings.h"
#include "temper/text/jinja/unicode.h"

namespace temper::jinja {

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  for (std::string& part : split_text(attribute.text(), ".", -1, false)) {
    const bool is_index =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(is_index ? Value(*parse_integer(part, 10)) : Value(std::move(part)));
  }
  if (parts_.size() > 100) throw Failure("attribute path too long");
}

Value AttributePath::get(Interpreter& interpreter, Value value, const Value* fallback) const {
  for (const Value& part : parts_) {
    interpreter.charge(1);
    value = interpreter.item(value, part);
    if (fallback && value.is_undefined()) value = *fallback;
  }
  return value;
}

std::vector<AttributePath> attribute_paths(const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    paths.emplace_back(attribute);
    return paths;
  }
  for (std::string& path : split_text(attribute.text(), ",", -1, false))
    paths.emplace_back(Value(std::move(path)));
  if (paths.size() > 100) throw Failure("too many attributes");
  return paths;
}

Value without_case(const Value& value) {
  return value.is_string() ? Value(to_lower(value.text())) : value;
}

}  // namespace temper::jinja
