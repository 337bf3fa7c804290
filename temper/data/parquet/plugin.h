// What libtemper_parquet.so gives to temper_core: C alone, so that neither needs the other's C++
// library or headers. The plugin is built where Arrow's C++ library is found, and loaded when the
// first Parquet file is read.
#pragma once

#include <cstddef>

extern "C" {

// Writes every row of the Parquet file as a line of JSON to the descriptor `out`. A column or a
// member of a struct that is null is left out, as Parquet cannot say absent; NaN and the infinities
// become null. Returns 0, or 1 where the file is at fault and 2 where writing failed: `error` then
// holds one line that ends in '\0'.
int temper_parquet_to_jsonl(const char* path, int out, char* error, size_t error_size);

// "26.0.1"
const char* temper_parquet_arrow_version();
}
