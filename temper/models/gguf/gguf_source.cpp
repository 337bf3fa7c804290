#include "temper/models/gguf/gguf_source.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "temper/base/error.h"
#include "temper/base/json.h"

namespace temper::models {

std::optional<std::vector<double>> gguf_numbers(const GgufValue& value) {
  using Numbers = std::optional<std::vector<double>>;
  return std::visit(
      [](const auto& v) -> Numbers {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<T>) {
          return {{static_cast<double>(v)}};
        } else if constexpr (std::is_same_v<T, GgufArray>) {
          return std::visit(
              [](const auto& items) -> Numbers {
                using Items = std::decay_t<decltype(items)>;
                if constexpr (std::is_same_v<Items, std::monostate> ||
                              std::is_same_v<Items, std::vector<std::string>>)
                  return {};
                else
                  return std::vector<double>(items.begin(), items.end());
              },
              v);
        } else {
          return {};
        }
      },
      value);
}

std::string gguf_shown(const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return "`" + text->substr(0, 80) + "`";
  const auto numbers = gguf_numbers(value);
  if (!numbers) return "a list of texts";
  std::string out;
  for (size_t i = 0; i < numbers->size() && i < 8; ++i)
    out += (i ? ", " : "") + float_to_json(static_cast<float>((*numbers)[i]));
  if (numbers->size() > 8) out += ", ...";
  return std::holds_alternative<GgufArray>(value) ? "[" + out + "]" : out;
}

GgufSource::GgufSource(const GgufFile& file, std::string where)
    : file_(file), where_(std::move(where)) {
  const auto* name = file.get<std::string>("general.architecture");
  check<ConfigError>(name != nullptr, where_,
                     ": `general.architecture` is missing; expected the GGUF file of a model");
  architecture_ = *name;
}

std::string GgufSource::full(std::string_view key) const { return str(architecture_, ".", key); }

void GgufSource::fail(std::string_view key, const std::string& problem) const {
  throw ConfigError(str(where_, ": `", full(key), "`: ", problem));
}

namespace {

// The one number of a value.
double only_number(const GgufSource& source, std::string_view key, const GgufValue& value) {
  const auto numbers = gguf_numbers(value);
  if (!numbers || std::holds_alternative<GgufArray>(value) || !std::isfinite((*numbers)[0]))
    source.fail(key, "found " + gguf_shown(value) + ", expected a number");
  return (*numbers)[0];
}

}  // namespace

int64_t GgufSource::number(std::string_view key, int64_t fallback) const {
  const GgufValue* value = file_.find(full(key));
  if (!value) return fallback;
  const double number = only_number(*this, key, *value);
  if (!(number >= 0 && number <= INT32_MAX) || number != std::trunc(number))
    fail(key, "found " + gguf_shown(*value) + ", expected a whole number from 0 on");
  return static_cast<int64_t>(number);
}

int64_t GgufSource::number(std::string_view key) const {
  if (!has(key)) fail(key, "is missing; expected a whole number");
  return number(key, 0);
}

double GgufSource::real(std::string_view key, double fallback) const {
  const GgufValue* value = file_.find(full(key));
  if (!value) return fallback;
  const double number = only_number(*this, key, *value);
  if (!std::holds_alternative<float>(*value)) return number;
  const std::string shortest = float_to_json(static_cast<float>(number));
  double out = number;
  std::from_chars(shortest.data(), shortest.data() + shortest.size(), out);
  return out;
}

bool GgufSource::flag(std::string_view key, bool fallback) const {
  const GgufValue* value = file_.find(full(key));
  if (!value) return fallback;
  if (!std::holds_alternative<bool>(*value))
    fail(key, "found " + gguf_shown(*value) + ", expected true or false");
  return std::get<bool>(*value);
}

std::string GgufSource::text(std::string_view key, const std::string& fallback) const {
  const GgufValue* value = file_.find(full(key));
  if (!value) return fallback;
  if (!std::holds_alternative<std::string>(*value))
    fail(key, "found " + gguf_shown(*value) + ", expected text");
  return std::get<std::string>(*value);
}

std::vector<double> GgufSource::by_layer(std::string_view key, int64_t layers) const {
  const GgufValue* value = file_.find(full(key));
  if (!value) return {};
  auto numbers = gguf_numbers(*value);
  const auto wanted = static_cast<size_t>(layers);
  if (!numbers || (std::holds_alternative<GgufArray>(*value) && numbers->size() < wanted))
    fail(key,
         str("found ", gguf_shown(*value), ", expected a number for each of ", layers, " layers"));
  for (const double number : *numbers)
    if (!(number >= 0 && number <= INT32_MAX))
      fail(key, "found " + gguf_shown(*value) + ", expected numbers from 0 on");
  if (!std::holds_alternative<GgufArray>(*value)) numbers->assign(wanted, (*numbers)[0]);
  numbers->resize(wanted);
  return *numbers;
}

bool GgufSource::has_tensor(const std::string& name) const {
  return file_.tensors.contains(name) || file_.blocks.contains(name);
}

bool GgufSource::any_block_has(std::string_view name) const {
  const auto is = [&](const std::string& tensor) {
    return tensor.starts_with("blk.") && tensor.ends_with(name) &&
           tensor[tensor.size() - name.size() - 1] == '.';
  };
  for (const auto& [tensor, view] : file_.tensors)
    if (is(tensor)) return true;
  for (const auto& [tensor, blocks] : file_.blocks)
    if (is(tensor)) return true;
  return false;
}

const std::vector<int64_t>& GgufSource::shape_of(const std::string& name) const {
  if (const auto found = file_.tensors.find(name); found != file_.tensors.end())
    return found->second.shape;
  const auto found = file_.blocks.find(name);
  check<ConfigError>(found != file_.blocks.end(), where_, ": tensor `", name, "` is missing");
  return found->second.shape;
}

std::vector<float> GgufSource::values_of(const std::string& name) const {
  const auto blocks = file_.blocks.find(name);
  check<ConfigError>(blocks == file_.blocks.end(), where_, ": tensor `", name, "`: found ",
                     blocks == file_.blocks.end() ? "" : blocks->second.type.name,
                     ", expected F32 of one dimension");
  const auto found = file_.tensors.find(name);
  if (found == file_.tensors.end()) return {};
  const TensorView& view = found->second;
  check<ConfigError>(view.dtype == DType::kFloat32 && view.shape.size() == 1, where_, ": tensor `",
                     name, "`: found ", dtype_name(view.dtype), " ", shape_text(view.shape),
                     ", expected F32 of one dimension");
  std::vector<float> out(view.num_bytes / sizeof(float));
  std::memcpy(out.data(), view.data, view.num_bytes);
  return out;
}

}  // namespace temper::models
