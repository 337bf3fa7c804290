#include "temper/metrics/sink.h"

#include "temper/base/error.h"

namespace temper {

std::span<const SinkEntry> sinks() {
  static const SinkEntry table[] = {
      {"console", &make_console_sink, "one line of progress on a terminal, plain lines when piped"},
      {"jsonl", &make_jsonl_sink, "OUTPUT_DIR/metrics.jsonl, a row a step at full float precision"},
      {"csv", &make_csv_sink, "OUTPUT_DIR/metrics.csv and eval.csv"},
  };
  return table;
}

Metrics::Metrics(std::span<const std::string> names, const SinkOptions& options, const std::string& where) {
  for (const std::string& name : names) {
    const SinkEntry* found = nullptr;
    std::string known;
    for (const SinkEntry& entry : sinks()) {
      if (name == entry.name) found = &entry;
      known += (known.empty() ? "" : ", ") + std::string(entry.name);
    }
    check<ConfigError>(found != nullptr, where, ": `", name, "` is not a sink of this build; expected some of ", known);
    open_.push_back({found->name, found->make(options)});
  }
}

template <class Action>
void Metrics::each(Action&& action) {
  std::string failed;
  for (Open& open : open_) {
    if (!open.sink) continue;
    try {
      action(*open.sink);
    } catch (const std::exception& e) {
      open.sink.reset();
      failed += temper::str("metrics sink ", open.name, " failed and is off: ", e.what());
    }
  }
  if (!failed.empty()) warn(failed);
}

void Metrics::log(const MetricsRow& row) {
  each([&](Sink& sink) { sink.log(row); });
}
void Metrics::truncate_after(int64_t step) {
  each([&](Sink& sink) { sink.truncate_after(step); });
}
void Metrics::warn(const std::string& message) {
  for (Open& open : open_)
    if (open.sink) open.sink->warn(message);
}
void Metrics::finish() {
  each([](Sink& sink) { sink.finish(); });
}

}  // namespace temper
