#include "temper/metrics/config.h"

namespace temper {

void MetricsSection::fields(Fields& f) {
  f.add("sinks", sinks, "where metrics go: console, jsonl, csv, tensorboard, wandb, prometheus",
        one_or_list());
}

}  // namespace temper
