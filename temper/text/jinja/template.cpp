#include "temper/text/jinja/template.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/text/jinja/interpreter.h"
#include "temper/text/jinja/objects.h"
#include "temper/text/jinja/parse/lexer.h"
#include "temper/text/jinja/parse/syntax.h"

namespace temper::jinja {
namespace {
constexpr size_t kMaxTemplate = size_t{16} << 20;

bool contains_generation(const Body& body) {
  for (const Statement& statement : body) {
    if (std::holds_alternative<Generation>(statement.node)) return true;
    if (const auto* loop = std::get_if<For>(&statement.node)) {
      if (contains_generation(loop->body) || contains_generation(loop->otherwise)) return true;
    } else if (const auto* branch = std::get_if<If>(&statement.node)) {
      for (const auto& [test, then] : branch->branches) {
        if (contains_generation(then)) return true;
      }
      if (contains_generation(branch->otherwise)) return true;
    } else if (const auto* with = std::get_if<With>(&statement.node)) {
      if (contains_generation(with->body)) return true;
    } else if (const auto* macro = std::get_if<DefineMacro>(&statement.node)) {
      if (contains_generation(macro->macro->body)) return true;
    } else if (const auto* call = std::get_if<CallBlock>(&statement.node)) {
      if (contains_generation(call->caller->body)) return true;
    } else if (const auto* filter = std::get_if<FilterBlock>(&statement.node)) {
      if (contains_generation(filter->body)) return true;
    } else if (const auto* assign = std::get_if<AssignBlock>(&statement.node)) {
      if (contains_generation(assign->body)) return true;
    }
  }
  return false;
}

Value from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > uint64_t{INT64_MAX})
        return Value(std::make_shared<BigInteger>(std::to_string(json.get<uint64_t>())));
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::binary:  // an integer of more than 64 bits, by parse_json
      return Value(std::make_shared<BigInteger>(
          std::string(json.get_binary().begin(), json.get_binary().end())));
    case Json::value_t::string:
      return json.get_ref<const std::string&>();
    case Json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item));
      return make_list(std::move(items));
    }
    case Json::value_t::object: {
      Pairs pairs;
      for (const auto& [key, value] : json.items())
        pairs.emplace_back(Value(key), from_json(value));
      return make_dict(std::move(pairs));
    }
    default:
      return None{};
  }
}

bool is_utf8(std::string_view text) {
  try {
    Json(std::string(text)).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}
}  // namespace

struct JinjaTemplate::Impl {
  std::string name;
  Body body;
  bool has_generation;
};

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

JinjaTemplate::JinjaTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

JinjaTemplate JinjaTemplate::parse(std::string source, std::string name) {
  check<DataError>(source.size() <= kMaxTemplate, name, ": a template of ", source.size(),
                   " bytes; at most ", kMaxTemplate, " are read");
  check<DataError>(is_utf8(source), name, ": not valid UTF-8");
  try {
    Body body = parse_template(source);
    const bool generation = contains_generation(body);
    return JinjaTemplate(
        std::make_unique<const Impl>(Impl{std::move(name), std::move(body), generation}));
  } catch (const SyntaxFailure& e) {
    throw DataError(str(name, ":", e.line(), ": template syntax error: ", e.what()));
  }
}

bool JinjaTemplate::has_generation() const { return impl_->has_generation; }

std::string JinjaTemplate::render(const Json& context, const RenderOptions& options) const {
  return render_with_spans(context, options).text;
}

Rendered JinjaTemplate::render_with_spans(const Json& context, const RenderOptions& options) const {
  int line = 1;
  try {
    Interpreter interpreter(options, from_json(context.is_object() ? context : Json::object()));
    try {
      return interpreter.run(impl_->body);
    } catch (const Failure&) {
      line = interpreter.line();
      throw;
    }
  } catch (const Failure& e) {
    throw DataError(str(impl_->name, ":", line, ": ", e.what()));
  }
}

}  // namespace temper::jinja
