#include "temper/data/read/parquet/json_row.h"

#include <arrow/util/utf8.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "temper/base/ascii.h"

namespace temper::data {
namespace {

using arrow::Array;
using arrow::DataType;
using arrow::Type;

constexpr int kMaxDepth = 64;
constexpr size_t kMaxRow = size_t{1} << 30;  // as kMaxLineBytes of jsonl.h
constexpr const char* kFileBytes = "bytes";  // member of the struct of a file, {bytes, path}

bool is_text(Type::type id) {
  return id == Type::STRING || id == Type::LARGE_STRING || id == Type::STRING_VIEW;
}

bool is_bytes(Type::type id) {
  return id == Type::BINARY || id == Type::LARGE_BINARY || id == Type::BINARY_VIEW;
}

bool is_scalar(Type::type id) {
  return id == Type::NA || id == Type::BOOL || arrow::is_integer(id) || id == Type::FLOAT ||
         id == Type::DOUBLE || is_text(id) || is_bytes(id) || id == Type::DATE32 ||
         id == Type::DATE64 || id == Type::TIMESTAMP;
}

arrow::Status check_type(const DataType& type, const std::string& name, int depth) {
  if (depth > kMaxDepth)
    return arrow::Status::Invalid("column ", name, " is nested more than ", kMaxDepth, " deep");
  if (is_scalar(type.id())) return arrow::Status::OK();
  switch (type.id()) {
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
      return check_type(*type.field(0)->type(), name + "[]", depth + 1);
    case Type::STRUCT:
      for (const auto& field : type.fields())
        ARROW_RETURN_NOT_OK(check_type(*field->type(), name + "." + field->name(), depth + 1));
      return arrow::Status::OK();
    case Type::MAP: {
      const auto& map = static_cast<const arrow::MapType&>(type);
      if (!is_text(map.key_type()->id())) break;
      return check_type(*map.item_type(), name + "{}", depth + 1);
    }
    case Type::DICTIONARY:
      return check_type(*static_cast<const arrow::DictionaryType&>(type).value_type(), name,
                        depth + 1);
    case Type::EXTENSION:
      return check_type(*static_cast<const arrow::ExtensionType&>(type).storage_type(), name,
                        depth + 1);
    default:
      break;
  }
  return arrow::Status::Invalid(
      "column ", name, " holds ", type.ToString(),
      ", which JSON has no value for; drop the column or write it as text");
}

void append_string(std::string_view text, std::string& out) {
  out += '"';
  size_t plain = 0;  // begin of what needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    if (c >= 0x20) {
      out += {'\\', static_cast<char>(c)};
    } else {
      char escape[7];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    }
  }
  out.append(text, plain);
  out += '"';
}

void append_bytes(std::string_view bytes, std::string& out) {
  if (bytes.size() > kMaxRow / 4 * 3 || out.size() > kMaxRow)
    throw std::out_of_range("a row whose files have more than 768 MiB");
  out += '"';
  append_base64(bytes, out);
  out += '"';
}

// Text, which some writers store so, or else the contents of a file, as of an image.
void append_text_or_file(std::string_view bytes, std::string& out) {
  if (arrow::util::ValidateUTF8(bytes)) return append_string(bytes, out);
  out += "{\"bytes\":";
  append_bytes(bytes, out);
  out += '}';
}

template <class Number>
void append_number(Number value, std::string& out) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) {
      out += "null";
      return;
    }
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  out += text;
  // 1.0 stays a fraction: a reader of JSON tells 1 from 1.0.
  if (std::is_floating_point_v<Number> && text.find_first_of(".e") == text.npos) out += ".0";
}

// "2024-02-29" for the day after 1970-01-01.
std::string date(int64_t day) {
  if (day < -719528 || day > 2932896)
    throw std::out_of_range("a date outside of the years 0 to 9999");
  const std::chrono::year_month_day ymd{std::chrono::sys_days(std::chrono::days(day))};
  char text[16];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(ymd.year()),
                static_cast<unsigned>(ymd.month()), static_cast<unsigned>(ymd.day()));
  return text;
}

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// "2024-02-29T12:00:00.250", with a 'Z' where the column says which instant is meant.
std::string timestamp(int64_t value, const arrow::TimestampType& type) {
  const int digits =
      3 * static_cast<int>(type.unit());  // SECOND, MILLI, MICRO, NANO are 0, 1, 2, 3
  int64_t ticks = 1;
  for (int i = 0; i < digits; ++i) ticks *= 10;
  const int64_t seconds = floor_divide(value, ticks), fraction = value - seconds * ticks;
  const int64_t day = floor_divide(seconds, 86400), clock = seconds - day * 86400;
  std::string text = date(day);
  char part[32];
  std::snprintf(part, sizeof part, "T%02d:%02d:%02d", static_cast<int>(clock / 3600),
                static_cast<int>(clock / 60 % 60), static_cast<int>(clock % 60));
  text += part;
  if (fraction != 0) {
    std::snprintf(part, sizeof part, ".%0*lld", digits, static_cast<long long>(fraction));
    text += part;
  }
  return type.timezone().empty() ? text : text + "Z";
}

