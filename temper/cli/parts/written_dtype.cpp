#include "temper/cli/parts/written_dtype.h"

namespace temper::cli {

void add_written_dtype(CLI::App& app, std::string& dtype) {
  app.add_option("--dtype", dtype, "dtype of the written weights")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
}

at::ScalarType scalar_type_of(const std::string& dtype) {
  if (dtype == "bfloat16") return at::kBFloat16;
  return dtype == "float16" ? at::kHalf : at::kFloat;
}

}  // namespace temper::cli
