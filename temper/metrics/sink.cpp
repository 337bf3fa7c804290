#include "temper/metrics/sink.h"

#include <algorithm>
#include <ostream>

#include "temper/base/error.h"

namespace temper {

std::span<const SinkEntry> sinks() {
  static const SinkEntry table[] = {
      {"console", &make_console_sink, "one line of progress on a terminal, plain lines when piped"},
      {"jsonl", &make_jsonl_sink, "OUTPUT_DIR/metrics.jsonl, a row a step at full float precision"},
      {"csv", &make_csv_sink, "OUTPUT_DIR/metrics.csv and eval.csv"},
      {"tensorboard", &make_tensorboard_sink, "OUTPUT_DIR/tensorboard/, event files"},
  };
  return table;
}

Metrics::Metrics(std::span<const std::string> names, const SinkOptions& options,
                 const std::string& where)
    : plain_(options.console) {
  for (const std::string& name : names) {
    const auto found = std::find_if(sinks().begin(), sinks().end(),
                                    [&](const SinkEntry& e) { return name == e.name; });
    if (found == sinks().end()) {
      std::string known;
      for (const SinkEntry& entry : sinks()) known += str(known.empty() ? "" : ", ", entry.name);
      throw ConfigError(
          str(where, ": `", name, "` is not a sink of this build; expected some of ", known));
    }
    for (const Open& open : open_)
      check<ConfigError>(open.name != name, where, ": `", name, "` stands there twice");
    if (name == "console") plain_ = nullptr;
    open_.push_back({found->name, found->make(options)});
  }
}

template <class Action>
void Metrics::each(Action&& action) {
  for (Open& open : open_) {
    if (!open.sink) continue;
    try {
      action(*open.sink);
    } catch (const std::exception& e) {
      open.sink.reset();
      warn(str("the metrics sink ", open.name, " failed and is off: ", e.what()));
    }
  }
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
  if (plain_) *plain_ << "warning: " << message << std::endl;
}
void Metrics::note(const std::string& text) {
  each([&](Sink& sink) { sink.note(text); });
}
void Metrics::finish() {
  each([](Sink& sink) { sink.finish(); });
}

}  // namespace temper
