// What tests of preferences share: pairs in a file, and runs of the verbs in directories of their
// own.
#pragma once

#include <fstream>

#include "temper/preference/dpo.h"
#include "temper/preference/orpo.h"
#include "temper/preference/reward.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

namespace pref {

using namespace temper;

inline void write_rows(const std::string& path, const Json& rows) {
  std::ofstream file(path);
  for (const Json& row : rows) file << row.dump() << "\n";
}

// Pairs of ids of the tiny models: some begin alike, one side is another's beginning.
inline Json pairs(int64_t count, int64_t vocabulary = 61) {
  Json rows = Json::array();
  for (int64_t i = 0; i < count; ++i) {
    const auto run = [&](int64_t length, int64_t step) {
      std::vector<int64_t> ids;
      for (int64_t k = 0; k < length; ++k)
        ids.push_back(3 + (7 * i + step * k + step) % (vocabulary - 3));
      return ids;
    };
    std::vector<int64_t> chosen = run(1 + (5 * i) % 7, 3), rejected = run(2 + (3 * i) % 5, 5);
    if (i % 3 == 0) {
      rejected = chosen;
      rejected.push_back(4);
    }
    if (i % 4 == 1) rejected.insert(rejected.begin(), chosen.begin(), chosen.end());
    rows.push_back(
        {{"prompt_ids", run(1 + i % 6, 11)}, {"chosen_ids", chosen}, {"rejected_ids", rejected}});
  }
  return rows;
}

inline preference::PreferenceConfig config(const tiny::Folder& folder, const std::string& model) {
  preference::PreferenceConfig c;
  c.output_dir = folder / "run";
  c.model.path = golden_path("models/" + model);
  c.data.train = {{.path = folder / "rows.jsonl"}};
  c.data.shuffle = false;
  c.train.max_steps = 10;
  c.train.batch_size = 4;
  c.optimizer = tiny::constant_rate(3e-3);
  c.metrics.sinks = {"jsonl"};
  return c;
}

using Verb = train::RunOutcome (*)(preference::PreferenceConfig&, const train::RunHost&);

// The rows of metrics that the run leaves.
inline std::vector<MetricsRow> run(Verb verb, preference::PreferenceConfig c) {
  std::ostringstream console;
  verb(c, {console});
  return read_metrics_file(c.output_dir + "/metrics.jsonl");
}

}  // namespace pref
