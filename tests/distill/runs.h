// What tests of distillation share: rows in files, and runs of the golden models.
#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "temper/base/file.h"
#include "temper/distill/run.h"
#include "temper/metrics/row.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

namespace runs {

using namespace temper;
using Arguments = std::vector<std::string>;

inline std::string model(const std::string& name) { return golden_path("models/" + name); }

// A file of supervised rows that follow a pattern: the first third is a prompt. As prompts: without
// the rest.
inline std::string write_rows(const std::string& path, int64_t count, int64_t first = 0,
                              bool prompts = false) {
  std::string lines;
  for (const std::vector<int32_t>& ids : tiny::rows(count, first)) {
    const size_t prompt = ids.size() / 3;
    if (prompts) {
      lines += Json{{"prompt_ids", std::vector<int32_t>(ids.begin(), ids.begin() + prompt)}}.dump();
    } else {
      std::vector<int32_t> labels(ids);
      std::fill_n(labels.begin(), prompt, -100);
      lines += Json{{"input_ids", ids}, {"labels", labels}}.dump();
    }
    lines += "\n";
  }
  write_file_atomic(path, lines);
  return path;
}

// Such rows that are prompts as well.
inline std::string write_rows_with_prompts(const std::string& path, int64_t count) {
  std::string lines;
  for (const std::vector<int32_t>& ids : tiny::rows(count)) {
    const std::vector<int32_t> prompt(ids.begin(), ids.begin() + ids.size() / 3);
    std::vector<int32_t> labels(ids);
    std::fill_n(labels.begin(), prompt.size(), -100);
    lines += Json{{"input_ids", ids}, {"labels", labels}, {"prompt_ids", prompt}}.dump() + "\n";
  }
  write_file_atomic(path, lines);
  return path;
}

inline Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

inline distill::DistillConfig config(const Arguments& arguments) {
  distill::DistillConfig made;
  train::read_run_config(made, arguments, "distill");
  return made;
}

// The metrics of a run, which ends after `stop_after` steps; 0: as planned.
inline std::vector<MetricsRow> run(const std::string& output, Arguments arguments,
                                   int stop_after = 0) {
  arguments.insert(arguments.end(),
                   {"output_dir=" + output, "metrics.sinks=[jsonl]", "train.eval_samples=0"});
  distill::DistillConfig made = config(arguments);
  std::ostringstream console;
  int asked = 0;
  distill::run_distill(made,
                       {console, false, [&] { return stop_after > 0 && ++asked > stop_after; }});
  return read_metrics_file(output + "/metrics.jsonl");
}

inline std::string error_of(const std::string& output, const Arguments& arguments) {
  try {
    run(output, arguments);
  } catch (const ConfigError& e) {
    return e.what();
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

}  // namespace runs
