// temper diff: the differences between two runs, or two models.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/cli/parts/options.h"
#include "temper/cli/parts/run_files.h"
#include "temper/cli/verbs.h"
#include "temper/io/gguf.h"
#include "temper/io/weight_files.h"
#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/files/tensors.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

// The first place where the rows of two runs part.
struct Parting {
  int64_t step;
  std::string metric, a, b;  // "(none)" where one run has no value
};

using RowsByStep = std::map<std::pair<int64_t, bool>, const MetricsRow*>;  // evaluations behind

RowsByStep by_step(const std::vector<MetricsRow>& rows) {
  RowsByStep out;
  for (const MetricsRow& row : rows) out[{row.step(), row.is_eval()}] = &row;
  return out;
}

std::string value_text(const MetricsRow* row, const std::string& metric) {
  const MetricsRow::Value* value = row ? row->find(metric) : nullptr;
  return value ? to_text(*value) : "(none)";
}

std::optional<Parting> parting_in(const MetricsRow* a, const MetricsRow* b, int64_t step,
                                  const std::vector<MetricInfo>& infos) {
  for (const MetricsRow* row : {a, b})
    if (row)
      for (const auto& [name, _] : row->values())
        if (name != "step" && !is_of_machine(infos, name) &&
            value_text(a, name) != value_text(b, name))
          return Parting{step, name, value_text(a, name), value_text(b, name)};
  return {};
}

std::optional<Parting> first_parting(const RunFiles& a, const RunFiles& b) {
  const RowsByStep of_a = by_step(a.rows), of_b = by_step(b.rows);
  RowsByStep all = of_a;
  all.insert(of_b.begin(), of_b.end());
  for (const auto& [place, _] : all) {
    const auto x = of_a.find(place), y = of_b.find(place);
    if (auto found =
            parting_in(x == of_a.end() ? nullptr : x->second, y == of_b.end() ? nullptr : y->second,
                       place.first, a.report.metrics))
      return found;
  }
  return {};
}

// Differences between two JSON values: "KEY.KEY: A -> B".
void add_differences(const Json& a, const Json& b, const std::string& path,
                     std::vector<std::string>& out) {
  if (a == b) return;
  if (!a.is_object() || !b.is_object()) {
    out.push_back(str(path, ": ", a.is_null() ? "(not set)" : dump_json(a), " -> ",
                      b.is_null() ? "(not set)" : dump_json(b)));
    return;
  }
  const std::string prefix = path.empty() ? "" : path + ".";
  for (const auto& [key, value] : a.items())
    add_differences(value, b.value(key, Json()), prefix + key, out);
  for (const auto& [key, value] : b.items())
    if (!a.contains(key)) add_differences(Json(), value, prefix + key, out);
}

const char* config_name(const std::string& directory) {
  for (const char* name : {"config.json", "adapter_config.json"})
    if (is_file(directory + "/" + name)) return name;
  return nullptr;
}

struct TensorDifference {
  std::string name;
  // "[2, 3] and [2, 4]", "BF16 and F32", or empty: the values differ.
  std::string form;
  double largest = 0;  // largest absolute difference of the values; NaN where only one is NaN
};

struct ComparedTensors {
  int64_t compared = 0;  // tensors that both have
  std::vector<TensorDifference> differ;
  std::vector<std::string> only_a, only_b;
  bool equal() const { return differ.empty() && only_a.empty() && only_b.empty(); }
};

// In pieces, so that a tensor of a large vocabulary is not in memory twice in float64.
double most_apart(const TensorView& a, const TensorView& b) {
  constexpr int64_t kPiece = int64_t{1} << 22;
  const at::Tensor x = models::to_tensor(a, at::kFloat).flatten(),
                   y = models::to_tensor(b, at::kFloat).flatten();
  double largest = 0;
  for (int64_t from = 0; from < x.numel(); from += kPiece) {
    const int64_t count = std::min(kPiece, x.numel() - from);
    const at::Tensor p = x.narrow(0, from, count).to(at::kDouble),
                     q = y.narrow(0, from, count).to(at::kDouble);
    // Equal infinities, and NaN in both, are no difference.
    const at::Tensor same = p.eq(q).logical_or(p.isnan().logical_and(q.isnan()));
    const double piece =
        at::where(same, at::zeros({}, at::kDouble), (p - q).abs()).max().item<double>();
    if (std::isnan(piece)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, piece);
  }
  return largest;
}

ComparedTensors compare_tensors(const TensorMap& a, const TensorMap& b) {
  ComparedTensors out;
  for (const auto& [name, kept] : a) {
    const auto found = b.find(name);
    if (found == b.end()) {
      out.only_a.push_back(name);
      continue;
    }
    ++out.compared;
    const TensorView x = models::made_view(kept), y = models::made_view(found->second);
    if (x.shape != y.shape) {
      out.differ.push_back({name, shape_text(x.shape) + " and " + shape_text(y.shape),
                            std::numeric_limits<double>::quiet_NaN()});
      continue;
    }
    const bool same_dtype = x.dtype == y.dtype;
    if (same_dtype && (x.num_bytes == 0 || std::memcmp(x.data, y.data, x.num_bytes) == 0)) continue;
    out.differ.push_back({name,
                          same_dtype ? "" : str(dtype_name(x.dtype), " and ", dtype_name(y.dtype)),
                          most_apart(x, y)});
  }
  for (const auto& [name, y] : b)
    if (!a.contains(name)) out.only_b.push_back(name);
  return out;
}