// Of text and of bytes: arrays of text are arrays of bytes.
std::string_view text_at(const Array& array, int64_t i) {
  const Type::type id = array.type_id();
  if (id == Type::STRING || id == Type::BINARY)
    return static_cast<const arrow::BinaryArray&>(array).GetView(i);
  if (id == Type::LARGE_STRING || id == Type::LARGE_BINARY)
    return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
  return static_cast<const arrow::BinaryViewArray&>(array).GetView(i);
}

void append_value(const Array& array, int64_t i, std::string& out);

template <class List>
void append_list(const Array& array, int64_t i, std::string& out) {
  const auto& list = static_cast<const List&>(array);
  const Array& values = *list.values();
  const int64_t begin = list.value_offset(i), end = begin + list.value_length(i);
  out += '[';
  for (int64_t k = begin; k < end; ++k) {
    if (k > begin) out += ',';
    append_value(values, k, out);
  }
  out += ']';
}

// The key of an object's member; '{' stands before the first.
void append_key(std::string_view key, std::string& out) {
  if (out.back() != '{') out += ',';
  append_string(key, out);
  out += ':';
}

void append_member(std::string_view key, const Array& values, int64_t i, std::string& out) {
  append_key(key, out);
  append_value(values, i, out);
}

void append_struct(const Array& array, int64_t i, std::string& out) {
  const auto& members = static_cast<const arrow::StructArray&>(array);
  out += '{';
  for (int f = 0; f < members.num_fields(); ++f) {
    const auto values = members.field(f);
    const std::string& name = array.type()->field(f)->name();
    if (values->IsNull(i)) continue;
    if (name != kFileBytes || !is_bytes(values->type_id())) {
      append_member(name, *values, i, out);
      continue;
    }
    append_key(name, out);
    append_bytes(text_at(*values, i), out);
  }
  out += '}';
}

void append_map(const Array& array, int64_t i, std::string& out) {
  const auto& map = static_cast<const arrow::MapArray&>(array);
  const Array &keys = *map.keys(), &items = *map.items();
  const int64_t begin = map.value_offset(i), end = begin + map.value_length(i);
  out += '{';
  for (int64_t k = begin; k < end; ++k) append_member(text_at(keys, k), items, k, out);
  out += '}';
}

template <class Numbers>
void append_at(const Array& array, int64_t i, std::string& out) {
  append_number(static_cast<const Numbers&>(array).Value(i), out);
}

void append_value(const Array& array, int64_t i, std::string& out) {
  if (array.IsNull(i)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::BOOL:
      out += static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false";
      return;
    case Type::INT8:
      return append_at<arrow::Int8Array>(array, i, out);
    case Type::INT16:
      return append_at<arrow::Int16Array>(array, i, out);
    case Type::INT32:
      return append_at<arrow::Int32Array>(array, i, out);
    case Type::INT64:
      return append_at<arrow::Int64Array>(array, i, out);
    case Type::UINT8:
      return append_at<arrow::UInt8Array>(array, i, out);
    case Type::UINT16:
      return append_at<arrow::UInt16Array>(array, i, out);
    case Type::UINT32:
      return append_at<arrow::UInt32Array>(array, i, out);
    case Type::UINT64:
      return append_at<arrow::UInt64Array>(array, i, out);
    case Type::FLOAT:
      return append_at<arrow::FloatArray>(array, i, out);
    case Type::DOUBLE:
      return append_at<arrow::DoubleArray>(array, i, out);
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
      return append_string(text_at(array, i), out);
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
      return append_text_or_file(text_at(array, i), out);
    case Type::DATE32:
      return append_string(date(static_cast<const arrow::Date32Array&>(array).Value(i)), out);
    case Type::DATE64:
      return append_string(
          date(floor_divide(static_cast<const arrow::Date64Array&>(array).Value(i), 86400000)),
          out);
    case Type::TIMESTAMP:
      return append_string(timestamp(static_cast<const arrow::TimestampArray&>(array).Value(i),
                                     static_cast<const arrow::TimestampType&>(*array.type())),
                           out);
    case Type::LIST:
      return append_list<arrow::ListArray>(array, i, out);
    case Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, i, out);
    case Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(array, i, out);
    case Type::STRUCT:
      return append_struct(array, i, out);
    case Type::MAP:
      return append_map(array, i, out);
    case Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return append_value(*coded.dictionary(), coded.GetValueIndex(i), out);
    }
    case Type::EXTENSION:
      return append_value(*static_cast<const arrow::ExtensionArray&>(array).storage(), i, out);
    default:
      throw std::logic_error("a column of " + array.type()->ToString() + " passed check_schema");
  }
}

}  // namespace

arrow::Status check_schema(const arrow::Schema& schema) {
  arrow::util::InitializeUTF8();
  for (const auto& field : schema.fields()) {
    if (schema.GetAllFieldIndices(field->name()).size() > 1)
      return arrow::Status::Invalid("two columns are named ", field->name());
    ARROW_RETURN_NOT_OK(check_type(*field->type(), field->name(), 0));
  }
  return arrow::Status::OK();
}

void append_row(const arrow::RecordBatch& batch, int64_t row, std::string& out) {
  out += '{';
  for (int c = 0; c < batch.num_columns(); ++c) {
    const auto column = batch.column(c);
    if (!column->IsNull(row)) append_member(batch.schema()->field(c)->name(), *column, row, out);
  }
  out += "}\n";
}

}  // namespace temper::data
