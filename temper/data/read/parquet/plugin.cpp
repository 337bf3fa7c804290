#include "temper/data/read/parquet/plugin.h"

#include <arrow/api.h>
#include <arrow/config.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "temper/data/read/parquet/json_row.h"

namespace temper::data {
namespace {

constexpr int64_t kBatchBytes = int64_t{1} << 24;
constexpr int64_t kMaxBatchRows = 4096;
// A damaged file may ask for any size: it then ends with a message and not for want of memory.
constexpr int64_t kMaxMemory = int64_t{1} << 32;
constexpr size_t kOutBytes = size_t{1} << 20;

struct Stopped {};  // thrown where the writer wants no more

struct Output {
  temper_parquet_writer write;
  void* context;
  void operator()(const std::string& bytes) const {
    if (write(context, bytes.data(), bytes.size()) != 0) throw Stopped();
  }
};

// The number of rows with which a batch of the row group with the longest rows has about
// kBatchBytes.
int64_t rows_per_batch(const parquet::FileMetaData& metadata) {
  int64_t rows = kMaxBatchRows;
  for (int g = 0; g < metadata.num_row_groups(); ++g) {
    const auto group = metadata.RowGroup(g);
    const int64_t bytes = std::max<int64_t>(group->total_byte_size(), 1);
    const int64_t row_bytes = bytes / std::max<int64_t>(group->num_rows(), 1) + 1;
    rows = std::min(rows, std::max<int64_t>(kBatchBytes / row_bytes, 1));
  }
  return rows;
}

arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> open(const std::string& path,
                                                                arrow::MemoryPool* pool) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, pool));
  parquet::ReaderProperties properties(pool);
  properties.enable_buffered_stream();  // else whole column chunks are read, of any size
  properties.set_page_checksum_verification(true);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(std::move(file), properties));
  parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
  arrow_properties.set_pre_buffer(false);
  arrow_properties.set_batch_size(rows_per_batch(*builder.raw_reader()->metadata()));
  return builder.memory_pool(pool)->properties(arrow_properties)->Build();
}

// `row` counts the rows that are done.
arrow::Status convert(const std::string& path, const Output& out, int64_t* row) {
  arrow::CappedMemoryPool pool(arrow::system_memory_pool(), kMaxMemory);
  ARROW_ASSIGN_OR_RAISE(const auto reader, open(path, &pool));
  std::shared_ptr<arrow::Schema> schema;
  ARROW_RETURN_NOT_OK(reader->GetSchema(&schema));
  ARROW_RETURN_NOT_OK(check_schema(*schema));
  ARROW_ASSIGN_OR_RAISE(const auto batches, reader->GetRecordBatchReader());
  std::string lines;
  while (true) {
    ARROW_ASSIGN_OR_RAISE(const auto batch, batches->Next());
    if (!batch) break;
    ARROW_RETURN_NOT_OK(batch->ValidateFull());
    for (int64_t i = 0; i < batch->num_rows(); ++i, ++*row) {
      append_row(*batch, i, lines);
      if (lines.size() < kOutBytes) continue;
      out(lines);
      lines.clear();
    }
  }
  out(lines);
  return arrow::Status::OK();
}

}  // namespace
}  // namespace temper::data

int temper_parquet_rows(const char* path, temper_parquet_writer write, void* context, char* error,
                        size_t error_size) {
  int64_t row = 0;
  const auto fail = [&](int status, const char* what) {
    std::snprintf(error, error_size, "%s", what);
    std::replace(error, error + std::strlen(error), '\n', ' ');
    return status;
  };
  try {
    const arrow::Status status = temper::data::convert(path, {write, context}, &row);
    if (status.ok()) return 0;
    return fail(1, (": " + status.message()).c_str());
  } catch (const temper::data::Stopped&) {
    return 2;
  } catch (const std::out_of_range& e) {  // of append_row
    return fail(1, (":" + std::to_string(row + 1) + ": " + e.what()).c_str());
  } catch (const std::exception& e) {
    return fail(1, (std::string(": ") + e.what()).c_str());
  }
}

const char* temper_parquet_arrow_version() { return arrow::GetBuildInfo().version_string.c_str(); }