// The weights of a model's or adapter's directory, or, as_model, as a model has them. Throws
// ConfigError, DataError.
TensorMap tensors_of(const std::string& directory, bool as_model) {
  if (as_model) return models::open_checkpoint(directory).tensors;
  const std::string adapter = directory + "/adapter_model.safetensors";
  return fs::exists(adapter) ? read_safetensors(adapter) : read_weights(directory);
}

class Diff : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Compares two runs (settings, the first step and metric that differ, the final weights) or "
        "two models or adapters (config, tensors, tokenizer). Times and memory do not count.\n"
        "Exit status 0 when they are equal, 1 when they differ.\n"
        "examples:\n"
        "  temper diff runs/a runs/b\n"
        "  temper diff runs/a/final MODEL --json");
    f.add("A", a_, "directory of a run, or of a model or adapter, or a .gguf file", required());
    f.add("B", b_, "another one of the same kind", required());
    f.add("--json", json_, "write one JSON object");
  }

  int run() override {
    const bool runs = is_run(a_) && is_run(b_);
    for (const std::string& directory : {a_, b_})
      check<ConfigError>(runs || config_name(directory), directory,
                         ": expected two directories of runs (config.yaml), or two of models or "
                         "adapters (config.json, adapter_config.json)");
    runs ? compare_runs() : compare_models(a_, b_);
    found_["equal"] = equal_;
    if (json_)
      std::cout << dump_json(found_) << std::endl;
    else if (equal_)
      std::cout << "equal" << std::endl;
    return equal_ ? 0 : 1;
  }

 private:
  void say(const std::string& line) {
    if (!json_) std::cout << printable(line) << "\n";
  }

  void add_list(const char* key, const std::vector<std::string>& lines, const std::string& title) {
    found_[key] = Json(lines);
    if (lines.empty()) return;
    equal_ = false;
    say(title);
    for (const std::string& line : lines) say("  " + line);
  }

  void compare_runs() {
    const RunFiles a(a_), b(b_);
    add_list("config", config_differences(a, b), "settings:");
    const std::optional<Parting> parting = first_parting(a, b);
    found_["metrics"] = nullptr;
    if (parting) {
      equal_ = false;
      found_["metrics"] = {{"step", parting->step},
                           {"metric", parting->metric},
                           {"a", parting->a},
                           {"b", parting->b}};
      say(str("first difference at step ", parting->step, ": ", parting->metric, " ", parting->a,
              " and ", parting->b));
    }
    const bool has_a = fs::exists(a_ + "/final"), has_b = fs::exists(b_ + "/final");
    found_["final"] = {{"a", has_a}, {"b", has_b}};
    if (has_a && has_b) return add_tensors(a_ + "/final", b_ + "/final");
    if (has_a == has_b) return;
    equal_ = false;
    say(str("only ", has_a ? a_ : b_, " has final/"));
  }

  void compare_models(const std::string& a, const std::string& b) {
    const std::string file_a = a + "/" + config_name(a), file_b = b + "/" + config_name(b);
    std::vector<std::string> differences;
    add_differences(read_json_file(file_a), read_json_file(file_b), "", differences);
    add_list("config", differences, "config:");
    add_tensors(a, b);
    std::vector<std::string> files;
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
      const bool in_a = is_file(a + "/" + name), in_b = is_file(b + "/" + name);
      if (in_a != in_b)
        files.push_back(str(name, ": only ", in_a ? a : b, " has it"));
      else if (in_a && read_file(a + "/" + name) != read_file(b + "/" + name))
        files.push_back(str(name, ": differs"));
    }
    add_list("tokenizer", files, "tokenizer:");
  }

  void add_tensors(const std::string& a, const std::string& b) {
    const bool as_model = is_gguf_file(a) || is_gguf_file(b);
    const ComparedTensors tensors =
        compare_tensors(tensors_of(a, as_model), tensors_of(b, as_model));
    if (!tensors.equal()) equal_ = false;
    Json differ = Json::array();
    for (const TensorDifference& d : tensors.differ) {
      const Json largest = std::isfinite(d.largest) ? Json(d.largest) : Json();
      differ.push_back({{"name", d.name}, {"form", d.form}, {"max_abs_difference", largest}});
    }
    found_["tensors"] = {{"compared", tensors.compared},
                         {"differ", std::move(differ)},
                         {"only_a", Json(tensors.only_a)},
                         {"only_b", Json(tensors.only_b)}};
    if (tensors.equal()) return;
    say(str("tensors: ", tensors.differ.size(), " of ", tensors.compared, " differ"));
    for (const TensorDifference& d : tensors.differ)
      say(str(
          "  ", d.name, ": ", d.form, d.form.empty() || std::isnan(d.largest) ? "" : ", ",
          std::isnan(d.largest) && !d.form.empty() ? "" : str("largest difference ", d.largest)));
    for (const std::string& name : tensors.only_a) say(str("  ", name, ": only in ", a));
    for (const std::string& name : tensors.only_b) say(str("  ", name, ": only in ", b));
  }

  std::string a_, b_;
  bool json_ = false, equal_ = true;
  Json found_ = Json::object();
};

}  // namespace

std::unique_ptr<Command> diff_command() { return std::make_unique<Diff>(); }

}  // namespace temper::cli
