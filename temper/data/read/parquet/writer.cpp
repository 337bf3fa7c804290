#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/json/api.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/data/read/parquet/plugin.h"

namespace temper::data {
namespace {

using Description = nlohmann::ordered_json;

constexpr int64_t kBlockBytes = int64_t{1} << 24;

arrow::FieldVector fields_of(const Description& record);

std::shared_ptr<arrow::DataType> type_of(const Description& type) {
  if (type.is_array()) return arrow::list(type_of(type.at(0)));
  if (type.is_object()) return arrow::struct_(fields_of(type));
  if (type == "bool") return arrow::boolean();
  if (type == "int64") return arrow::int64();
  return type == "double" ? arrow::float64() : arrow::utf8();
}

arrow::FieldVector fields_of(const Description& record) {
  arrow::FieldVector fields;
  for (const auto& [name, type] : record.items())
    fields.push_back(arrow::field(name, type_of(type)));
  return fields;
}

arrow::Status write(const std::string& lines, const std::string& columns, int64_t longest,
                    const std::string& path) {
  const auto schema = arrow::schema(fields_of(Description::parse(columns)));
  auto read = arrow::json::ReadOptions::Defaults();
  read.use_threads = false;
  // A row is within two blocks.
  read.block_size =
      static_cast<int32_t>(std::min<int64_t>(std::max(kBlockBytes, longest + 1), INT32_MAX));
  auto parse = arrow::json::ParseOptions::Defaults();
  parse.explicit_schema = schema;
  parse.unexpected_field_behavior = arrow::json::UnexpectedFieldBehavior::Error;
  ARROW_ASSIGN_OR_RAISE(const auto in, arrow::io::ReadableFile::Open(lines));
  ARROW_ASSIGN_OR_RAISE(const auto rows, arrow::json::StreamingReader::Make(in, read, parse));
  ARROW_ASSIGN_OR_RAISE(const auto out, arrow::io::FileOutputStream::Open(path));
  const auto properties =
      parquet::WriterProperties::Builder().compression(parquet::Compression::ZSTD)->build();
  ARROW_ASSIGN_OR_RAISE(
      const auto writer,
      parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(), out, properties));
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(rows->ReadNext(&batch));
    if (!batch) break;
    ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(*batch));
  }
  ARROW_RETURN_NOT_OK(writer->Close());
  return out->Close();
}

}  // namespace
}  // namespace temper::data

int temper_parquet_write(const char* lines, const char* columns, int64_t longest, const char* path,
                         char* error, size_t error_size) {
  std::string problem;
  try {
    const arrow::Status status = temper::data::write(lines, columns, longest, path);
    if (status.ok()) return 0;
    problem = status.message();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  std::snprintf(error, error_size, "%s", problem.c_str());
  std::replace(error, error + std::strlen(error), '\n', ' ');
  return 1;
}
