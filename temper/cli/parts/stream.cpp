#include "temper/cli/parts/stream.h"

#include <algorithm>
#include <optional>
#include <string>

#include "temper/cli/parts/progress.h"

namespace temper::cli {
namespace {

// Prints the texts of several samples one after another while all of them grow.
class OrderedText {
 public:
  OrderedText(size_t samples, std::ostream& out) : ended_(samples), out_(out) {}

  void grow(size_t sample, const std::string& text) {
    if (sample != current_) return;  // its time comes
    out_ << text.substr(std::min(printed_, text.size())) << std::flush;
    printed_ = std::max(printed_, text.size());
  }
  void end(size_t sample, const std::string& text) {
    ended_[sample] = text;
    for (; current_ < ended_.size() && ended_[current_]; ++current_, printed_ = 0) {
      grow(current_, *ended_[current_]);
      out_ << std::endl;
    }
  }

 private:
  std::vector<std::optional<std::string>> ended_;
  std::ostream& out_;
  size_t current_ = 0, printed_ = 0;
};

}  // namespace

std::vector<generate::Completion> print_stream(generate::Engine& engine, generate::Request request,
                                               std::ostream& out) {
  std::vector<generate::Completion> all(static_cast<size_t>(request.num_samples));
  OrderedText text(all.size(), out);
  request.options.stream = true;
  const generate::Callbacks callbacks{
      [&](generate::Completion c) {
        const size_t sample = static_cast<size_t>(c.sample);
        text.end(sample, c.text);
        all[sample] = std::move(c);
      },
      [&](const generate::Completion& c) { text.grow(static_cast<size_t>(c.sample), c.text); }};
  const generate::RequestId id = engine.submit(std::move(request));
  bool cancelled = false;
  while (engine.step(callbacks)) {
    if (!interrupted() || cancelled) continue;
    engine.cancel(id);
    cancelled = true;
  }
  return all;
}

}  // namespace temper::cli
