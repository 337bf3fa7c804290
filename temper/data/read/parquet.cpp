#include "temper/data/read/parquet.h"

#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/base/plugin.h"
#include "temper/data/read/parquet/plugin.h"

namespace temper::data {
namespace {

struct ParquetReader {
  Plugin plugin{"libtemper_parquet.so"};
  decltype(&temper_parquet_rows) rows =
      plugin.function<decltype(temper_parquet_rows)>("temper_parquet_rows");
  decltype(&temper_parquet_write) write =
      plugin.function<decltype(temper_parquet_write)>("temper_parquet_write");
  decltype(&temper_parquet_arrow_version) arrow_version =
      plugin.function<decltype(temper_parquet_arrow_version)>("temper_parquet_arrow_version");
};

const ParquetReader& parquet_reader() {
  static const ParquetReader loaded;
  return loaded;
}

struct Conversion {
  UnpackedFile out;
  std::exception_ptr problem;
};

// No exception may cross the plugin, whose C++ library may be another.
int write_rows(void* context, const char* bytes, size_t size) {
  auto& conversion = *static_cast<Conversion*>(context);
  try {
    conversion.out.write(bytes, static_cast<int64_t>(size));
    return 0;
  } catch (...) {
    conversion.problem = std::current_exception();
    return 1;
  }
}

}  // namespace

FileDescriptor open_parquet(const std::string& path, const UnpackLimits& limits) {
  std::error_code ignored;
  check<DataError>(!std::filesystem::is_directory(path, ignored), path,
                   ": is a directory, expected a file of rows");
  check<DataError>(std::ifstream(path).good(), path, ": cannot open: ", errno_text);
  const ParquetReader& reader = parquet_reader();
  check<DataError>(
      reader.plugin.problem().empty(), path, ": the reader of Parquet does not load (",
      reader.plugin.problem(),
      "); install pyarrow (pip install 'temper-llm[parquet]', or tools/setup.sh and build "
      "again), or convert the file to JSONL");
  check<DataError>(reader.rows != nullptr, path,
                   ": Parquet is not in this build; run `make`, or convert the file to JSONL "
                   "(pandas: df.to_json(path, orient='records', lines=True))");
  Conversion conversion{UnpackedFile(path, limits), {}};
  char error[2048] = "";
  const int status = reader.rows(path.c_str(), &write_rows, &conversion, error, sizeof error);
  if (conversion.problem) std::rethrow_exception(conversion.problem);
  check<DataError>(status == 0, path, error);
  return conversion.out.release();
}

void write_parquet(int lines, const ColumnType& columns, int64_t longest, int out,
                   const std::string& path) {
  const ParquetReader& arrow = parquet_reader();
  check<ConfigError>(arrow.plugin.problem().empty() && arrow.write != nullptr, path,
                     ": Parquet is not in this build, or Arrow does not load (",
                     arrow.plugin.problem(), "); name the file .jsonl");
  const std::string from = str("/proc/self/fd/", lines), to = str("/proc/self/fd/", out);
  char error[2048] = "";
  const int status = arrow.write(from.c_str(), dump_json(columns.to_json()).c_str(), longest,
                                 to.c_str(), error, sizeof error);
  check(status == 0, path, ": cannot write it as Parquet: ", error);
}

const char* arrow_version() {
  const ParquetReader& reader = parquet_reader();
  return reader.plugin.problem().empty() && reader.arrow_version ? reader.arrow_version() : nullptr;
}

}  // namespace temper::data
