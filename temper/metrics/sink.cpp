#include "temper/metrics/sink.h"

#include <ostream>

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper {

Registry<MakeSink>& sinks() {
  static Registry<MakeSink> table("metrics sink");
  return table;
}

Metrics::Metrics(std::span<const std::string> names, const SinkOptions& options,
                 const std::string& where)
    : plain_(options.console) {
  for (const std::string& name : names) {
    for (const Open& open : open_)
      check<ConfigError>(open.name != name, where, ": `", name, "` is listed twice");
    const MakeSink& make = sinks().find(name, where);
    if (name == "console") plain_ = nullptr;
    open_.push_back({name, make(options)});
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
void Metrics::remove_evaluation(int64_t step) {
  each([&](Sink& sink) { sink.remove_evaluation(step); });
}
void Metrics::restore(const MetricsRow& row) {
  each([&](Sink& sink) { sink.restore(row); });
}
void Metrics::warn(const std::string& message) {
  for (Open& open : open_)
    if (open.sink) open.sink->warn(message);
  if (plain_) *plain_ << "warning: " << printable(message) << std::endl;
}
void Metrics::note(const std::string& text) {
  each([&](Sink& sink) { sink.note(text); });
}
void Metrics::finish() {
  each([](Sink& sink) { sink.finish(); });
}

}  // namespace temper
