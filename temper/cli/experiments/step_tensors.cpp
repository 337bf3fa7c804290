#include "temper/cli/experiments/step_tensors.h"

#include <ATen/ATen.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/metrics/format.h"

namespace temper::cli {
namespace {

// JSON has no nan: null.
double number_or_nan(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

Json line_of(const char* when, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  const at::Tensor numbers = values.to(at::kDouble);
  double squares = 0, least = 0, most = 0;
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const double value = numbers.const_data_ptr<double>()[i];
    squares += value * value;
    least = i == 0 ? value : std::fmin(least, value);
    most = i == 0 ? value : std::fmax(most, value);
  }
  const std::string_view bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  return {
      {"when", when}, {"name", name}, {"shape", values.sizes().vec()}, {"norm", std::sqrt(squares)},
      {"min", least}, {"max", most},  {"digest", sha256_hex(bytes)}};
}

}  // namespace

void add_step_tensors(const std::string& file, const char* when,
                      const train::Trainables& trainables) {
  std::ofstream out(file, std::ios::app);
  for (const auto& trainable : trainables)
    for (const train::NamedParameter& p : trainable->optimizer.parameters()) {
      const at::Tensor& value = p.parameter->trained();
      const bool gradient = std::string_view(when) == "gradient";
      const at::Tensor tensor = gradient ? value.grad() : value;
      const std::string name = trainable == trainables.front() || trainable->name == "policy"
                                   ? p.name
                                   : trainable->name + ": " + p.name;
      if (tensor.defined()) out << dump_json(line_of(when, name, tensor)) << "\n";
    }
  out.flush();
  check(out.good(), file, ": cannot write");
}

std::string StepTensor::text() const {
  std::string sizes;
  for (const int64_t size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return str(when, " ", name, " [", sizes, "] rank ", rank, ": norm ", format_brief(norm), ", ",
             format_brief(min), " to ", format_brief(max), ", ", digest.substr(0, 16));
}

std::vector<StepTensor> read_step_tensors(const std::string& file, int rank) {
  std::vector<StepTensor> tensors;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, file);
    StepTensor& t = tensors.emplace_back();
    t.rank = rank;
    t.when = json.at("when").get<std::string>();
    t.name = json.at("name").get<std::string>();
    t.shape = json.at("shape").get<std::vector<int64_t>>();
    t.norm = number_or_nan(json.at("norm"));
    t.min = number_or_nan(json.at("min"));
    t.max = number_or_nan(json.at("max"));
    t.digest = json.at("digest").get<std::string>();
  }
  return tensors;
}

}  // namespace temper::cli
