// The dtype of weights that a verb writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <string>

namespace temper::cli {

// Adds the flag --dtype (float32, bfloat16 or float16); `dtype` keeps its value where it is not
// given.
void add_written_dtype(CLI::App& app, std::string& dtype);
at::ScalarType scalar_type_of(const std::string& dtype);

}  // namespace temper::cli
