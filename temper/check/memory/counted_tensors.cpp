#include "temper/check/memory/counted_tensors.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

namespace temper::checks {
namespace {

thread_local CountedTensors* counting = nullptr;

// What stands behind a tensor's address, which is null.
struct Counted {
  CountedTensors* by;
  int64_t piece;
};

void give_back(void* context) {
  const std::unique_ptr<Counted> counted(static_cast<Counted*>(context));
  if (counted->by == counting) counting->free(counted->piece);
}

class MetaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kMeta);
    if (!counting) return {nullptr, device};
    return {nullptr, new Counted{counting, counting->take(bytes)}, &give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
};

}  // namespace

int64_t allocated_bytes(int64_t asked) {
  constexpr int64_t kSmallest = 16;
  if (asked <= 4 * kSmallest) return (asked + kSmallest - 1) / kSmallest * kSmallest;
  const int doubling = std::bit_width(static_cast<uint64_t>(asked - 1)) - 1;
  const int64_t step = std::max(kSmallest, int64_t{1} << (doubling - 2));
  return (asked + step - 1) / step * step;
}

CountedTensors::CountedTensors() : before_(counting) {
  // In place of LibTorch's own, from now on: this one gives no memory, either.
  static MetaAllocator allocator;
  [[maybe_unused]] static const bool set = [] {
    c10::SetAllocator(c10::kMeta, &allocator, 1);
    return true;
  }();
  counting = this;
}
CountedTensors::~CountedTensors() { counting = before_; }
CountedTensors* CountedTensors::current() { return counting; }

int64_t CountedTensors::take(size_t bytes) {
  const auto piece = static_cast<int64_t>(pieces_.size());
  pieces_.push_back({static_cast<int64_t>(bytes), stage_});
  events_.push_back(piece);
  return piece;
}

PassPeak CountedTensors::peak(double gradient_share, int64_t number_bytes) const {
  constexpr int64_t kFloat = 4;
  std::vector<bool> stays(pieces_.size(), true);
  for (const int64_t event : events_)
    if (event < 0) stays[static_cast<size_t>(~event)] = false;
  PassPeak now, most;
  const auto piece_of = [](int64_t event) {
    return static_cast<size_t>(event < 0 ? ~event : event);
  };
  // Autograd adds up gradients in place, but on `meta` it makes the sum and then frees both.
  const auto is_sum = [&](size_t e) {
    const auto frees_as_much = [&](size_t later) {
      return events_[later] < 0 &&
             pieces_[piece_of(events_[later])].bytes == pieces_[piece_of(events_[e])].bytes;
    };
    return events_[e] >= 0 && e + 2 < events_.size() && frees_as_much(e + 1) &&
           frees_as_much(e + 2);
  };
  for (size_t e = 0; e < events_.size(); ++e) {
    const int64_t event = events_[e];
    const size_t i = piece_of(event);
    const Piece& piece = pieces_[i];
    const bool is_gradient = stays[i] && piece.stage != Stage::kForward;
    TensorBytes& part = is_gradient                       ? now.gradients
                        : piece.stage == Stage::kForward  ? now.activations
                        : piece.stage == Stage::kBackward ? now.scratch
                                                          : now.logits;
    const auto bytes =
        is_gradient
            ? static_cast<int64_t>(std::llround(gradient_share * static_cast<double>(piece.bytes)))
            : piece.bytes / kFloat * number_bytes;
    const int64_t sign = event < 0 ? -1 : 1;
    part.asked += sign * bytes;
    part.given += sign * allocated_bytes(bytes);
    if (now.given() > most.given() && !is_sum(e)) most = now;
  }
  return most;
}

}  // namespace temper::checks
