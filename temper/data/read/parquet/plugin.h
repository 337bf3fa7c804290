// What libtemper_parquet.so gives to temper_core: C alone, so that neither needs the other's C++
// library or headers. The plugin is built where Arrow's C++ library is found, and loaded when the
// first Parquet file is read.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Takes bytes of the output; anything but 0 ends the conversion.
typedef int (*temper_parquet_writer)(void* context, const char* bytes, size_t size);

// Gives every row of the Parquet file, as a line of JSON, to `write`. A column or a member of a
// struct that is null is left out, as Parquet cannot say absent; NaN and the infinities become
// null. Returns 0, or 1 where the file is at fault: `error` then holds one line that ends in '\0';
// or 2 where `write` ended it.
int temper_parquet_rows(const char* path, temper_parquet_writer write, void* context, char* error,
                        size_t error_size);

// Writes the rows of the file `lines`, a JSON object a line, the longest of `longest` bytes, as a
// Parquet file to `path`. `columns` is the JSON of ColumnType::to_json(). Returns 0, or 1 with
// `error` as above.
int temper_parquet_write(const char* lines, const char* columns, int64_t longest, const char* path,
                         char* error, size_t error_size);

// "26.0.1"
const char* temper_parquet_arrow_version();
}
