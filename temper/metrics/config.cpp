#include "temper/metrics/config.h"

namespace temper {

void MetricsSection::fields(Fields& f) {
  f.add("sinks", sinks, "where metrics go: console, jsonl, csv, tensorboard, wandb, prometheus",
        one_or_list());
  f.add("log_every", log_every,
        "steps between console lines; 0: at most one line per second. Files have every step",
        at_least(0));
}

}  // namespace temper
