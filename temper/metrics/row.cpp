#include "temper/metrics/row.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"

namespace temper {
namespace {
template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
}
}  // namespace

void MetricsRow::set(std::string_view name, Value value) {
  for (auto& [known, old] : values_)
    if (known == name) {
      old = std::move(value);
      return;
    }
  values_.emplace_back(name, std::move(value));
}

const MetricsRow::Value* MetricsRow::find(std::string_view name) const {
  for (const auto& [known, value] : values_)
    if (known == name) return &value;
  return nullptr;
}

std::optional<double> MetricsRow::number(std::string_view name) const {
  const Value* value = find(name);
  if (!value) return std::nullopt;
  if (const auto* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
  if (const auto* f = std::get_if<float>(value)) return *f;
  if (const auto* d = std::get_if<double>(value)) return *d;
  return std::nullopt;
}

int64_t MetricsRow::step() const {
  const Value* value = find("step");
  const auto* step = value ? std::get_if<int64_t>(value) : nullptr;
  return step ? *step : 0;
}

bool MetricsRow::is_eval() const {
  for (const auto& [name, value] : values_)
    if (name.starts_with("eval/")) return true;
  return false;
}

std::string MetricsRow::json() const {
  std::string out = "{";
  for (const auto& [name, value] : values_) {
    if (out.size() > 1) out += ", ";
    out += dump_json(Json(name)) + ": ";
    if (const auto* text = std::get_if<std::string>(&value)) {
      out += dump_json(Json(*text));
    } else {
      const std::string number = to_text(value);
      out += number.find('n') == std::string::npos ? number : "null";  // nan, inf
    }
  }
  return out + "}";
}

MetricsRow MetricsRow::from_json(std::string_view line, std::string_view where) {
  const Json json = parse_json(line, where);
  check<DataError>(json.is_object(), where, ": expected a JSON object");
  MetricsRow row;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_integer())
      row.set(name, Value(value.get<int64_t>()));
    else if (value.is_number())
      row.set(name, Value(value.get<double>()));
    else if (value.is_string())
      row.set(name, value.get<std::string>());
    else
      row.set(name, Value(std::nan("")));
  }
  return row;
}

std::string to_text(const MetricsRow::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* f = std::get_if<float>(&value)) return shortest(*f);
  if (const auto* d = std::get_if<double>(&value)) return shortest(*d);
  return std::get<std::string>(value);
}

std::vector<MetricsRow> read_metrics_file(const std::string& path) {
  std::vector<MetricsRow> rows;
  if (!std::filesystem::exists(path)) return rows;
  const std::string text = read_file(path);
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // half-written
    rows.push_back(MetricsRow::from_json(std::string_view(text).substr(at, end - at),
                                         temper::str(path, ":", ++line)));
    at = end + 1;
  }
  return rows;
}

std::string metrics_up_to(int64_t step, const std::string& text, const std::string& path) {
  std::string kept, unreadable;
  int64_t line = 0;
  for (size_t at = 0, end = 0; step >= 0 && (end = text.find('\n', at)) != std::string::npos;
       at = end + 1) {
    const std::string_view row = std::string_view(text).substr(at, end - at);
    try {
      if (MetricsRow::from_json(row, temper::str(path, ":", ++line)).step() > step) continue;
    } catch (const DataError& e) {
      if (unreadable.empty()) unreadable = e.what();
      continue;
    }
    check<DataError>(unreadable.empty(), unreadable,
                     ": the line is no row of metrics, and rows of the run follow it; remove the "
                     "line, and the run goes on with a gap in its curves");
    (kept += row) += '\n';
  }
  return kept;
}

std::string metrics_without_evaluation(int64_t step, const std::string& text,
                                       const std::string& path) {
  std::string kept;
  int64_t line = 0;
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view bytes = std::string_view(text).substr(at, end - at);
    const MetricsRow row = MetricsRow::from_json(bytes, temper::str(path, ":", ++line));
    if (!row.is_eval() || row.step() != step) (kept += bytes) += '\n';
  }
  return kept;
}

}  // namespace temper
