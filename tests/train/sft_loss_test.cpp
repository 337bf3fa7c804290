// Supervised tuning's losses against tests/golden/make_sft_goldens.py, in whole runs.
#include <fstream>

#include "temper/train/sft/sft.h"
#include "tests/differences.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

using namespace temper;

TEST_CASE("steps of nll and dft are TRL's, and perplexity is of the plain likelihood") {
  const Json golden = read_json_file(golden_path("sft.json"));
  for (const auto& [loss, steps] : golden["losses"].items()) {
    CAPTURE(loss);
    for (const int64_t tokens : {4096, 10}) {  // a step whole, and split over passes
      CAPTURE(tokens);
      const tiny::Folder folder;
      std::ofstream file(folder / "rows.jsonl");
      for (const Json& row : golden["rows"]) file << row.dump() << "\n";
      file.close();
      train::SftConfig c;
      c.output_dir = folder / "run";
      c.model.path = golden_path("models/qwen3");
      c.data.train = {{.path = folder / "rows.jsonl"}};
      c.data.eval = {{.path = folder / "rows.jsonl"}};
      c.data.shuffle = false;
      c.sft.loss = loss == "dft" ? train::SftSection::Loss::kDft : train::SftSection::Loss::kNll;
      c.train.max_steps = std::ssize(steps);
      c.train.batch_size = golden["batch_size"].get<int64_t>();
      c.train.micro_batch_tokens = tokens;
      c.train.eval_at_start = true;
      c.optimizer = tiny::constant_rate(golden["learning_rate"].get<double>());
      c.metrics.sinks = {"jsonl"};
      std::ostringstream console;
      train::run_sft(c, {console, false, [] { return false; }});
      size_t step = 0;
      for (const MetricsRow& row : read_metrics_file(c.output_dir + "/metrics.jsonl")) {
        if (row.is_eval()) {
          CHECK(*row.number("eval/perplexity") ==
                doctest::Approx(std::exp(*row.number("eval/loss"))).epsilon(1e-12));
          continue;
        }
        for (const auto& [metric, value] : steps.at(step).items()) {
          CAPTURE(metric);
          if (step == 0)
            Differences::add("sft " + loss, row.number(metric).value(), value.get<double>());
          // float32 against float64; Adam turns the smallest gradients' noise into whole steps.
          CHECK(row.number(metric).value() ==
                doctest::Approx(value.get<double>()).epsilon(step == 0 ? 1e-5 : 2e-3));
        }
        ++step;
      }
      CHECK(step == steps.size());
    }
  }
}
